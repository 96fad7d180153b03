//! What stands for the kernels on the CPU: a library's products.

use std::cell::RefCell;

use bytemuck::Pod;
use cuda_std::launch::Claim;
use gemm::Parallelism;
use gpu_kernels::math;
use half::bf16;
use shared_types::{Epilogue, Precision, Product, ProductForm};

/// Multiplications of a product from which it is worth more than one thread.
const WORTH_SPREADING: usize = 1 << 21;

/// The elements of a claim.
///
/// # Safety
/// The memory is alive, holds values of `T`, and nothing writes it meanwhile.
unsafe fn elements<T: Pod>(claim: &Claim) -> &[T] {
    let len = claim.range.bytes() / size_of::<T>();
    // SAFETY: the caller's promise; allocations are aligned to 256 bytes and parts to elements.
    unsafe { std::slice::from_raw_parts(claim.range.address() as *const T, len) }
}

/// The elements of a claim, to write.
///
/// # Safety
/// As for [`elements`], and nothing else reaches the memory meanwhile.
#[expect(clippy::mut_from_ref, reason = "the claim stands for the memory, which no reference covers")]
unsafe fn elements_mut<T: Pod>(claim: &Claim) -> &mut [T] {
    let len = claim.range.bytes() / size_of::<T>();
    // SAFETY: the caller's promise; alignment as above.
    unsafe { std::slice::from_raw_parts_mut(claim.range.address() as *mut T, len) }
}

/// Makes the products over a launch's claims.
pub(super) fn on_cpu(
    claims: &[Claim],
    form: ProductForm,
    precision: Precision,
    epilogue: Epilogue,
    products: &[Product],
    n_parts: usize,
    part_len: usize,
) {
    let [a, b, _, bias, c, d] = claims else { unreachable!("a product has six buffers") };
    // SAFETY: the launch keeps the memory alive, its claims do not overlap where one writes, and launches of the CPU exclude
    // each other; all are plain numbers.
    let (a, b, bias, c, d) = unsafe {
        (elements::<u16>(a), elements::<u16>(b), elements::<f32>(bias), elements_mut::<f32>(c), elements_mut::<u16>(d))
    };
    if n_parts > 1 {
        c[part_len..].fill(0.0);
    }
    SCRATCH.with_borrow_mut(|scratch| {
        for p in products {
            scratch.multiply(form, precision, p, a, b);
            finish(epilogue, precision, p, &scratch.product, bias, c, d);
        }
    });
}

thread_local! {
    /// Kept from launch to launch, so that a step allocates nothing once it has run.
    static SCRATCH: RefCell<Scratch> = RefCell::default();
}

/// Operands and result of a product, dense.
#[derive(Default)]
struct Scratch {
    a: Vec<f32>,
    b: Vec<f32>,
    product: Vec<f32>,
}

impl Scratch {
    fn multiply(&mut self, form: ProductForm, precision: Precision, p: &Product, a: &[u16], b: &[u16]) {
        let (m, n, k) = (p.m as usize, p.n as usize, p.k as usize);
        let (a_across, b_across) = (form == ProductForm::Tn, form != ProductForm::Nt);
        let (a_rows, a_columns) = if a_across { (k, m) } else { (m, k) };
        let (b_rows, b_columns) = if b_across { (k, n) } else { (n, k) };
        densify(&mut self.a, a, p.a as usize, p.a_stride as usize, a_rows, a_columns, precision);
        densify(&mut self.b, b, p.b as usize, p.b_stride as usize, b_rows, b_columns, precision);
        self.product.resize(m * n, 0.0);
        let (a_row_step, a_column_step) = if a_across { (1, m) } else { (k, 1) };
        let (b_row_step, b_column_step) = if b_across { (n, 1) } else { (1, k) };
        let parallelism = if m * n * k >= WORTH_SPREADING { Parallelism::Rayon(0) } else { Parallelism::None };
        // SAFETY: `a` is m k, `b` k n and `product` m n dense elements, with the steps that their forms have.
        unsafe {
            gemm::gemm(
                m,
                n,
                k,
                self.product.as_mut_ptr(),
                1,
                n as isize,
                false,
                self.a.as_ptr(),
                a_column_step as isize,
                a_row_step as isize,
                self.b.as_ptr(),
                b_column_step as isize,
                b_row_step as isize,
                0.0,
                1.0,
                false,
                false,
                false,
                parallelism,
            );
        }
    }
}

fn finish(
    epilogue: Epilogue,
    precision: Precision,
    p: &Product,
    product: &[f32],
    bias: &[f32],
    c: &mut [f32],
    d: &mut [u16],
) {
    for (row, sums) in product.chunks_exact(p.n.max(1) as usize).enumerate() {
        let at_c = p.c as usize + row * p.c_stride as usize;
        let at_d = p.d as usize + row * p.d_stride as usize;
        for (column, &sum) in sums.iter().enumerate() {
            let biased = || if bias.is_empty() { sum } else { sum + bias[p.bias as usize + column] };
            match epilogue {
                Epilogue::Store => c[at_c + column] = biased(),
                Epilogue::Add => c[at_c + column] += sum,
                Epilogue::Silu => {
                    c[at_c + column] = biased();
                    put(d, at_d + column, math::silu(c[at_c + column]), precision);
                }
                Epilogue::SiluBackward => {
                    put(d, at_d + column, sum * math::silu_slope(c[at_c + column]), precision);
                }
            }
        }
    }
}

/// Copies a stored matrix into `values` as dense f32.
fn densify(
    values: &mut Vec<f32>,
    words: &[u16],
    first: usize,
    stride: usize,
    n_rows: usize,
    n_columns: usize,
    precision: Precision,
) {
    values.clear();
    for row in 0..n_rows {
        let at = first + row * stride;
        match precision {
            Precision::Bf16 => {
                let row = &words[at..at + n_columns];
                values.extend(row.iter().map(|&bits| f32::from_bits(u32::from(bits) << 16)));
            }
            Precision::F32 => {
                let row = &words[2 * at..2 * (at + n_columns)];
                let joined = |pair: &[u16]| f32::from_bits(u32::from(pair[0]) | u32::from(pair[1]) << 16);
                values.extend(row.chunks_exact(2).map(joined));
            }
        }
    }
}

fn put(words: &mut [u16], at: usize, value: f32, precision: Precision) {
    match precision {
        Precision::Bf16 => words[at] = bf16::from_f32(value).to_bits(),
        Precision::F32 => {
            let bits = value.to_bits();
            words[2 * at..2 * at + 2].copy_from_slice(&[bits as u16, (bits >> 16) as u16]);
        }
    }
}
