//! Matrix products against f64, by the kernels on every device and by the library that stands in for them on the CPU.

use half::bf16;
use host::device::{Bf16Kernels, Buffer, Device, Matmul, Output};
use onegraph_tests::ensure;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, host_case};
use shared_types::{Precision, Product, ProductForm};

use gpu_kernels::matmul::{WgmmaTile, sum_parts, sum_parts_shape};

const FORMS: [ProductForm; 3] = [ProductForm::Nt, ProductForm::Nn, ProductForm::Tn];
const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];

pub fn cases() -> Vec<Case> {
    vec![
        case("matmul::every_form_and_epilogue_at_odd_sizes", every_form_and_epilogue_at_odd_sizes),
        case("matmul::several_products_share_a_launch", several_products_share_a_launch),
        case("matmul::sums_in_parts_add_up", sums_in_parts_add_up),
        case("matmul::identity_gives_back_the_operand", identity_gives_back_the_operand),
        case("matmul::tiles_and_stages_end_where_they_should", tiles_and_stages_end_where_they_should),
        host_case("matmul::wide_tiles_are_for_a_full_wave", wide_tiles_are_for_a_full_wave),
    ]
}

/// The kernels for bf16 operands that the device runs; on the CPU all of them, by the executor.
fn bf16_kernels(device: &Device) -> Vec<Bf16Kernels> {
    let mut kernels = vec![Bf16Kernels::Mma];
    if device.backend_name() == "cpu" || device.runs_sm_90a() {
        kernels.extend([WgmmaTile::Columns128, WgmmaTile::Columns256].map(Bf16Kernels::Wgmma));
    }
    kernels
}

/// How products are made: by the device's choice, which on the CPU is the library (none), and by each kernel.
fn ways(device: &Device, precision: Precision) -> Vec<Option<Bf16Kernels>> {
    let kernels = match precision {
        Precision::Bf16 => bf16_kernels(device),
        Precision::F32 => vec![Bf16Kernels::Mma],
    };
    std::iter::once(None).chain(kernels.into_iter().map(Some)).collect()
}

/// `matmul`, run this way.
fn by(matmul: Matmul, way: Option<Bf16Kernels>) -> Matmul {
    match way {
        Some(kernels) => matmul.by(kernels),
        None => matmul,
    }
}

/// An operand matrix: stored rows, padded with zeros to `stride`, as f64 what the product sees.
struct Operand {
    values: Vec<f64>,
    words: Vec<u16>,
    stride: usize,
}

impl Operand {
    fn new(numbers: &mut Numbers, n_rows: usize, n_columns: usize, precision: Precision) -> Self {
        let stride = n_columns.div_ceil(8) * 8;
        let mut values = vec![0.0; n_rows * stride];
        for row in 0..n_rows {
            for column in 0..n_columns {
                let value = (2.0 * numbers.unit() - 1.0) as f32;
                values[row * stride + column] = f64::from(match precision {
                    Precision::Bf16 => bf16::from_f32(value).to_f32(),
                    Precision::F32 => value,
                });
            }
        }
        let word = |&value: &f64| match precision {
            Precision::Bf16 => vec![bf16::from_f64(value).to_bits()],
            Precision::F32 => {
                let bits = (value as f32).to_bits();
                vec![bits as u16, (bits >> 16) as u16]
            }
        };
        let words = values.iter().flat_map(word).collect();
        Self { values, words, stride }
    }

    fn at(&self, row: usize, column: usize) -> f64 {
        self.values[row * self.stride + column]
    }
}

struct Problem {
    a: Operand,
    b: Operand,
    product: Product,
    form: ProductForm,
}

impl Problem {
    fn new(numbers: &mut Numbers, form: ProductForm, [m, n, k]: [usize; 3], precision: Precision) -> Self {
        let (a_rows, a_columns) = if form == ProductForm::Tn { (k, m) } else { (m, k) };
        let (b_rows, b_columns) = if form == ProductForm::Nt { (n, k) } else { (k, n) };
        let a = Operand::new(numbers, a_rows, a_columns, precision);
        let b = Operand::new(numbers, b_rows, b_columns, precision);
        let product = Product {
            m: m as u32,
            n: n as u32,
            k: k as u32,
            a_stride: a.stride as u32,
            b_stride: b.stride as u32,
            c_stride: n as u32,
            d_stride: n.next_multiple_of(4) as u32,
            ..Product::default()
        };
        Self { a, b, product, form }
    }

    /// (sum, sum of magnitudes) of element (row, column).
    fn sum(&self, row: usize, column: usize) -> (f64, f64) {
        let (mut sum, mut magnitude) = (0.0, 0.0);
        for k in 0..self.product.k as usize {
            let a = if self.form == ProductForm::Tn { self.a.at(k, row) } else { self.a.at(row, k) };
            let b = if self.form == ProductForm::Nt { self.b.at(column, k) } else { self.b.at(k, column) };
            sum += a * b;
            magnitude += (a * b).abs();
        }
        (sum, magnitude)
    }

    /// Error that a sum in f32 may have: k roundings of 2^-23 each (the tensor core's adder truncates), on the magnitudes.
    fn slack(&self, magnitude: f64) -> f64 {
        (self.product.k as f64 + 2.0) * 2f64.powi(-23) * magnitude + 1e-30
    }
}

fn silu(x: f64) -> f64 {
    x / (1.0 + (-x).exp())
}

fn silu_slope(x: f64) -> f64 {
    let s = 1.0 / (1.0 + (-x).exp());
    s * (1.0 + x * (1.0 - s))
}

/// An operand result as numbers.
fn read(words: &[u16], precision: Precision) -> Vec<f64> {
    match precision {
        Precision::Bf16 => words.iter().map(|&bits| bf16::from_bits(bits).to_f64()).collect(),
        Precision::F32 => {
            let joined = |pair: &[u16]| f32::from_bits(u32::from(pair[0]) | u32::from(pair[1]) << 16);
            words.chunks_exact(2).map(|pair| f64::from(joined(pair))).collect()
        }
    }
}

/// Half a unit of the operand's last place, relative.
fn rounding(precision: Precision) -> f64 {
    match precision {
        Precision::Bf16 => 2f64.powi(-8),
        Precision::F32 => 2f64.powi(-23),
    }
}

/// Sizes around a warp's fragments, a tile and two tiles; multiples of nothing where an operand allows it.
const SIZES: [[usize; 3]; 6] = [[1, 1, 1], [3, 5, 7], [33, 17, 40], [130, 9, 33], [65, 131, 96], [128, 128, 64]];

fn every_form_and_epilogue_at_odd_sizes(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(1);
    for form in FORMS {
        for precision in PRECISIONS {
            for size in SIZES {
                let problem = Problem::new(&mut numbers, form, size, precision);
                let on_device = Loaded::new(&lab, &problem, precision)?;
                for way in ways(device, precision) {
                    let matmul = by(Matmul::new(device, form, precision, vec![problem.product])?, way);
                    on_device.check(&lab, &matmul, &problem, precision, way, &mut numbers)?;
                }
            }
        }
    }
    Ok(())
}

/// A problem's operands on the device.
struct Loaded {
    a: Buffer<u16>,
    b: Buffer<u16>,
}

impl Loaded {
    fn new(lab: &Lab<'_>, problem: &Problem, _: Precision) -> Result<Self, onegraph_tests::Failed> {
        Ok(Self { a: lab.upload(&problem.a.words)?, b: lab.upload(&problem.b.words)? })
    }

    fn run(&self, lab: &Lab<'_>, matmul: &Matmul, output: Output<'_>, way: Option<Bf16Kernels>) -> Outcome {
        if way.is_none() {
            let (shape, launch) = matmul.launch(self.a.all(), self.b.all(), output);
            lab.run(shape, launch)?;
        } else {
            let (shape, launch, _) = matmul.kernel(self.a.all(), self.b.all(), output);
            lab.run(shape, launch)?;
        }
        Ok(())
    }

    fn check(
        &self,
        lab: &Lab<'_>,
        matmul: &Matmul,
        problem: &Problem,
        precision: Precision,
        way: Option<Bf16Kernels>,
        numbers: &mut Numbers,
    ) -> Outcome {
        let (m, n) = (problem.product.m as usize, problem.product.n as usize);
        let what = format!("{:?} {precision:?} {m} x {n} x {} by {way:?}", problem.form, problem.product.k);
        let given: Vec<f32> = (0..m * n).map(|_| (4.0 * numbers.unit() - 2.0) as f32).collect();
        let bias: Vec<f32> = (0..n).map(|_| (4.0 * numbers.unit() - 2.0) as f32).collect();
        let bias_buffer = lab.upload(&bias)?;
        let operand = |value: f64, got: f64, slack: f64| {
            // SiLU and its slope change by at most 1.1 times their argument; exp is good to 2^-22.
            (got - value).abs() <= 1.2 * slack + (rounding(precision) + 2f64.powi(-21)) * value.abs() + 1e-6
        };

        let c = lab.poisoned(m * n)?;
        self.run(lab, matmul, Output::Store(c.all(), Some(bias_buffer.all())), way)?;
        let stored = c.read()?;
        let c = lab.upload(&given)?;
        self.run(lab, matmul, Output::Add(c.all()), way)?;
        let added = c.read()?;
        // Rows of operands are written by fours.
        let stride = n.next_multiple_of(4);
        let (c, d) = (lab.poisoned(m * n)?, lab.upload(&vec![0xffffu16; m * stride * precision.words()])?);
        self.run(lab, matmul, Output::Silu { c: c.all(), d: d.all(), bias: bias_buffer.all() }, way)?;
        let (pre, activated) = (c.read()?, read(&d.read()?, precision));
        let c = lab.upload(&given)?;
        self.run(lab, matmul, Output::SiluBackward { c: c.all(), d: d.all() }, way)?;
        let (kept, sloped) = (c.read()?, read(&d.read()?, precision));
        ensure!(kept == given, "{what}: C is read alone");
        for at in 0..m * n {
            let (sum, magnitude) = problem.sum(at / n, at % n);
            let (slack, bias) = (problem.slack(magnitude + 4.0), f64::from(bias[at % n]));
            let close = |got: f32, want: f64| (f64::from(got) - want).abs() <= slack;
            ensure!(close(stored[at], sum + bias), "{what}: C[{at}] = {}, {} expected", stored[at], sum + bias);
            let total = sum + f64::from(given[at]);
            ensure!(close(added[at], total), "{what}: C[{at}] = {}, {total} expected after adding", added[at]);
            ensure!(close(pre[at], sum + bias), "{what}: SiLU's argument {at}");
            let at_d = at / n * stride + at % n;
            let (want, got) = (silu(f64::from(pre[at])), activated[at_d]);
            ensure!(operand(want, got, 0.0), "{what}: SiLU {at} is {got}, {want} expected");
            let want = sum * silu_slope(f64::from(given[at]));
            ensure!(operand(want, sloped[at_d], slack), "{what}: SiLU' {at} is {}, {want} expected", sloped[at_d]);
        }
        Ok(())
    }
}

/// Three products of different sizes in one launch, side by side in one C with a stride, as the heads' outputs are.
fn several_products_share_a_launch(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(2);
    for precision in PRECISIONS {
        let widths = [20usize, 9, 13];
        let problems: Vec<Problem> =
            widths.iter().map(|&n| Problem::new(&mut numbers, ProductForm::Nt, [37, n, 24], precision)).collect();
        let (mut a, mut b, mut products, mut column) = (Vec::new(), Vec::new(), Vec::new(), 0);
        for problem in &problems {
            let words = precision.words();
            let product = Product {
                a: (a.len() / words) as u32,
                b: (b.len() / words) as u32,
                c: column,
                c_stride: 64,
                bias: column,
                ..problem.product
            };
            a.extend(&problem.a.words);
            b.extend(&problem.b.words);
            column += 20;
            products.push(product);
        }
        let (a, b, bias) = (lab.upload(&a)?, lab.upload(&b)?, lab.zeroed(64)?);
        for way in ways(device, precision) {
            let matmul = by(Matmul::new(device, ProductForm::Nt, precision, products.clone())?, way);
            let c = lab.poisoned(37 * 64)?;
            let output = Output::Store(c.all(), Some(bias.all()));
            let (shape, launch) = if way.is_none() {
                matmul.launch(a.all(), b.all(), output)
            } else {
                let (shape, launch, _) = matmul.kernel(a.all(), b.all(), output);
                (shape, launch)
            };
            lab.run(shape, launch)?;
            let got = c.read()?;
            for (problem, product) in problems.iter().zip(&products) {
                for (row, column) in (0..37).flat_map(|row| (0..product.n as usize).map(move |column| (row, column))) {
                    let (sum, magnitude) = problem.sum(row, column);
                    let value = f64::from(got[row * 64 + product.c as usize + column]);
                    ensure!((value - sum).abs() <= problem.slack(magnitude), "({row}, {column}) is {value}, not {sum}");
                }
            }
            ensure!(got[63].is_nan(), "a gap between products was written");
        }
    }
    Ok(())
}

/// dW of 300 rows in 1, 3 and 7 parts, times a factor.
fn sums_in_parts_add_up(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(3);
    for precision in PRECISIONS {
        let problem = Problem::new(&mut numbers, ProductForm::Tn, [24, 40, 300], precision);
        let loaded = Loaded::new(&lab, &problem, precision)?;
        for n_parts in [1u32, 3, 7] {
            let product = Product { d: 5, ..problem.product };
            let part_len = 24 * 40;
            for way in ways(device, precision) {
                let matmul =
                    Matmul::in_parts(device, ProductForm::Tn, precision, vec![product], n_parts, part_len as u32)?;
                let matmul = by(matmul, way);
                let parts = lab.poisoned(n_parts as usize * part_len)?;
                loaded.run(&lab, &matmul, Output::Store(parts.all(), None), way)?;
                let (out, factors) = (lab.poisoned(part_len + 6)?, lab.upload(&[0.5f32])?);
                let sum = sum_parts::launch(
                    matmul.table().view(),
                    parts.view(),
                    factors.view(),
                    out.view_mut(),
                    part_len as u32,
                );
                lab.run(sum_parts_shape(part_len, 1), sum)?;
                let got = out.read()?;
                ensure!(got[4].is_nan() && got[part_len + 5].is_nan(), "wrote beside its place");
                for at in 0..part_len {
                    let (sum, magnitude) = problem.sum(at / 40, at % 40);
                    let value = f64::from(got[5 + at]);
                    let (want, slack) = (0.5 * sum, problem.slack(magnitude));
                    ensure!((value - want).abs() <= slack, "{n_parts} parts: {at} is {value}, {want} expected");
                }
            }
        }
    }
    Ok(())
}

/// A times the identity is A exactly, in each form: every element is where it belongs.
fn identity_gives_back_the_operand(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let n = 136;
    for form in FORMS {
        for precision in PRECISIONS {
            let mut problem = Problem::new(&mut Numbers::new(4), form, [n, n, n], precision);
            problem.b.words.fill(0);
            let one = if precision == Precision::Bf16 { 0 } else { 1 };
            for at in 0..n {
                problem.b.words[(at * n + at) * precision.words() + one] = 0x3f80;
            }
            let loaded = Loaded::new(&lab, &problem, precision)?;
            for way in ways(device, precision).into_iter().filter(Option::is_some) {
                let c = lab.poisoned(n * n)?;
                let matmul = by(Matmul::new(device, form, precision, vec![problem.product])?, way);
                loaded.run(&lab, &matmul, Output::Store(c.all(), None), way)?;
                // A's element that belongs to an element of C.
                let want = |at: usize| {
                    let (row, column) = if form == ProductForm::Tn { (at % n, at / n) } else { (at / n, at % n) };
                    problem.a.at(row, column)
                };
                let got = c.read()?;
                let mut wrong = (0..n * n).filter(|&at| f64::from(got[at]) != want(at)).peekable();
                if wrong.peek().is_some() {
                    let of =
                        |at: usize| (0..n * n).find(|&of| want(of) == f64::from(got[at])).map(|of| (of / n, of % n));
                    let shown: Vec<_> = wrong.by_ref().take(12).map(|at| ((at / n, at % n), got[at], of(at))).collect();
                    let n_wrong = shown.len() + wrong.count();
                    return Err(Failed::from(format!(
                        "{form:?} {precision:?} by {way:?}: {n_wrong} of {} wrong: (row, column), value, whose place it \
                         belongs to: {shown:?}",
                        n * n
                    )));
                }
            }
        }
    }
    Ok(())
}

/// Around the tiles' 64 and 128 rows, 128 and 256 columns, 16, 32 and 64 of k, and the three or four that are in memory at once;
/// on a GPU also many blocks at once.
fn tiles_and_stages_end_where_they_should(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(5);
    let mut sizes = vec![
        [64, 8, 16],
        [64, 64, 64],
        [128, 128, 8],
        [128, 256, 64],
        [129, 257, 65],
        [63, 127, 128],
        [200, 136, 200],
        [72, 264, 328],
    ];
    if device.backend_name() == "cuda" {
        sizes.extend([[2048, 512, 512], [1000, 1000, 1000]]);
    }
    for form in FORMS {
        for &size in &sizes {
            let problem = Problem::new(&mut numbers, form, size, Precision::Bf16);
            let loaded = Loaded::new(&lab, &problem, Precision::Bf16)?;
            for kernels in bf16_kernels(device) {
                let [m, n, k] = size;
                let c = lab.poisoned(m * n)?;
                let matmul = Matmul::new(device, form, Precision::Bf16, vec![problem.product])?.by(kernels);
                loaded.run(&lab, &matmul, Output::Store(c.all(), None), Some(kernels))?;
                let got = c.read()?;
                // Every element of small products, some of each row and column of large ones.
                let step = if m * n * k > 1 << 24 { 61 } else { 1 };
                let mut wrong = Vec::new();
                for at in (0..m * n).filter(|at| at % step == 0 || got[*at].is_nan()) {
                    let (sum, magnitude) = problem.sum(at / n, at % n);
                    let off = (f64::from(got[at]) - sum).abs();
                    if off.is_nan() || off > problem.slack(magnitude) {
                        wrong.push((at / n, at % n, got[at], sum));
                    }
                }
                let rows = || wrong.iter().map(|(row, ..)| *row);
                let columns = || wrong.iter().map(|(_, column, ..)| *column);
                ensure!(
                    wrong.is_empty(),
                    "{form:?} {m} x {n} x {k} by {kernels:?}: {} wrong, in rows {:?} to {:?} and columns {:?} to {:?}; \
                     (row, column, got, want): {:?}",
                    wrong.len(),
                    rows().min(),
                    rows().max(),
                    columns().min(),
                    columns().max(),
                    &wrong[..wrong.len().min(12)]
                );
            }
        }
    }
    Ok(())
}

/// Of products of `full`: 8,192 rows by 512 make 128 wide tiles; by 128, or 512 rows in one part, too few; 384 columns fill one
/// and a half.
fn wide_tiles_are_for_a_full_wave() -> Outcome {
    let tile = |sizes: &[(u32, u32)], n_parts| WgmmaTile::for_products(sizes.iter().copied(), n_parts);
    assert_eq!(tile(&[(8192, 512)], 1), WgmmaTile::Columns256);
    assert_eq!(tile(&[(512, 512)], 16), WgmmaTile::Columns256);
    assert_eq!(tile(&[(8192, 128); 4], 1), WgmmaTile::Columns128);
    assert_eq!(tile(&[(512, 512)], 1), WgmmaTile::Columns128);
    assert_eq!(tile(&[(8192, 384)], 1), WgmmaTile::Columns128);
    Ok(())
}
