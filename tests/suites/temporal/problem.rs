//! A block with parameters and rows, on the device and in the reference.

use std::sync::Arc;

use gpu_kernels::temporal::{
    N_FEATURES, N_PARAMETERS, WIDTH, temporal_backward, temporal_backward_shape, temporal_backward_tensor,
    temporal_backward_tensor_shape, temporal_forward, temporal_forward_shape, temporal_forward_tensor,
    temporal_forward_tensor_shape, temporal_gradient, temporal_gradient_shape, temporal_n_parts,
};
use half::bf16;
use host::device::Buffer;
use onegraph_tests::Failed;
use onegraph_tests::lab::{Lab, Numbers};
use reference::config::Sizes;
use reference::init::initial_values;
use reference::layout::{Layout, Tensors};
use reference::matrix::Matrix;
use reference::temporal::{self, TemporalPass};
use shared_types::Precision;

pub const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];
/// The gradient of the output as the trunk's input has it: 64 of 200 columns.
const DOUTPUT_STRIDE: usize = 200;
const DOUTPUT_FIRST: usize = 40;

/// Which kernels.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// By multiply-adds, with so many threads a block.
    Plain(u32),
    /// On the tensor cores.
    Tensor,
}

/// The ways that there are for a precision. By multiply-adds a block has 256 threads on a GPU; on the CPU 1, which it is made
/// for, and 256, which check the barriers.
pub fn ways(lab: &Lab<'_>, precision: Precision) -> Vec<Way> {
    let mut ways = if lab.row_lanes().contains(&1) { vec![Way::Plain(1)] } else { Vec::new() };
    ways.push(Way::Plain(256));
    if precision == Precision::Bf16 {
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

    /// The temporal part of the flat parameters.
    pub fn flat(&self) -> Vec<f32> {
        self.parameters.flat[..N_PARAMETERS].iter().map(|&value| value as f32).collect()
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
    pub fn reference(&self, precision: Precision) -> TemporalPass {
        temporal::forward(&self.sizes, reference_precision(precision), &self.parameters, &self.bars)
    }

    /// The reference's gradients.
    pub fn reference_gradients(&self, precision: Precision) -> Tensors {
        let mut gradients = Tensors::zeros(&self.parameters.layout);
        let pass = self.reference(precision);
        let precision = reference_precision(precision);
        temporal::backward(&self.sizes, precision, &self.parameters, &pass, &self.doutput, &mut gradients);
        gradients
    }

    /// The kernel's output `[R, 64]`.
    pub fn forward(&self, lab: &Lab<'_>, precision: Precision, way: Way) -> Result<Vec<f32>, Failed> {
        let (window, on_device) = (self.sizes.window, OnDevice::new(lab, self, precision)?);
        let OnDevice { rows, stride, weights: [embed, in_proj, out_proj], parameters } = &on_device;
        let output = lab.poisoned(self.n_rows * WIDTH)?;
        let (rows, parameters, result) = (rows.view(), parameters.view(), output.view_mut());
        let (embed, in_proj, out_proj) = (embed.view(), in_proj.view(), out_proj.view());
        let (shape, launch) = match way {
            Way::Plain(n_threads) => {
                let shape = temporal_forward_shape(self.n_rows, window, n_threads);
                let (stride, window) = (*stride as u32, window as u32);
                let launch = temporal_forward::launch(
                    rows, embed, in_proj, out_proj, parameters, result, stride, window, precision,
                );
                (shape, launch)
            }
            Way::Tensor => {
                let shape = temporal_forward_tensor_shape(self.n_rows, window);
                let (stride, window) = (*stride as u32, window as u32);
                let launch =
                    temporal_forward_tensor::launch(rows, embed, in_proj, out_proj, parameters, result, stride, window);
                (shape, launch)
            }
        };
        lab.run(shape, launch)?;
        Ok(output.read()?)
    }

    /// The kernels' gradients, the temporal part of the flat ones.
    pub fn gradients(&self, lab: &Lab<'_>, precision: Precision, way: Way) -> Result<Vec<f32>, Failed> {
        let (window, on_device) = (self.sizes.window, OnDevice::new(lab, self, precision)?);
        let OnDevice { rows, stride, weights: [embed, in_proj, out_proj], parameters } = &on_device;
        let mut doutput = vec![f32::NAN; self.n_rows * DOUTPUT_STRIDE];
        for (row, d) in doutput.chunks_exact_mut(DOUTPUT_STRIDE).zip(self.doutput.values.chunks_exact(WIDTH)) {
            row[DOUTPUT_FIRST..].iter_mut().zip(d).for_each(|(to, &from)| *to = from as f32);
        }
        let n_threads = if let Way::Plain(n_threads) = way { n_threads } else { 512 };
        let parts = lab.poisoned(temporal_n_parts(self.n_rows, window, n_threads) * N_PARAMETERS)?;
        let (doutput, gradient) = (lab.upload(&doutput)?, lab.poisoned(N_PARAMETERS)?);
        let (rows, parameters, d, result) = (rows.view(), parameters.view(), doutput.view(), parts.view_mut());
        let (embed, in_proj, out_proj) = (embed.view(), in_proj.view(), out_proj.view());
        let (d_stride, d_first, stride) = (DOUTPUT_STRIDE as u32, DOUTPUT_FIRST as u32, *stride as u32);
        let (shape, launch) = match way {
            Way::Plain(n_threads) => (
                temporal_backward_shape(self.n_rows, window, n_threads),
                temporal_backward::launch(
                    rows,
                    embed,
                    in_proj,
                    out_proj,
                    parameters,
                    d,
                    result,
                    stride,
                    window as u32,
                    d_stride,
                    d_first,
                    precision,
                ),
            ),
            Way::Tensor => (
                temporal_backward_tensor_shape(self.n_rows, window),
                temporal_backward_tensor::launch(
                    rows,
                    embed,
                    in_proj,
                    out_proj,
                    parameters,
                    d,
                    result,
                    stride,
                    window as u32,
                    d_stride,
                    d_first,
                ),
            ),
        };
        lab.run(shape, launch)?;
        lab.run(temporal_gradient_shape(), temporal_gradient::launch(parts.view(), gradient.view_mut()))?;
        Ok(gradient.read()?)
    }
}

/// What the kernels read.
struct OnDevice {
    rows: Buffer<f32>,
    stride: usize,
    weights: [Buffer<u16>; 3],
    parameters: Buffer<f32>,
}

impl OnDevice {
    fn new(lab: &Lab<'_>, problem: &Problem, precision: Precision) -> Result<Self, Failed> {
        let (rows, stride) = problem.rows();
        let operand = |name: &str| lab.upload(&words(problem.parameters.slice(name), precision));
        Ok(Self {
            rows: lab.upload(&rows)?,
            stride,
            weights: [
                operand("temporal.embed.weight")?,
                operand("temporal.in_proj.weight")?,
                operand("temporal.out_proj.weight")?,
            ],
            parameters: lab.upload(&problem.flat())?,
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
