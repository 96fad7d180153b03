//! The attention in front of the trunk: its launches over the rows of a pass, forwards and backwards.

use std::ops::Range;
use std::sync::Arc;

use cuda_std::launch::DeviceSlice;
use gpu_kernels::attention::{
    KEPT, N_FEATURES, TENSOR_BARS, attention_backward, attention_backward_operations, attention_backward_shape,
    attention_backward_tensor, attention_backward_tensor_shape, attention_forward, attention_forward_operations,
    attention_forward_shape, attention_forward_tensor, attention_forward_tensor_shape, attention_gradient,
    attention_gradient_shape, attention_n_parts, attention_tensor_n_parts, n_parameters, position,
};
use gpu_kernels::trunk::input::ATTENTION_COLUMN;
use shared_types::{Precision, ProductForm};

use super::backward::to_block;
use super::layout::{Group, Layout};
use super::{Parameters, Weights, width};
use crate::device::{Buffer, Device, Matmul, Output};
use crate::error::DeviceError;
use crate::market::Step;

/// Threads of a block by multiply-adds on a GPU; on the CPU a block is one thread.
const N_PLAIN_THREADS: u32 = 256;

/// Which of the attention's kernels run.
#[derive(Clone, Copy)]
enum Way {
    /// By multiply-adds, in blocks of so many threads.
    Plain(u32),
    /// On the tensor cores.
    Tensor,
}

/// What both passes know of the attention.
struct Attention {
    way: Way,
    n_rows: usize,
    window: usize,
    precision: Precision,
    layout: Arc<Layout>,
    /// Sinusoidal positions, \[T, 64\]; written once.
    positions: Buffer<f32>,
}

impl Attention {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, window) = (parameters.layout.clone(), parameters.sizes.window);
        let len = layout.group(Group::Attention).len();
        assert_eq!(len, n_parameters(window), "the kernels know where the attention's tensors lie");
        let shapes = [attention_forward_tensor_shape(n_rows), attention_backward_tensor_shape(n_rows)];
        let way = match (device.row_lanes(), parameters.precision) {
            (1, _) => Way::Plain(1),
            // A multiprocessor older than Hopper's has too little shared memory.
            (_, Precision::Bf16) if window <= TENSOR_BARS && device.fits(&shapes) => Way::Tensor,
            _ => Way::Plain(N_PLAIN_THREADS),
        };
        let positions = (0..window).flat_map(|bar| (0..width::ATTENTION).map(move |column| position(bar, column)));
        Ok(Self {
            way,
            n_rows,
            window,
            precision: parameters.precision,
            layout,
            positions: device.upload(&positions.collect::<Vec<_>>())?,
        })
    }

    /// The attention's part of the flat parameters and of the gradient.
    fn range(&self) -> Range<usize> {
        self.layout.group(Group::Attention)
    }

    /// All of the attention's parameters, as operands and in f32.
    fn weights<'a>(&self, weights: &'a Weights) -> (DeviceSlice<'a, u16>, DeviceSlice<'a, f32>) {
        let (range, words) = (self.range(), self.precision.words());
        let operands = weights.shadow.slice(range.start * words..range.end * words).view();
        (operands, weights.flat.slice(range).view())
    }

    /// Bytes of the rows' features.
    fn feature_bytes(&self) -> usize {
        size_of::<f32>() * self.n_rows * self.window * N_FEATURES
    }

    fn stride(&self, rows: &Buffer<f32>) -> u32 {
        (rows.len() / self.n_rows) as u32
    }
}

/// The attention's forward pass over R rows.
pub struct AttentionForward {
    /// Mean over bars, \[R, 64\].
    pub output: Buffer<f32>,
    attention: Attention,
}

impl AttentionForward {
    /// Memory for `n_rows` rows.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let output = device.alloc_zeroed(n_rows * width::ATTENTION)?;
        Ok(Self { output, attention: Attention::new(device, parameters, n_rows)? })
    }

    /// Makes [`output`](Self::output) of the bars in `rows` \[R, stride\].
    pub fn launch(&self, rows: &Buffer<f32>, weights: &Weights) -> Step {
        let attention = &self.attention;
        let (n_rows, window, stride) = (attention.n_rows, attention.window, attention.stride(rows));
        let (operands, flat) = attention.weights(weights);
        let (rows, positions, output) = (rows.view(), attention.positions.view(), self.output.view_mut());
        let (shape, launch) = match attention.way {
            Way::Plain(n_threads) => (
                attention_forward_shape(n_rows, window, n_threads),
                attention_forward::launch(
                    rows,
                    operands,
                    flat,
                    positions,
                    output,
                    stride,
                    window as u32,
                    attention.precision,
                ),
            ),
            Way::Tensor => (
                attention_forward_tensor_shape(n_rows),
                attention_forward_tensor::launch(rows, operands, flat, positions, output, stride, window as u32),
            ),
        };
        let launch = launch.moves("rows", attention.feature_bytes());
        (shape, launch.multiplies(attention_forward_operations(n_rows, window)))
    }
}

/// The attention's backward pass over R rows, with the online weights.
pub struct AttentionBackward {
    /// Gradient by the attention's output, \[R, 64\].
    pub d_output: Buffer<f32>,
    /// What each thread block keeps of the attention over bars; empty on the tensor cores, which make it again.
    kept: Buffer<f32>,
    /// Each thread block's gradients.
    parts: Buffer<f32>,
    input: Matmul,
    attention: Attention,
}

impl AttentionBackward {
    /// Memory for `n_rows` rows.
    pub fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let attention = Attention::new(device, parameters, n_rows)?;
        let (n_parts, n_kept) = match attention.way {
            Way::Plain(n_threads) => {
                let n_parts = attention_n_parts(n_rows, attention.window, n_threads);
                (n_parts, n_parts * KEPT)
            }
            Way::Tensor => (attention_tensor_n_parts(n_rows), 0),
        };
        let product = to_block(n_rows, &attention.layout, ATTENTION_COLUMN, width::ATTENTION);
        Ok(Self {
            d_output: device.alloc_zeroed(n_rows * width::ATTENTION)?,
            kept: device.alloc_zeroed(n_kept)?,
            parts: device.alloc_zeroed(n_parts * n_parameters(attention.window))?,
            input: Matmul::new(device, ProductForm::Nn, parameters.precision, vec![product])?,
            attention,
        })
    }

    /// [`d_output`](Self::d_output) = d_pre_in W_in, of the columns of u that the attention fills; W_in with its spectral norm.
    pub fn through_entry(&self, d_pre_in: &Buffer<u16>, parameters: &Parameters) -> Step {
        let d_output = Output::Store(self.d_output.all(), None);
        self.input.launch(d_pre_in.all(), parameters.online.shadow.all(), d_output)
    }

    /// From [`d_output`](Self::d_output) to the attention's part of the gradient, for the `rows` of the forward pass.
    pub fn launches(&self, rows: &Buffer<f32>, parameters: &Parameters) -> [Step; 2] {
        let attention = &self.attention;
        let (n_rows, window, stride) = (attention.n_rows, attention.window, attention.stride(rows));
        let (operands, flat) = attention.weights(&parameters.online);
        let (rows, positions) = (rows.view(), attention.positions.view());
        let (d_output, parts) = (self.d_output.view(), self.parts.view_mut());
        let (shape, backward) = match attention.way {
            Way::Plain(n_threads) => (
                attention_backward_shape(n_rows, window, n_threads),
                attention_backward::launch(
                    rows,
                    operands,
                    flat,
                    positions,
                    d_output,
                    self.kept.view_mut(),
                    parts,
                    stride,
                    window as u32,
                    attention.precision,
                ),
            ),
            Way::Tensor => (
                attention_backward_tensor_shape(n_rows),
                attention_backward_tensor::launch(
                    rows,
                    operands,
                    flat,
                    positions,
                    d_output,
                    parts,
                    stride,
                    window as u32,
                ),
            ),
        };
        let backward = backward.moves("rows", attention.feature_bytes());
        let backward = backward.multiplies(attention_backward_operations(n_rows, window));
        let gradient = parameters.gradient.slice(attention.range()).view_mut();
        let sums = attention_gradient::launch(self.parts.view(), gradient);
        [(shape, backward), (attention_gradient_shape(window), sums)]
    }
}
