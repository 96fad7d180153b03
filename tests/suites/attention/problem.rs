//! An attention with parameters and rows, on the device and in the reference.

use std::sync::Arc;

use gpu_kernels::attention::{
    KEPT, N_FEATURES, TENSOR_BARS, WIDTH, attention_backward, attention_backward_shape, attention_backward_tensor,
    attention_backward_tensor_shape, attention_forward, attention_forward_shape, attention_forward_tensor,
    attention_forward_tensor_shape, attention_gradient, attention_gradient_shape, attention_n_parts,
    attention_tensor_n_parts, n_parameters, position,
};
use half::bf16;
use host::device::Buffer;
use onegraph_tests::Failed;
use onegraph_tests::lab::{Lab, Numbers};
use reference::attention::{self, AttentionPass};
use reference::config::Sizes;
use reference::init::initial_values;
use reference::layout::{Layout, Tensors};
use reference::matrix::Matrix;
use shared_types::Precision;

pub const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];

/// Which kernels.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// By multiply-adds, with so many threads a block.
    Plain(u32),
    /// On the tensor cores.
    Tensor,
}

/// Threads of a block by multiply-adds: 256 on a GPU; on the CPU 1, which it is made for, and 256, which check the barriers.
pub fn n_threads(lab: &Lab<'_>) -> Vec<u32> {
    if lab.row_lanes().contains(&1) { vec![1, 256] } else { vec![256] }
}

/// The ways that there are for a precision and a window.
pub fn ways(lab: &Lab<'_>, precision: Precision, window: usize) -> Vec<Way> {
    let mut ways: Vec<_> = n_threads(lab).into_iter().map(Way::Plain).collect();
    if precision == Precision::Bf16 && window <= TENSOR_BARS {
        ways.push(Way::Tensor);
    }
    ways
}

/// Parameters, rows and a gradient of the output, all of them f32.
#[derive(Clone)]
pub struct Problem {
    pub sizes: Sizes,
    pub n_rows: usize,
    pub parameters: Tensors,
    /// `[R T, F]`.
    pub bars: Matrix,
    /// `[R, 64]`.
    pub doutput: Matrix,
}

impl Problem {
    /// Initial values moved off everything special: no bias at 0, no gain at 1.
    pub fn new(n_rows: usize, window: usize, seed: u64) -> Self {
        let sizes = Sizes::new(window, 16, 8, 5);
        let mut numbers = Numbers::new(seed);
        let mut signed = |scale: f64| f64::from((scale * (2.0 * numbers.unit() - 1.0)) as f32);
        let mut parameters = initial_values(&Arc::new(Layout::new(&sizes)), seed);
        for tensor in &parameters.layout.clone().tensors {
            for value in &mut parameters.flat[tensor.range()] {
                *value = f64::from((*value + signed(0.2)) as f32);
            }
        }
        let bars = Matrix::from_fn(n_rows * window, N_FEATURES, |_, _| signed(2.5));
        let doutput = Matrix::from_fn(n_rows, WIDTH, |_, _| signed(1.0));
        Self { sizes, n_rows, parameters, bars, doutput }
    }

    /// First element of the attention's part of the flat parameters.
    pub fn first(&self) -> usize {
        self.parameters.layout.tensor("attention.embed.weight").offset
    }

    /// Elements of the part.
    pub fn n_parameters(&self) -> usize {
        n_parameters(self.sizes.window)
    }

    /// Rows with columns behind the bars that nothing may read.
    fn rows(&self) -> (Vec<f32>, usize) {
        let (width, stride) = (self.sizes.window * N_FEATURES, self.sizes.state_stride());
        let mut rows = vec![f32::NAN; self.n_rows * stride];
        for (row, bars) in rows.chunks_exact_mut(stride).zip(self.bars.values.chunks_exact(width)) {
            row.iter_mut().zip(bars).for_each(|(to, &from)| *to = from as f32);
        }
        (rows, stride)
    }

    /// The reference's forward pass.
    pub fn reference(&self, precision: Precision) -> AttentionPass {
        attention::forward(&self.sizes, reference_precision(precision), &self.parameters, &self.bars)
    }

    /// The reference's gradients.
    pub fn reference_gradients(&self, precision: Precision) -> Tensors {
        let mut gradients = Tensors::zeros(&self.parameters.layout);
        let pass = self.reference(precision);
        let precision = reference_precision(precision);
        attention::backward(&self.sizes, precision, &self.parameters, &pass, &self.doutput, &mut gradients);
        gradients
    }

    /// The kernel's output `[R, 64]`.
    pub fn forward(&self, lab: &Lab<'_>, precision: Precision, way: Way) -> Result<Vec<f32>, Failed> {
        let OnDevice { rows, stride, operands, parameters, positions } = &OnDevice::new(lab, self, precision)?;
        let output = lab.poisoned(self.n_rows * WIDTH)?;
        let (rows, operands, flat, positions) = (rows.view(), operands.view(), parameters.view(), positions.view());
        let (result, stride, window) = (output.view_mut(), *stride, self.sizes.window as u32);
        let (shape, launch) = match way {
            Way::Plain(n_threads) => (
                attention_forward_shape(self.n_rows, self.sizes.window, n_threads),
                attention_forward::launch(rows, operands, flat, positions, result, stride, window, precision),
            ),
            Way::Tensor => (
                attention_forward_tensor_shape(self.n_rows),
                attention_forward_tensor::launch(rows, operands, flat, positions, result, stride, window),
            ),
        };
        lab.run(shape, launch)?;
        Ok(output.read()?)
    }

    /// The kernels' gradients, the attention's part of the flat ones.
    pub fn gradients(&self, lab: &Lab<'_>, precision: Precision, way: Way) -> Result<Vec<f32>, Failed> {
        let OnDevice { rows, stride, operands, parameters, positions } = &OnDevice::new(lab, self, precision)?;
        let doutput: Vec<f32> = self.doutput.values.iter().map(|&d| d as f32).collect();
        let (window, stride) = (self.sizes.window, *stride);
        let n_parts = match way {
            Way::Plain(n_threads) => attention_n_parts(self.n_rows, window, n_threads),
            Way::Tensor => attention_tensor_n_parts(self.n_rows),
        };
        let (kept, parts) = (lab.poisoned(n_parts * KEPT)?, lab.poisoned(n_parts * self.n_parameters())?);
        let (doutput, gradient) = (lab.upload(&doutput)?, lab.poisoned(self.n_parameters())?);
        let (rows, operands, flat, positions) = (rows.view(), operands.view(), parameters.view(), positions.view());
        let (d, result) = (doutput.view(), parts.view_mut());
        let (shape, launch) = match way {
            Way::Plain(n_threads) => (
                attention_backward_shape(self.n_rows, window, n_threads),
                attention_backward::launch(
                    rows,
                    operands,
                    flat,
                    positions,
                    d,
                    kept.view_mut(),
                    result,
                    stride,
                    window as u32,
                    precision,
                ),
            ),
            Way::Tensor => (
                attention_backward_tensor_shape(self.n_rows),
                attention_backward_tensor::launch(rows, operands, flat, positions, d, result, stride, window as u32),
            ),
        };
        lab.run(shape, launch)?;
        lab.run(attention_gradient_shape(window), attention_gradient::launch(parts.view(), gradient.view_mut()))?;
        Ok(gradient.read()?)
    }
}

/// What the kernels read.
struct OnDevice {
    rows: Buffer<f32>,
    stride: u32,
    operands: Buffer<u16>,
    parameters: Buffer<f32>,
    positions: Buffer<f32>,
}

impl OnDevice {
    fn new(lab: &Lab<'_>, problem: &Problem, precision: Precision) -> Result<Self, Failed> {
        let (rows, stride) = problem.rows();
        let part = &problem.parameters.flat[problem.first()..][..problem.n_parameters()];
        let flat: Vec<f32> = part.iter().map(|&value| value as f32).collect();
        let positions = (0..problem.sizes.window).flat_map(|bar| (0..WIDTH).map(move |column| position(bar, column)));
        Ok(Self {
            rows: lab.upload(&rows)?,
            stride: stride as u32,
            operands: lab.upload(&words(part, precision))?,
            parameters: lab.upload(&flat)?,
            positions: lab.upload(&positions.collect::<Vec<_>>())?,
        })
    }
}

/// Operands as kernels take them.
fn words(values: &[f64], precision: Precision) -> Vec<u16> {
    let word = |&value: &f64| match precision {
        Precision::Bf16 => vec![bf16::from_f32(value as f32).to_bits()],
        Precision::F32 => {
            let bits = (value as f32).to_bits();
            vec![bits as u16, (bits >> 16) as u16]
        }
    };
    values.iter().flat_map(word).collect()
}

fn reference_precision(precision: Precision) -> reference::precision::Precision {
    match precision {
        Precision::Bf16 => reference::precision::Precision::Bf16,
        Precision::F32 => reference::precision::Precision::Exact,
    }
}
