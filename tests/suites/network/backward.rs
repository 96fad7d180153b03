//! The trunk's gradients between its products.

use gpu_kernels::columns::{column_partials_shape, column_sums, column_sums_shape, n_column_partials, rows_a_partial};
use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::backward::{
    entry_backward, entry_partials, norm_backward, norm_gain_partials, residual_backward,
};
use host::device::{Buffer, Device};
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::activation::{silu, silu_slope};
use reference::norm::{RMS_EPSILON, rms_norm_backward};
use shared_types::{Precision, StepScalars};

use super::entry::Entry;
use super::support::{
    N_ROWS, PRECISIONS, UNIT, WIDTHS, decoded, encoded, matrix, normals, operand_unit, poisoned_operands, rms_error,
    wide, within,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("backward::of_a_block_follows_the_reference", of_a_block_follows_the_reference),
        case("backward::of_a_norm_follows_the_reference", of_a_norm_follows_the_reference),
        case("backward::of_the_entry_follows_the_reference", of_the_entry_follows_the_reference),
        case("backward::of_the_entry_agrees_with_differences", of_the_entry_agrees_with_differences),
        case("backward::a_nan_stays_in_its_row", a_nan_stays_in_its_row),
        case("backward::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

/// Additions of a sum over rows, one after the other.
fn adds(n_rows: usize) -> f64 {
    (rows_a_partial(n_rows) + n_column_partials(n_rows)) as f64
}

/// Second stage of all columns.
fn finished(lab: &Lab, partials: &Buffer<f32>, n_columns: usize) -> Result<Vec<f32>, Failed> {
    let targets = lab.upload(&(0..n_columns as u32).collect::<Vec<_>>())?;
    let out = lab.poisoned(n_columns)?;
    let launch = column_sums::launch(partials.view(), targets.view(), out.view_mut());
    lab.run(column_sums_shape(n_columns), launch)?;
    Ok(out.read()?)
}

/// Sum of each column.
fn column_totals(values: &[f64], width: usize) -> Vec<f64> {
    (0..width).map(|column| values.iter().skip(column).step_by(width).sum()).collect()
}

fn magnitudes(values: &[f64]) -> Vec<f64> {
    values.iter().map(|value| value.abs()).collect()
}

/// dz rounds once before it is an operand; its columns' sums are of the unrounded values.
fn of_a_block_follows_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (width, n_rows) in WIDTHS.into_iter().flat_map(|width| N_ROWS.map(|n_rows| (width, n_rows))) {
        for (precision, mask) in PRECISIONS.into_iter().zip([1.0, 0.9f32]).chain([(Precision::Bf16, 0.0)]) {
            let what = format!("{n_rows} rows of {width}, mask {mask}, {precision:?}");
            let dh = normals(&mut Numbers::new(width as u64), n_rows * width, 1.0);
            let scalars = lab.upload(&[StepScalars { depth_mask: [f32::NAN, mask], ..StepScalars::default() }])?;
            let (given, dz) = (lab.upload(&dh)?, poisoned_operands(&lab, dh.len(), precision)?);
            let partials = lab.poisoned(n_column_partials(n_rows) * width)?;
            let launch = residual_backward::launch(
                given.view(),
                scalars.view(),
                dz.view_mut(),
                partials.view_mut(),
                width as u32,
                width as u32,
                1,
                precision,
            );
            lab.run(column_partials_shape(n_rows, width), launch)?;
            let product: Vec<f32> = dh.iter().map(|d| d * mask).collect();
            assert_eq!(dz.read()?, encoded(&product, precision), "dz of {what}");
            let want: Vec<f64> = dh.iter().map(|&d| f64::from(d) * f64::from(mask)).collect();
            let bounds: Vec<f64> = column_totals(&magnitudes(&want), width)
                .iter()
                .map(|size| (adds(n_rows) + 1.0) * UNIT * size)
                .collect();
            let got = finished(&lab, &partials, width)?;
            within(&format!("db2 of {what}"), &got, &column_totals(&want, width), &bounds)?;
        }
    }
    Ok(())
}

/// RMSNorm's gradient is r t - h r^3 / H sum(t h). The first part has the error of r; the second three times that, and the additions of
/// the inner product, width / 4 + 8; each has a few products, and the sum with dh rounds twice more.
fn of_a_norm_follows_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in WIDTHS.into_iter().chain([12, 1028]) {
        for n_rows in N_ROWS {
            for scale in [1.0, 1e-4] {
                check_norm(&lab, n_rows, width, scale)?;
            }
        }
    }
    Ok(())
}

fn check_norm(lab: &Lab, n_rows: usize, width: usize, scale: f64) -> Outcome {
    let mut numbers = Numbers::new((n_rows * 31 + width) as u64);
    let n = n_rows * width;
    let (h, dn) = (normals(&mut numbers, n, scale), normals(&mut numbers, n, 1.0));
    let (before, gain) = (normals(&mut numbers, n, 1.0), normals(&mut numbers, width, 1.0));
    let (dx, dgain) = rms_norm_backward(&matrix(&h, width), &wide(&gain), &matrix(&dn, width));
    let want: Vec<f64> = dx.values.iter().zip(&before).map(|(dx, &before)| dx + f64::from(before)).collect();
    let rms = rms_error(width);
    let (mut bounds, mut gain_terms) = (vec![], vec![]);
    for row in 0..n_rows {
        let h = wide(&h[row * width..(row + 1) * width]);
        let dn = wide(&dn[row * width..(row + 1) * width]);
        let r = 1.0 / (h.iter().map(|h| h * h).sum::<f64>() / width as f64 + RMS_EPSILON).sqrt();
        let t: Vec<f64> = dn.iter().zip(&gain).map(|(dn, &gain)| dn * f64::from(gain)).collect();
        let inner: f64 = t.iter().zip(&h).map(|(t, h)| (t * h).abs()).sum();
        for j in 0..width {
            let (first, second) = ((r * t[j]).abs(), h[j].abs() * r.powi(3) / width as f64 * inner);
            bounds.push(
                first * (rms + 4.0 * UNIT)
                    + second * (3.0 * rms + (width / 4 + 16) as f64 * UNIT)
                    + UNIT * (first + second + want[row * width + j].abs()),
            );
            gain_terms.push((dn[j] * h[j] * r).abs());
        }
    }
    let gain_bounds: Vec<f64> =
        column_totals(&gain_terms, width).iter().map(|size| ((adds(n_rows) + 3.0) * UNIT + rms) * size).collect();
    let (hs, gains, dns) = (lab.upload(&h)?, lab.upload(&gain)?, lab.upload(&dn)?);
    for &lanes in lab.row_lanes() {
        let what = format!("{n_rows} rows of {width}, {lanes} lanes, scale {scale}");
        let (dh, inverse_rms) = (lab.upload(&before)?, lab.poisoned(n_rows)?);
        let launch = norm_backward::launch(hs.view(), gains.view(), dns.view(), dh.view_mut(), inverse_rms.view_mut());
        lab.run(row_shape(n_rows, lanes), launch)?;
        within(&format!("dh of {what}"), &dh.read()?, &want, &bounds)?;
        let partials = lab.poisoned(n_column_partials(n_rows) * width)?;
        let launch = norm_gain_partials::launch(
            hs.view(),
            dns.view(),
            inverse_rms.view(),
            partials.view_mut(),
            width as u32,
            width as u32,
        );
        lab.run(column_partials_shape(n_rows, width), launch)?;
        within(&format!("dgain of {what}"), &finished(lab, &partials, width)?, &dgain, &gain_bounds)?;
    }
    Ok(())
}

/// (dpre, [db | dgain_in | dg | ds]) of the kernels.
fn run_entry(
    lab: &Lab,
    entry: &Entry,
    dh0: &[f32],
    lanes: u32,
    precision: Precision,
) -> Result<(Vec<f32>, Vec<f32>), Failed> {
    let width = entry.gain_in.len();
    let n_rows = dh0.len() / width;
    let (pre_in, gain_in) = (lab.upload(&entry.pre_in)?, lab.upload(&entry.gain_in)?);
    let (film, d) = (lab.upload(&entry.film)?, lab.upload(dh0)?);
    let (dpre, row_terms) = (poisoned_operands(lab, dh0.len(), precision)?, lab.poisoned(2 * n_rows)?);
    let launch = entry_backward::launch(
        pre_in.view(),
        gain_in.view(),
        film.view(),
        d.view(),
        dpre.view_mut(),
        row_terms.view_mut(),
        precision,
    );
    lab.run(row_shape(n_rows, lanes), launch)?;
    let partials = lab.poisoned(n_column_partials(n_rows) * 4 * width)?;
    let launch = entry_partials::launch(
        pre_in.view(),
        gain_in.view(),
        film.view(),
        d.view(),
        row_terms.view(),
        partials.view_mut(),
        4 * width as u32,
    );
    lab.run(column_partials_shape(n_rows, width), launch)?;
    Ok((decoded(&dpre.read()?, precision), finished(lab, &partials, 4 * width)?))
}

fn of_the_entry_follows_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in WIDTHS.into_iter().chain([12, 1028]) {
        for n_rows in N_ROWS {
            check_entry(&lab, &Entry::random(n_rows, width, 1.0))?;
        }
        check_entry(&lab, &Entry::random(9, width, 1e-4))?;
    }
    Ok(())
}

/// x is off by the root mean square's error and two products; SiLU's second derivative is at most 1/2, so its slope is off by half
/// of that and 16 units. The rest as in a norm; sums over rows add the errors of their terms.
fn check_entry(lab: &Lab, entry: &Entry) -> Outcome {
    let width = entry.gain_in.len();
    let (pre, n_rows) = (matrix(&entry.pre_in, width), entry.pre_in.len() / width);
    let dh0 = normals(&mut Numbers::new(77 + n_rows as u64), n_rows * width, 1.0);
    let (gain, film, d) = (wide(&entry.gain_in), wide(&entry.film), matrix(&dh0, width));
    let x = reference::norm::rms_norm(&pre, &gain);
    let modulated = reference::matrix::Matrix::from_fn(n_rows, width, |i, j| d[(i, j)] * (1.0 + film[j]));
    let dx = modulated.zip(&x, |d, x| d * silu_slope(x));
    let (dpre, dgain) = rms_norm_backward(&pre, &gain, &dx);
    let dg = column_totals(&d.zip(&x, |d, x| d * silu(x)).values, width);
    let want: Vec<f64> = [dpre.sum_of_rows(), dgain, dg, d.sum_of_rows()].into_iter().flatten().collect();

    let rms = rms_error(width);
    let mut dpre_bounds = vec![];
    let mut sizes = vec![vec![]; 4];
    let mut errors = vec![vec![]; 4];
    for i in 0..n_rows {
        let r = 1.0 / (pre.row(i).iter().map(|x| x * x).sum::<f64>() / width as f64 + RMS_EPSILON).sqrt();
        let slope_error = |j: usize| 0.5 * x[(i, j)].abs() * (rms + 2.0 * UNIT) + 20.0 * UNIT;
        let dx_error = |j: usize| modulated[(i, j)].abs() * slope_error(j);
        let p = |j: usize| pre[(i, j)].abs();
        let inner_error: f64 = (0..width).map(|j| (gain[j] * dx_error(j) * p(j)).abs()).sum();
        let inner: f64 = (0..width).map(|j| (gain[j] * dx[(i, j)] * p(j)).abs()).sum();
        for j in 0..width {
            let (first, second) = ((r * gain[j] * dx[(i, j)]).abs(), p(j) * r.powi(3) / width as f64 * inner);
            let error = (r * gain[j]).abs() * dx_error(j)
                + first * (rms + 5.0 * UNIT)
                + p(j) * r.powi(3) / width as f64 * inner_error
                + second * (3.0 * rms + (width / 4 + 18) as f64 * UNIT);
            dpre_bounds.push(error);
            sizes[0].push(first + second);
            errors[0].push(error);
            let term = (dx[(i, j)] * p(j) * r).abs();
            sizes[1].push(term);
            errors[1].push(dx_error(j) * p(j) * r + term * (rms + 3.0 * UNIT));
            let (d, x) = (d[(i, j)].abs(), x[(i, j)]);
            sizes[2].push((d * silu(x)).abs());
            errors[2].push(d * (1.1 * x.abs() * (rms + 2.0 * UNIT) + 9.0 * UNIT * silu(x).abs()));
            sizes[3].push(d);
            errors[3].push(0.0);
        }
    }
    let mut bounds = vec![];
    for (sizes, errors) in sizes.iter().zip(&errors) {
        let totals = column_totals(sizes, width).into_iter().zip(column_totals(errors, width));
        bounds.extend(totals.map(|(size, error)| adds(n_rows) * UNIT * size + error));
    }
    for &lanes in lab.row_lanes() {
        for precision in PRECISIONS {
            let what = format!("{n_rows} rows of {width}, {lanes} lanes, {precision:?}");
            let (got, got_sums) = run_entry(lab, entry, &dh0, lanes, precision)?;
            let rounded: Vec<f64> = dpre_bounds
                .iter()
                .zip(&dpre.values)
                .map(|(bound, d)| 1.01 * bound + 1.001 * operand_unit(precision) * d.abs())
                .collect();
            within(&format!("dpre of {what}"), &got, &dpre.values, &rounded)?;
            within(&format!("db, dgain_in, dg, ds of {what}"), &got_sums, &want, &bounds)?;
        }
    }
    Ok(())
}

/// Chooses an input of the entry.
type Input = fn(&mut Entry) -> &mut Vec<f32>;

/// Central differences of sum(weight h0) along a random direction of each input. Step e = 0.01: the third derivatives leave e^2 of the
/// terms' magnitudes, rounding of h0 2^-24 / e of them, each under 0.0002.
fn of_the_entry_agrees_with_differences(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_rows, width, step) = (5, 64, 0.01);
    let entry = Entry::random(n_rows, width, 1.0);
    let mut numbers = Numbers::new(123);
    let weight = normals(&mut numbers, n_rows * width, 1.0);
    for &lanes in lab.row_lanes() {
        let (dpre, sums) = run_entry(&lab, &entry, &weight, lanes, Precision::F32)?;
        let value = |entry: &Entry| -> Result<f64, Failed> {
            let (h0, _) = entry.run(&lab, lanes, Precision::F32)?;
            Ok(h0.iter().zip(&weight).map(|(&h, &w)| f64::from(h) * f64::from(w)).sum())
        };
        let inputs: [(&str, Input, &[f32]); 3] = [
            ("pre_in", |entry| &mut entry.pre_in, &dpre),
            ("gain_in", |entry| &mut entry.gain_in, &sums[width..2 * width]),
            ("film", |entry| &mut entry.film, &sums[2 * width..]),
        ];
        for (name, input, gradient) in inputs {
            let direction = normals(&mut numbers, gradient.len(), 1.0);
            let moved = |by: f64| -> Result<f64, Failed> {
                let mut moved = Entry::random(n_rows, width, 1.0);
                for (x, &along) in input(&mut moved).iter_mut().zip(&direction) {
                    *x = (f64::from(*x) + by * f64::from(along)) as f32;
                }
                value(&moved)
            };
            let difference = (moved(step)? - moved(-step)?) / (2.0 * step);
            let terms = gradient.iter().zip(&direction).map(|(&d, &along)| f64::from(d) * f64::from(along));
            let (slope, size): (f64, f64) = (terms.clone().sum(), terms.map(f64::abs).sum());
            ensure!(
                (difference - slope).abs() < 1e-3 * size,
                "{name}: a difference of {difference}, a gradient of {slope}, terms of {size}"
            );
        }
    }
    Ok(())
}

fn a_nan_stays_in_its_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_rows, width, row) = (9, 64, 4);
    let mut dh0 = normals(&mut Numbers::new(2), n_rows * width, 1.0);
    dh0[row * width + 7] = f32::NAN;
    for &lanes in lab.row_lanes() {
        let (dpre, sums) = run_entry(&lab, &Entry::random(n_rows, width, 1.0), &dh0, lanes, Precision::Bf16)?;
        for (i, values) in dpre.chunks_exact(width).enumerate() {
            assert!(values.iter().all(|value| value.is_nan() == (i == row)), "row {i}");
        }
        // c of that row is NaN, and so is the whole row of dpre: every bias sees it, only its own column's g and s do.
        assert!(sums[..width].iter().all(|value| value.is_nan()));
        for part in sums[2 * width..].chunks_exact(width) {
            assert!(part.iter().enumerate().all(|(column, value)| value.is_nan() == (column == 7)));
        }
    }
    Ok(())
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    check_norm(&lab, 0, 32, 1.0)?;
    check_entry(&lab, &Entry::random(0, 32, 1.0))
}
