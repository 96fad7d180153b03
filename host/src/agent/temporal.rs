//! The temporal block in front of the trunk: its launches over the rows of a pass, forwards and backwards.

use std::sync::Arc;

use cuda_std::launch::DeviceSlice;
use gpu_kernels::temporal::{
    N_FEATURES, N_PARAMETERS, temporal_backward, temporal_backward_operations, temporal_backward_shape,
    temporal_backward_tensor, temporal_backward_tensor_shape, temporal_forward, temporal_forward_operations,
    temporal_forward_shape, temporal_forward_tensor, temporal_forward_tensor_shape, temporal_gradient,
    temporal_gradient_shape, temporal_n_parts,
};
use gpu_kernels::trunk::input::TEMPORAL_COLUMN;
use shared_types::{Precision, ProductForm};

use super::backward::to_block;
use super::layout::Layout;
use super::{Parameters, Weights, width};
use crate::device::{Buffer, Device, Matmul, Output};
use crate::error::DeviceError;
use crate::market::Step;

/// Threads of a block on the tensor cores, as the number of a backward pass's parts depends on them.
const N_TENSOR_THREADS: u32 = 512;
/// Threads of a block by multiply-adds on a GPU; on the CPU a block is one thread.
const N_PLAIN_THREADS: u32 = 256;

/// Which of the block's kernels run.
#[derive(Clone, Copy)]
enum Way {
    /// By multiply-adds, in blocks of so many threads.
    Plain(u32),
    /// On the tensor cores.
    Tensor,
}

/// What both passes know of the block.
struct Block {
    way: Way,
    n_rows: usize,
    window: u32,
    precision: Precision,
    layout: Arc<Layout>,
}

impl Block {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Self {
        let layout = parameters.layout.clone();
        let window = parameters.sizes.window;
        let shapes = [temporal_forward_tensor_shape(n_rows, window), temporal_backward_tensor_shape(n_rows, window)];
        let way = match (device.row_lanes(), parameters.precision) {
            (1, _) => Way::Plain(1),
            // A multiprocessor older than Hopper's has too little shared memory.
            (_, Precision::Bf16) if device.fits(&shapes) => Way::Tensor,
            _ => Way::Plain(N_PLAIN_THREADS),
        };
        let block =
            Self { way, n_rows, window: parameters.sizes.window as u32, precision: parameters.precision, layout };
        let next = block.layout.range("trunk.in.weight").start;
        assert_eq!(block.range().end, next, "the kernels know where the block's tensors lie");
        block
    }

    /// The block's part of the flat parameters and of the gradient.
    fn range(&self) -> std::ops::Range<usize> {
        let start = self.layout.range("temporal.embed.weight").start;
        start..start + N_PARAMETERS
    }

    fn operand<'a>(&self, weights: &'a Weights, layer: &str) -> DeviceSlice<'a, u16> {
        let (range, words) = (self.layout.range(&format!("temporal.{layer}.weight")), self.precision.words());
        weights.shadow.slice(range.start * words..range.end * words).view()
    }

    /// Operands of W_e, W_in and W_out, and all of the block's parameters in f32.
    fn weights<'a>(&self, weights: &'a Weights) -> ([DeviceSlice<'a, u16>; 3], DeviceSlice<'a, f32>) {
        let operands = ["embed", "in_proj", "out_proj"].map(|layer| self.operand(weights, layer));
        (operands, weights.flat.slice(self.range()).view())
    }

    /// Bytes of the rows' features.
    fn feature_bytes(&self) -> usize {
        size_of::<f32>() * self.n_rows * self.window as usize * N_FEATURES
    }

    fn stride(&self, rows: &Buffer<f32>) -> u32 {
        (rows.len() / self.n_rows) as u32
    }
}

/// The block's forward pass over R rows.
pub struct TemporalForward {
    /// Output of the last bar, \[R, 64\].
    pub output: Buffer<f32>,
    block: Block,
}

impl TemporalForward {
    /// Memory for `n_rows` rows.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let output = device.alloc_zeroed(n_rows * width::TEMPORAL)?;
        Ok(Self { output, block: Block::new(device, parameters, n_rows) })
    }

    /// Makes [`output`](Self::output) of the bars in `rows` \[R, stride\].
    pub fn launch(&self, rows: &Buffer<f32>, weights: &Weights) -> Step {
        let block = &self.block;
        let (n_rows, window, stride) = (block.n_rows, block.window, block.stride(rows));
        let ([embed, in_proj, out_proj], flat) = block.weights(weights);
        let (rows, output) = (rows.view(), self.output.view_mut());
        let (shape, launch) = match block.way {
            Way::Plain(n_threads) => (
                temporal_forward_shape(n_rows, window as usize, n_threads),
                temporal_forward::launch(rows, embed, in_proj, out_proj, flat, output, stride, window, block.precision),
            ),
            Way::Tensor => (
                temporal_forward_tensor_shape(n_rows, window as usize),
                temporal_forward_tensor::launch(rows, embed, in_proj, out_proj, flat, output, stride, window),
            ),
        };
        let launch = launch.moves("rows", block.feature_bytes());
        (shape, launch.multiplies(temporal_forward_operations(n_rows, window as usize)))
    }
}

/// The block's backward pass over R rows, with the online weights.
pub struct TemporalBackward {
    /// Gradient by the block's output, \[R, 64\].
    pub d_output: Buffer<f32>,
    /// Each thread block's gradients.
    parts: Buffer<f32>,
    input: Matmul,
    block: Block,
}

impl TemporalBackward {
    /// Memory for `n_rows` rows.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let block = Block::new(device, parameters, n_rows);
        let n_threads = if let Way::Plain(n_threads) = block.way { n_threads } else { N_TENSOR_THREADS };
        let n_parts = temporal_n_parts(n_rows, block.window as usize, n_threads);
        let product = to_block(n_rows, &block.layout, TEMPORAL_COLUMN, width::TEMPORAL);
        Ok(Self {
            d_output: device.alloc_zeroed(n_rows * width::TEMPORAL)?,
            parts: device.alloc_zeroed(n_parts * N_PARAMETERS)?,
            input: Matmul::new(device, ProductForm::Nn, parameters.precision, vec![product])?,
            block,
        })
    }

    /// [`d_output`](Self::d_output) = d_pre_in W_in, of the columns of u that the block fills; W_in with its spectral norm.
    pub fn through_entry(&self, d_pre_in: &Buffer<u16>, parameters: &Parameters) -> Step {
        let d_output = Output::Store(self.d_output.all(), None);
        self.input.launch(d_pre_in.all(), parameters.online.shadow.all(), d_output)
    }

    /// From [`d_output`](Self::d_output) to the block's part of the gradient, for the `rows` of the forward pass.
    pub fn launches(&self, rows: &Buffer<f32>, parameters: &Parameters) -> [Step; 2] {
        let block = &self.block;
        let (n_rows, window, stride) = (block.n_rows, block.window, block.stride(rows));
        let ([embed, in_proj, out_proj], flat) = block.weights(&parameters.online);
        let (rows, d_output, parts) = (rows.view(), self.d_output.view(), self.parts.view_mut());
        let (d_stride, d_first, precision) = (width::TEMPORAL as u32, 0, block.precision);
        let (shape, backward) = match block.way {
            Way::Plain(n_threads) => (
                temporal_backward_shape(n_rows, window as usize, n_threads),
                temporal_backward::launch(
                    rows, embed, in_proj, out_proj, flat, d_output, parts, stride, window, d_stride, d_first, precision,
                ),
            ),
            Way::Tensor => (
                temporal_backward_tensor_shape(n_rows, window as usize),
                temporal_backward_tensor::launch(
                    rows, embed, in_proj, out_proj, flat, d_output, parts, stride, window, d_stride, d_first,
                ),
            ),
        };
        let backward = backward.moves("rows", block.feature_bytes());
        let backward = backward.multiplies(temporal_backward_operations(n_rows, window as usize));
        let gradient = parameters.gradient.slice(block.range()).view_mut();
        let sums = temporal_gradient::launch(self.parts.view(), gradient);
        [(shape, backward), (temporal_gradient_shape(), sums)]
    }
}
