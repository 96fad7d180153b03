//! `trunk_entry`.

use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::forward::trunk_entry;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case};
use reference::activation::silu;
use reference::norm::rms_norm;
use shared_types::Precision;

use super::support::{
    N_ROWS, PRECISIONS, UNIT, WIDTHS, decoded, matrix, normals, operand_unit, poisoned_operands, rms_error, wide,
    within,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("entry::follows_the_reference_at_every_size", follows_the_reference_at_every_size),
        case("entry::tiny_and_huge_rows", tiny_and_huge_rows),
        case("entry::a_nan_or_an_infinity_stays_in_its_row", a_nan_or_an_infinity_stays_in_its_row),
        case("entry::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

/// Inputs of the trunk's entry.
pub struct Entry {
    pub pre_in: Vec<f32>,
    pub gain_in: Vec<f32>,
    pub film: Vec<f32>,
    pub next_gain: Vec<f32>,
}

impl Entry {
    /// Random ones; rows of pre_in are about `scale`.
    pub fn random(n_rows: usize, width: usize, scale: f64) -> Self {
        let mut numbers = Numbers::new((n_rows * 1000 + width) as u64);
        let near_one = |numbers: &mut Numbers| normals(numbers, width, 0.3).into_iter().map(|x| 1.0 + x).collect();
        Self {
            pre_in: normals(&mut numbers, n_rows * width, scale),
            gain_in: near_one(&mut numbers),
            film: normals(&mut numbers, 2 * width, 0.5),
            next_gain: near_one(&mut numbers),
        }
    }

    /// (h0, n0) of the kernel. A row past the end shows a write out of bounds.
    pub fn run(&self, lab: &Lab, lanes: u32, precision: Precision) -> Result<(Vec<f32>, Vec<f32>), Failed> {
        let (width, n) = (self.gain_in.len(), self.pre_in.len());
        let (h0, n0) = (lab.poisoned(n + width)?, poisoned_operands(lab, n + width, precision)?);
        let (pre_in, gain_in) = (lab.upload(&self.pre_in)?, lab.upload(&self.gain_in)?);
        let (film, next_gain) = (lab.upload(&self.film)?, lab.upload(&self.next_gain)?);
        let launch = trunk_entry::launch(
            pre_in.view(),
            gain_in.view(),
            film.view(),
            next_gain.view(),
            h0.slice(0..n).view_mut(),
            n0.slice(0..n * precision.words()).view_mut(),
            precision,
        );
        lab.run(row_shape(n / width, lanes), launch)?;
        let (mut h0, mut n0) = (h0.read()?, decoded(&n0.read()?, precision));
        assert!(h0.drain(n..).chain(n0.drain(n..)).all(|value| value.is_nan()), "a write past the last row");
        Ok((h0, n0))
    }

    fn check(&self, lab: &Lab, lanes: u32, precision: Precision) -> Outcome {
        let width = self.gain_in.len();
        let (h0, n0) = self.run(lab, lanes, precision)?;
        let what = format!("{} rows of {width}, {lanes} lanes, {precision:?}", self.pre_in.len() / width);
        let x = rms_norm(&matrix(&self.pre_in, width), &wide(&self.gain_in));
        let (mut want, mut bounds) = (vec![], vec![]);
        for row in 0..x.n_rows {
            for (j, &x) in x.row(row).iter().enumerate() {
                let (g, s) = (f64::from(self.film[j]), f64::from(self.film[width + j]));
                want.push(silu(x) * (1.0 + g) + s);
                // x is off by the root mean square's error and two products, SiLU's slope is at most 1.1; then SiLU's own 8
                // units, 1 + g, the product and the sum.
                let e = 1.1 * x.abs() * (rms_error(width) + 2.0 * UNIT) + 8.0 * UNIT * silu(x).abs();
                bounds.push(
                    (1.0 + g).abs() * (e + 2.0 * UNIT * silu(x).abs())
                        + 2.0 * UNIT * (want[want.len() - 1].abs() + s.abs())
                        + UNIT * silu(x).abs(),
                );
            }
        }
        within(&format!("h0 of {what}"), &h0, &want, &bounds)?;
        check_normed(&what, &h0, &n0, &self.next_gain, precision)
    }
}

/// n = RMSNorm(h) of the h that the kernel left: the root mean square's error, two products, and the operand's rounding.
pub fn check_normed(what: &str, h: &[f32], n: &[f32], gain: &[f32], precision: Precision) -> Outcome {
    let want = rms_norm(&matrix(h, gain.len()), &wide(gain)).values;
    let relative = rms_error(gain.len()) + 2.0 * UNIT + operand_unit(precision) * 1.001;
    let bounds: Vec<f64> = want.iter().map(|n| relative * n.abs() + 1e-40).collect();
    within(&format!("n of {what}"), n, &want, &bounds)
}

fn follows_the_reference_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in WIDTHS.into_iter().chain([12, 100, 1028]) {
        for n_rows in N_ROWS {
            for &lanes in lab.row_lanes() {
                for precision in PRECISIONS {
                    Entry::random(n_rows, width, 1.0).check(&lab, lanes, precision)?;
                }
            }
        }
    }
    Ok(())
}

fn tiny_and_huge_rows(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    // Under the epsilon; so small that squares vanish; a mean square of 10^36, within f32.
    for scale in [1e-4, 1e-25, 1e18] {
        for &lanes in lab.row_lanes() {
            Entry::random(9, 64, scale).check(&lab, lanes, Precision::F32)?;
        }
    }
    // Outliers that the norm leaves far out: SiLU of about +-20.
    let mut entry = Entry::random(9, 512, 0.01);
    for (row, x) in entry.pre_in.chunks_exact_mut(512).enumerate() {
        x[row] = if row % 2 == 0 { 80.0 } else { -80.0 };
    }
    for &lanes in lab.row_lanes() {
        entry.check(&lab, lanes, Precision::F32)?;
    }
    Ok(())
}

fn a_nan_or_an_infinity_stays_in_its_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let clean = Entry::random(9, 64, 1.0);
    for bad in [f32::NAN, f32::INFINITY] {
        let mut entry = Entry::random(9, 64, 1.0);
        entry.pre_in[4 * 64 + 63] = bad;
        for &lanes in lab.row_lanes() {
            let (h0, n0) = entry.run(&lab, lanes, Precision::Bf16)?;
            let (clean_h0, clean_n0) = clean.run(&lab, lanes, Precision::Bf16)?;
            for (got, clean) in [(&h0, &clean_h0), (&n0, &clean_n0)] {
                assert!(got[4 * 64..5 * 64].iter().any(|value| value.is_nan()), "{bad} must be seen");
                assert_eq!(bits(&got[..4 * 64]), bits(&clean[..4 * 64]));
                assert_eq!(bits(&got[5 * 64..]), bits(&clean[5 * 64..]));
            }
        }
    }
    Ok(())
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for &lanes in lab.row_lanes() {
        Entry::random(0, 32, 1.0).run(&lab, lanes, Precision::F32)?;
    }
    Ok(())
}
