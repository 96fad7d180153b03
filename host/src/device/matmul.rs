//! Matrix products: the tensor-core kernels on a GPU, a library's products on the CPU, behind one call.

use std::cell::RefCell;
use std::collections::HashSet;

use bytemuck::Pod;
use cuda_std::launch::{Claim, Launch};
use cuda_std::shape::LaunchShape;
use gemm::Parallelism;
use gpu_kernels::math;
use gpu_kernels::matmul::{matmul_f32, matmul_f32_shape, matmul_nn, matmul_nt, matmul_shape, matmul_tn};
use half::bf16;
use shared_types::{Epilogue, Precision, Product, ProductForm};

use super::{Buffer, Device, Part};
use crate::error::DeviceError;

/// Multiplications of a product from which it is worth more than one thread.
const WORTH_SPREADING: usize = 1 << 21;

/// Products that one launch makes, all of one form.
pub struct Matmul {
    form: ProductForm,
    precision: Precision,
    list: Vec<Product>,
    table: Buffer<Product>,
    /// Parts that each sum is cut into.
    n_parts: u32,
    /// Distance of the parts in C, elements.
    part_len: u32,
    no_floats: Buffer<f32>,
    no_words: Buffer<u16>,
}

/// Where results go.
pub enum Output<'a> {
    /// C = A B + bias; no bias if there is none.
    Store(Part<'a, f32>, Option<Part<'a, f32>>),
    /// C += A B.
    Add(Part<'a, f32>),
    /// C = A B + bias, and SiLU(C) as an operand.
    Silu {
        /// C.
        c: Part<'a, f32>,
        /// SiLU(C).
        d: Part<'a, u16>,
        /// The bias.
        bias: Part<'a, f32>,
    },
    /// A B SiLU'(C) as an operand.
    SiluBackward {
        /// C, read.
        c: Part<'a, f32>,
        /// The result.
        d: Part<'a, u16>,
    },
}

impl Matmul {
    /// Takes the list of products to the device. Operands are of `precision`.
    pub fn new(
        device: &Device,
        form: ProductForm,
        precision: Precision,
        list: Vec<Product>,
    ) -> Result<Self, DeviceError> {
        Self::in_parts(device, form, precision, list, 1, 0)
    }

    /// The same with every sum cut into `n_parts`, of which part p is stored at C + p `part_len`: more blocks for few, long
    /// sums. [`gpu_kernels::matmul::sum_parts()`] adds them.
    pub fn in_parts(
        device: &Device,
        form: ProductForm,
        precision: Precision,
        list: Vec<Product>,
        n_parts: u32,
        part_len: u32,
    ) -> Result<Self, DeviceError> {
        assert!(!list.is_empty() && n_parts > 0, "{} products in {n_parts} parts", list.len());
        for p in &list {
            let starts = [p.a, p.a_stride, p.b, p.b_stride];
            assert!(starts.iter().all(|at| at.is_multiple_of(8)), "an operand's row begins at 16 bytes: {p:?}");
        }
        let table = device.upload(&list)?;
        let (no_floats, no_words) = (device.alloc(0)?, device.alloc(0)?);
        Ok(Self { form, precision, list, table, n_parts, part_len, no_floats, no_words })
    }

    /// The products.
    pub fn products(&self) -> &[Product] {
        &self.list
    }

    /// The products on the device.
    pub fn table(&self) -> &Buffer<Product> {
        &self.table
    }

    /// A launch over operands in `a` and `b`; on the CPU it runs a library's products.
    pub fn launch(&self, a: Part<'_, u16>, b: Part<'_, u16>, output: Output<'_>) -> (LaunchShape, Launch) {
        let (shape, launch, epilogue) = self.kernel(a, b, output);
        let (form, precision, list) = (self.form, self.precision, self.list.clone());
        // SAFETY: `on_cpu` reaches what the products name inside the claimed buffers, by checked slices, and writes C and D
        // alone; one part has all of the sums, and the others are set to zero, as empty sums are.
        let launch = unsafe {
            let (n_parts, part_len) = (self.n_parts as usize, self.part_len as usize);
            launch.on_cpu(move |claims| on_cpu(claims, form, precision, epilogue, &list, n_parts, part_len))
        };
        (shape, launch)
    }

    /// The kernel's launch, on every device.
    pub fn kernel(&self, a: Part<'_, u16>, b: Part<'_, u16>, output: Output<'_>) -> (LaunchShape, Launch, Epilogue) {
        let (none, no_words) = (self.no_floats.all(), self.no_words.all());
        let (epilogue, c, d, bias) = match output {
            Output::Store(c, bias) => (Epilogue::Store, c, no_words, bias.unwrap_or(none)),
            Output::Add(c) => (Epilogue::Add, c, no_words, none),
            Output::Silu { c, d, bias } => (Epilogue::Silu, c, d, bias),
            Output::SiluBackward { c, d } => (Epilogue::SiluBackward, c, d, none),
        };
        if matches!(epilogue, Epilogue::Silu | Epilogue::SiluBackward) {
            let by_fours = self.list.iter().all(|p| (p.d | p.d_stride).is_multiple_of(4));
            assert!(by_fours, "a row of operands begins at a multiple of 4, and is written by fours");
        }
        let has_bias = !bias.is_empty();
        let (m, n) = (self.largest(|p| p.m), self.largest(|p| p.n));
        let (table, n_products, n_parts) = (self.table.view(), self.list.len() as u32, self.n_parts);
        let (bias, c, d, part_len) = (bias.view(), c.view_mut(), d.view_mut(), self.part_len);
        if self.precision == Precision::F32 {
            let (a, b, form) = (a.view(), b.view(), self.form);
            let launch = matmul_f32::launch(a, b, table, bias, c, d, form, epilogue, n_parts, part_len);
            let launch = self.with_work(launch, epilogue, has_bias);
            return (matmul_f32_shape(m, n, n_products, n_parts), launch, epilogue);
        }
        let (a, b) = (a.ptr(), b.ptr());
        // SAFETY: the products lie inside their operands, whose rows begin at 16 bytes; what pads a row of A is zero, as
        // every kernel that writes operands leaves it.
        let launch = unsafe {
            match self.form {
                ProductForm::Nt => matmul_nt::launch(a, b, table, bias, c, d, epilogue, n_parts, part_len),
                ProductForm::Nn => matmul_nn::launch(a, b, table, bias, c, d, epilogue, n_parts, part_len),
                ProductForm::Tn => matmul_tn::launch(a, b, table, bias, c, d, epilogue, n_parts, part_len),
            }
        };
        (matmul_shape(m, n, n_products, n_parts), self.with_work(launch, epilogue, has_bias), epilogue)
    }

    /// The launch with what its products touch: their buffers hold more. An operand that several take moves once.
    fn with_work(&self, launch: Launch, epilogue: Epilogue, has_bias: bool) -> Launch {
        let list = || self.list.iter();
        let product = |p: &Product| p.m as usize * p.n as usize;
        let a: HashSet<_> = list().map(|p| (p.a, p.a_stride, p.m, p.k)).collect();
        let b: HashSet<_> = list().map(|p| (p.b, p.b_stride, p.n, p.k)).collect();
        let operand = self.precision.words() * size_of::<u16>();
        let of_operand = |operands: HashSet<(u32, u32, u32, u32)>| -> usize {
            operands.iter().map(|&(_, _, rows, columns)| operand * rows as usize * columns as usize).sum()
        };
        let results: usize = list().map(product).sum();
        let biases: usize = list().map(|p| p.n as usize).sum();
        let (c, d) = match epilogue {
            Epilogue::Store => (results * self.n_parts as usize, 0),
            // Read, and written.
            Epilogue::Add => (2 * results, 0),
            Epilogue::Silu | Epilogue::SiluBackward => (results, results),
        };
        launch
            .moves("a", of_operand(a))
            .moves("b", of_operand(b))
            .moves("bias", if has_bias { size_of::<f32>() * biases } else { 0 })
            .moves("c", size_of::<f32>() * c)
            .moves("d", operand * d)
            .multiplies(list().map(|p| 2 * product(p) as u64 * u64::from(p.k)).sum())
    }

    fn largest(&self, extent: impl Fn(&Product) -> u32) -> u32 {
        self.list.iter().map(extent).max().unwrap_or(0)
    }
}

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

fn on_cpu(
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
