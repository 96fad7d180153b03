//! Matrix products: the tensor-core kernels on a GPU, a library's products on the CPU, behind one call.

mod library;

use std::collections::HashSet;

use cuda_std::launch::Launch;
use cuda_std::shape::LaunchShape;
use gpu_kernels::matmul::{
    WgmmaTile, matmul_f32, matmul_f32_shape, matmul_nn, matmul_nn_wgmma_128, matmul_nn_wgmma_256, matmul_nt,
    matmul_nt_wgmma_128, matmul_nt_wgmma_256, matmul_shape, matmul_tn, matmul_tn_wgmma_128, matmul_tn_wgmma_256,
    matmul_wgmma_shape,
};
use shared_types::{Epilogue, Precision, Product, ProductForm};

use super::{Buffer, Device, Part};
use crate::error::DeviceError;

/// Products that one launch makes, all of one form.
pub struct Matmul {
    form: ProductForm,
    precision: Precision,
    kernels: Bf16Kernels,
    list: Vec<Product>,
    table: Buffer<Product>,
    /// Parts that each sum is cut into.
    n_parts: u32,
    /// Distance of the parts in C, elements.
    part_len: u32,
    no_floats: Buffer<f32>,
    no_words: Buffer<u16>,
}

/// The kernels for bf16 operands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bf16Kernels {
    /// `mma.sync`: on every GPU.
    Mma,
    /// `wgmma`, where the device runs the sm_90a image.
    Wgmma(WgmmaTile),
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
        let tile = || WgmmaTile::for_products(list.iter().map(|p| (p.m, p.n)), n_parts);
        let kernels = if device.runs_sm_90a() { Bf16Kernels::Wgmma(tile()) } else { Bf16Kernels::Mma };
        Ok(Self { form, precision, kernels, list, table, n_parts, part_len, no_floats, no_words })
    }

    /// The same by these kernels instead of those that suit device and sizes, to compare them.
    #[must_use]
    pub fn by(self, kernels: Bf16Kernels) -> Self {
        Self { kernels, ..self }
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
            launch.on_cpu(move |claims| library::on_cpu(claims, form, precision, epilogue, &list, n_parts, part_len))
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
        let shape = match self.kernels {
            Bf16Kernels::Mma => matmul_shape(m, n, n_products, n_parts),
            Bf16Kernels::Wgmma(tile) => matmul_wgmma_shape(tile, m, n, n_products, n_parts),
        };
        // The kernels differ in their names alone.
        macro_rules! launch {
            ($kernel:ident) => {
                // SAFETY: the products lie inside their operands, whose rows begin at 16 bytes; what pads a row of A is zero,
                // as every kernel that writes operands leaves it.
                unsafe { $kernel::launch(a, b, table, bias, c, d, epilogue, n_parts, part_len) }
            };
        }
        use Bf16Kernels::{Mma, Wgmma};
        use ProductForm::{Nn, Nt, Tn};
        use WgmmaTile::{Columns128, Columns256};
        let launch = match (self.form, self.kernels) {
            (Nt, Mma) => launch!(matmul_nt),
            (Nn, Mma) => launch!(matmul_nn),
            (Tn, Mma) => launch!(matmul_tn),
            (Nt, Wgmma(Columns128)) => launch!(matmul_nt_wgmma_128),
            (Nn, Wgmma(Columns128)) => launch!(matmul_nn_wgmma_128),
            (Tn, Wgmma(Columns128)) => launch!(matmul_tn_wgmma_128),
            (Nt, Wgmma(Columns256)) => launch!(matmul_nt_wgmma_256),
            (Nn, Wgmma(Columns256)) => launch!(matmul_nn_wgmma_256),
            (Tn, Wgmma(Columns256)) => launch!(matmul_tn_wgmma_256),
        };
        (shape, self.with_work(launch, epilogue, has_bias), epilogue)
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
