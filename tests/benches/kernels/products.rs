//! Matrix products of bf16 operands at the sizes of preset `full`, by every kernel that the GPU runs.

use gpu_kernels::matmul::{WgmmaTile, sum_parts, sum_parts_shape};
use half::bf16;
use host::device::{Bf16Kernels, Buffer, Matmul, Output};
use shared_types::{Precision, Product, ProductForm};

use crate::Failure;
use crate::report::Report;
use crate::timer::{N_SETS, Pass, Timer, Times};

const BATCH: usize = 8192;
const HIDDEN: usize = 512;
/// Parts of the sums of a weight gradient.
const N_PARTS: usize = 16;

/// Forwards with and without SiLU, backwards likewise, and the weight's gradient, its parts added up.
pub fn products(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let mut kernels = vec![("mma", Bf16Kernels::Mma)];
    if timer.device().runs_sm_90a() {
        kernels.push(("wgmma 128", Bf16Kernels::Wgmma(WgmmaTile::Columns128)));
        kernels.push(("wgmma 256", Bf16Kernels::Wgmma(WgmmaTile::Columns256)));
    }
    let sets = Sets::new(timer)?;
    let operations = 2.0 * (BATCH * HIDDEN * HIDDEN) as f64;
    let size = format!("{BATCH}x{HIDDEN}x{HIDDEN}");
    let operands = 2.0 * (BATCH * HIDDEN + HIDDEN * HIDDEN) as f64;
    let rows = (BATCH * HIDDEN) as f64;
    for (way, kernels) in kernels {
        for (name, form, what, bytes) in [
            ("nt", ProductForm::Nt, What::Store, 4.0 * rows),
            ("nt_silu", ProductForm::Nt, What::Silu, 6.0 * rows),
            ("nn", ProductForm::Nn, What::Store, 4.0 * rows),
            ("nn_silu_backward", ProductForm::Nn, What::SiluBackward, 6.0 * rows),
        ] {
            let times = sets.layer(timer, form, kernels, what)?;
            report.product(&format!("{name}/{size}"), way, operands + bytes, operations, times);
        }
        let times = sets.weight_gradient(timer, kernels)?;
        let bytes = 4.0 * rows + 4.0 * (HIDDEN * HIDDEN) as f64;
        report.product(&format!("tn/{HIDDEN}x{HIDDEN}x{BATCH}"), way, bytes, operations, times);
    }
    Ok(())
}

#[derive(Clone, Copy)]
enum What {
    Store,
    Silu,
    SiluBackward,
}

/// Operands and results, a set beside the other.
struct Sets {
    x: Buffer<u16>,
    dy: Buffer<u16>,
    weights: Buffer<u16>,
    bias: Buffer<f32>,
    c: Buffer<f32>,
    d: Buffer<u16>,
}

impl Sets {
    fn new(timer: &Timer) -> Result<Self, Failure> {
        let (rows, weights) = (BATCH * HIDDEN * N_SETS, HIDDEN * HIDDEN * N_SETS);
        Ok(Self {
            x: timer.upload(&random_operands(rows, 1))?,
            dy: timer.upload(&random_operands(rows, 2))?,
            weights: timer.upload(&random_operands(weights, 3))?,
            bias: timer.random(HIDDEN)?,
            c: timer.random(rows)?,
            d: timer.zeroed(rows)?,
        })
    }

    fn layer(&self, timer: &Timer, form: ProductForm, kernels: Bf16Kernels, what: What) -> Result<Times, Failure> {
        let hidden = HIDDEN as u32;
        let product = Product {
            m: BATCH as u32,
            n: hidden,
            k: hidden,
            a_stride: hidden,
            b_stride: hidden,
            c_stride: hidden,
            d_stride: hidden,
            ..Product::default()
        };
        let matmul = Matmul::new(timer.device(), form, Precision::Bf16, vec![product])?.by(kernels);
        let pass = |set: usize| -> Pass {
            let rows = set * BATCH * HIDDEN..(set + 1) * BATCH * HIDDEN;
            let weights = self.weights.slice(set * HIDDEN * HIDDEN..(set + 1) * HIDDEN * HIDDEN);
            let (c, d) = (self.c.slice(rows.clone()), self.d.slice(rows.clone()));
            let output = match what {
                What::Store => Output::Store(c, None),
                What::Silu => Output::Silu { c, d, bias: self.bias.all() },
                What::SiluBackward => Output::SiluBackward { c, d },
            };
            let (shape, launch, _) = matmul.kernel(self.x.slice(rows), weights, output);
            vec![(shape, launch)]
        };
        Ok(timer.time(pass)?)
    }

    fn weight_gradient(&self, timer: &Timer, kernels: Bf16Kernels) -> Result<Times, Failure> {
        let hidden = HIDDEN as u32;
        let product = Product {
            m: hidden,
            n: hidden,
            k: BATCH as u32,
            a_stride: hidden,
            b_stride: hidden,
            c_stride: hidden,
            ..Product::default()
        };
        let part_len = HIDDEN * HIDDEN;
        let form = ProductForm::Tn;
        let (n_parts, distance) = (N_PARTS as u32, part_len as u32);
        let matmul =
            Matmul::in_parts(timer.device(), form, Precision::Bf16, vec![product], n_parts, distance)?.by(kernels);
        let (gradient, none) = (timer.zeroed::<f32>(part_len)?, timer.zeroed::<f32>(0)?);
        let pass = |set: usize| -> Pass {
            let rows = set * BATCH * HIDDEN..(set + 1) * BATCH * HIDDEN;
            let parts = || self.c.slice(set * N_PARTS * part_len..(set + 1) * N_PARTS * part_len);
            let output = Output::Store(parts(), None);
            let (shape, launch, _) = matmul.kernel(self.dy.slice(rows.clone()), self.x.slice(rows), output);
            let table = matmul.table().view();
            let sum = sum_parts::launch(table, parts().view(), none.view(), gradient.view_mut(), distance);
            vec![(shape, launch), (sum_parts_shape(part_len, 1), sum)]
        };
        Ok(timer.time(pass)?)
    }
}

/// bf16 in [-1, 1).
fn random_operands(n: usize, seed: u32) -> Vec<u16> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
        bf16::from_f32((state >> 8) as f32 / 8_388_608.0 - 1.0).to_bits()
    };
    (0..n).map(|_| next()).collect()
}
