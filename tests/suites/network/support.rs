//! What the network's tests share: operands, random matrices, bounds element by element.

use host::device::Buffer;
use host::error::DeviceError;
use onegraph_tests::lab::{Lab, Numbers, Tolerance};
use onegraph_tests::{Failed, ensure};
use reference::matrix::Matrix;
use shared_types::Precision;

/// Rounding of f32: half the distance of two numbers around 1.
pub const UNIT: f64 = 1.0 / (1u64 << 24) as f64;
/// Rounding of bf16, likewise: 8 bits with the leading one.
pub const UNIT_BF16: f64 = 1.0 / (1u64 << 8) as f64;
/// Widths of the trunk: the smallest with 8 groups, those of the presets.
pub const WIDTHS: [usize; 4] = [8, 32, 64, 512];
/// Rows: less than a warp's lanes, about as many, more than blocks of 8 rows.
pub const N_ROWS: [usize; 4] = [1, 3, 33, 257];
/// Both ways of keeping operands.
pub const PRECISIONS: [Precision; 2] = [Precision::Bf16, Precision::F32];

/// Error of an operand beside the value it was made of, relative.
pub fn operand_unit(precision: Precision) -> f64 {
    match precision {
        Precision::Bf16 => UNIT_BF16,
        Precision::F32 => 0.0,
    }
}

/// The reference's name of a precision.
pub fn of_reference(precision: Precision) -> reference::precision::Precision {
    match precision {
        Precision::Bf16 => reference::precision::Precision::Bf16,
        Precision::F32 => reference::precision::Precision::Exact,
    }
}

/// Relative error of a root mean square over `width` columns: a lane adds at most width / 4 squares a component, and 7 levels
/// combine components and lanes; the root halves that, and the quotient, the root and the reciprocal round.
pub fn rms_error(width: usize) -> f64 {
    ((width / 4 + 8) as f64 / 2.0 + 4.0) * UNIT
}

/// An output of operands in which an element that nothing writes stays NaN.
pub fn poisoned_operands(lab: &Lab, n: usize, precision: Precision) -> Result<Buffer<u16>, DeviceError> {
    lab.upload(&vec![0x7fc0u16; n * precision.words()])
}

/// Operands as numbers.
pub fn decoded(words: &[u16], precision: Precision) -> Vec<f32> {
    match precision {
        Precision::Bf16 => words.iter().map(|&word| f32::from_bits(u32::from(word) << 16)).collect(),
        Precision::F32 => {
            words.chunks_exact(2).map(|pair| f32::from_bits(u32::from(pair[0]) | u32::from(pair[1]) << 16)).collect()
        }
    }
}

/// Numbers as operands.
pub fn encoded(values: &[f32], precision: Precision) -> Vec<u16> {
    match precision {
        Precision::Bf16 => values.iter().map(|&value| half::bf16::from_f32(value).to_bits()).collect(),
        Precision::F32 => {
            values.iter().flat_map(|value| [value.to_bits() as u16, (value.to_bits() >> 16) as u16]).collect()
        }
    }
}

/// About normal, times `scale`.
pub fn normals(numbers: &mut Numbers, n: usize, scale: f64) -> Vec<f32> {
    (0..n).map(|_| (scale * ((0..12).map(|_| numbers.unit()).sum::<f64>() - 6.0)) as f32).collect()
}

/// In f64.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// In f32, rounded.
pub fn narrow(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| value as f32).collect()
}

/// A matrix of `n_cols` columns.
pub fn matrix(values: &[f32], n_cols: usize) -> Matrix {
    Matrix::from_values(values.len() / n_cols, n_cols, wide(values))
}

/// Compares all elements, each with its own bound; prints the largest share of a bound that was used.
pub fn within(what: &str, got: &[f32], want: &[f64], bounds: &[f64]) -> Result<(), Failed> {
    ensure!(
        got.len() == want.len() && got.len() == bounds.len(),
        "{what}: {} elements, {} expected, {} bounds",
        got.len(),
        want.len(),
        bounds.len()
    );
    // The difference in units of the bound, as f32: its own rounding is far below the bound.
    let shares: Vec<f32> = (0..got.len())
        .map(|i| if f64::from(got[i]) == want[i] { 0.0 } else { ((f64::from(got[i]) - want[i]) / bounds[i]) as f32 })
        .collect();
    Tolerance { absolute: 1.0, relative: 0.0 }.check(what, &shares, &vec![0.0; shares.len()]).map_err(|failed| {
        let worst = (0..shares.len()).find(|&i| shares[i].is_nan() || shares[i].abs() > 1.0).unwrap_or(0);
        let message = failed.message().unwrap_or("failed").to_owned();
        Failed::from(format!("{message}\nfirst: element {worst} is {}, {} expected", got[worst], want[worst]))
    })
}
