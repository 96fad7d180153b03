//! IQN's kernels around its matrix products.

use std::f64::consts::PI;

use gpu_kernels::columns::{n_column_partials, rows_a_partial};
use gpu_kernels::iqn::backward::{iqn_phi_gradient, iqn_product_backward, iqn_product_backward_shape};
use gpu_kernels::iqn::forward::{iqn_phi, iqn_phi_shape, iqn_product, iqn_product_shape};
use gpu_kernels::iqn::{N_COSINES, N_QUANTILES, level};
use gpu_kernels::lanes::row_shape;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case};
use shared_types::{Precision, isv};

use super::support::{
    N_ROWS, PRECISIONS, UNIT, WIDTHS, decoded, encoded, normals, of_reference, poisoned_operands, wide, within,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("iqn::phi_follows_the_reference", phi_follows_the_reference),
        case("iqn::a_nan_goes_through_phi", a_nan_goes_through_phi),
        case("iqn::products_are_rounded_once", products_are_rounded_once),
        case("iqn::gradients_of_the_product_follow_the_reference", gradients_of_the_product_follow_the_reference),
        case("iqn::gradients_of_phis_layer_follow_the_reference", gradients_of_phis_layer_follow_the_reference),
        case("iqn::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

/// cos(pi i tau_n) as operands, `[8, 64]`.
fn cosines(precision: Precision) -> Vec<u16> {
    let of = |at: usize| (PI * (at % N_COSINES) as f64 * f64::from(level(at / N_COSINES))).cos() as f32;
    encoded(&(0..N_QUANTILES * N_COSINES).map(of).collect::<Vec<_>>(), precision)
}

fn phi(lab: &Lab, weight: &[f32], bias: &[f32], precision: Precision) -> Result<Vec<f32>, Failed> {
    let (cosines, weight) = (lab.upload(&cosines(precision))?, lab.upload(&encoded(weight, precision))?);
    let (bias, phi) = (lab.upload(bias)?, lab.poisoned(N_QUANTILES * bias.len())?);
    let launch = iqn_phi::launch(cosines.view(), weight.view(), bias.view(), phi.view_mut(), precision);
    lab.run(iqn_phi_shape(bias.len()), launch)?;
    Ok(phi.read()?)
}

/// Operands are the reference's own: 16 additions a component, 3 more, the bias: 19 roundings of the magnitudes' sum at most.
fn phi_follows_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in WIDTHS {
        for precision in PRECISIONS {
            let mut numbers = Numbers::new(width as u64);
            let weight = normals(&mut numbers, width * N_COSINES, 0.125);
            let bias = normals(&mut numbers, width, 0.5);
            let c = wide(&decoded(&cosines(precision), precision));
            let w = wide(&decoded(&encoded(&weight, precision), precision));
            let terms = |at: usize| {
                let (n, j) = (at / width, at % width);
                (0..N_COSINES).map(move |i| (n * N_COSINES + i, j * N_COSINES + i))
            };
            let pre = |at: usize| terms(at).map(|(i, j)| c[i] * w[j]).sum::<f64>() + f64::from(bias[at % width]);
            let size = |at: usize| {
                terms(at).map(|(i, j)| (c[i] * w[j]).abs()).sum::<f64>() + f64::from(bias[at % width].abs())
            };
            let n = N_QUANTILES * width;
            let want: Vec<f64> = (0..n).map(|at| pre(at).max(0.0)).collect();
            let bounds: Vec<f64> = (0..n).map(|at| 20.0 * UNIT * size(at)).collect();
            let got = phi(&lab, &weight, &bias, precision)?;
            within(&format!("phi of {width}, {precision:?}"), &got, &want, &bounds)?;
            assert!(got.contains(&0.0) && got.iter().any(|phi| *phi > 0.0), "one side of ReLU alone");
        }
    }
    Ok(())
}

fn a_nan_goes_through_phi(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (width, column) = (32, 5);
    let mut weight = normals(&mut Numbers::new(1), width * N_COSINES, 0.125);
    weight[column * N_COSINES + 3] = f32::NAN;
    let got = phi(&lab, &weight, &vec![0.0; width], Precision::Bf16)?;
    assert!(got.iter().enumerate().all(|(at, phi)| phi.is_nan() == (at % width == column)));
    Ok(())
}

fn product(lab: &Lab, h: &[f32], phi: &[f32], precision: Precision) -> Result<Vec<f32>, Failed> {
    let product = poisoned_operands(lab, N_QUANTILES * h.len(), precision)?;
    let (given, levels) = (lab.upload(h)?, lab.upload(phi)?);
    let width = phi.len() / N_QUANTILES;
    let launch = iqn_product::launch(given.view(), levels.view(), product.view_mut(), precision);
    lab.run(iqn_product_shape(h.len() / width, width), launch)?;
    Ok(decoded(&product.read()?, precision))
}

/// One product in f32, and the operand's rounding: the same bits as on the host.
fn products_are_rounded_once(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (width, n_rows) in WIDTHS.into_iter().flat_map(|width| N_ROWS.map(|n_rows| (width, n_rows))) {
        let mut numbers = Numbers::new((width + n_rows) as u64);
        let h = normals(&mut numbers, n_rows * width, 1.0);
        let phi: Vec<f32> = normals(&mut numbers, N_QUANTILES * width, 1.0).into_iter().map(|x| x.max(0.0)).collect();
        let of = |at: usize| {
            let (row, column) = (at / width, at % width);
            h[row / N_QUANTILES * width + column] * phi[row % N_QUANTILES * width + column]
        };
        let want: Vec<f32> = (0..N_QUANTILES * h.len()).map(of).collect();
        for precision in PRECISIONS {
            let got = product(&lab, &h, &phi, precision)?;
            assert_eq!(bits(&got), bits(&decoded(&encoded(&want, precision), precision)), "{n_rows} rows of {width}");
        }
    }
    Ok(())
}

const LAMBDA: f32 = 0.1;
const READINESS: f32 = 0.75;

/// (dh, partial sums `[P, 8 H]`).
fn product_backward(lab: &Lab, d: &[f32], h: &[f32], phi: &[f32]) -> Result<(Vec<f32>, Vec<f32>), Failed> {
    let width = phi.len() / N_QUANTILES;
    let n_rows = h.len() / width;
    let mut bus = [f32::NAN; isv::LEN];
    bus[isv::IQN_READINESS] = READINESS;
    let (dh, partials) = (lab.poisoned(h.len())?, lab.poisoned(n_column_partials(n_rows) * phi.len())?);
    let (d, h, phi, bus) = (lab.upload(d)?, lab.upload(h)?, lab.upload(phi)?, lab.upload(&bus)?);
    let launch = iqn_product_backward::launch(
        d.view(),
        h.view(),
        phi.view(),
        bus.view(),
        LAMBDA,
        dh.view_mut(),
        partials.view_mut(),
    );
    lab.run(iqn_product_backward_shape(n_rows, width), launch)?;
    Ok((dh.read()?, partials.read()?))
}

/// dh: eight products and sums, and the weight's product and its own two roundings. Partial sums: a stretch's additions and a product.
fn gradients_of_the_product_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (width, n_rows) in WIDTHS.into_iter().flat_map(|width| N_ROWS.map(|n_rows| (width, n_rows))) {
        let mut numbers = Numbers::new((width * n_rows) as u64);
        let h = normals(&mut numbers, n_rows * width, 1.0);
        let phi: Vec<f32> = normals(&mut numbers, N_QUANTILES * width, 1.0).into_iter().map(|x| x.max(0.0)).collect();
        let d = normals(&mut numbers, N_QUANTILES * n_rows * width, 1.0);
        let (h, phi, d) = (&h[..], &phi[..], &d[..]);
        let (got_dh, partials) = product_backward(&lab, d, h, phi)?;
        let what = format!("{n_rows} rows of {width}");
        let weight = f64::from(LAMBDA) * f64::from(READINESS);
        let d_of = move |row: usize, n: usize, column: usize| f64::from(d[(row * N_QUANTILES + n) * width + column]);
        let through = |at: usize| {
            let (row, column) = (at / width, at % width);
            (0..N_QUANTILES).map(move |n| weight * d_of(row, n, column) * f64::from(phi[n * width + column]))
        };
        let want: Vec<f64> = (0..h.len()).map(|at| through(at).sum()).collect();
        let bounds: Vec<f64> =
            (0..h.len()).map(|at| 11.0 * UNIT * through(at).map(f64::abs).sum::<f64>() + 1e-40).collect();
        within(&format!("dh of {what}"), &got_dh, &want, &bounds)?;

        let stretch = rows_a_partial(n_rows);
        let terms = |at: usize| {
            let (partial, n, column) = (at / phi.len(), at % phi.len() / width, at % width);
            let rows = partial * stretch..n_rows.min((partial + 1) * stretch);
            rows.map(move |row| d_of(row, n, column) * f64::from(h[row * width + column]))
        };
        let want: Vec<f64> = (0..partials.len()).map(|at| terms(at).sum()).collect();
        let relative = (stretch + 1) as f64 * UNIT;
        let bounds: Vec<f64> =
            (0..partials.len()).map(|at| relative * terms(at).map(f64::abs).sum::<f64>() + 1e-40).collect();
        within(&format!("partial sums of {what}"), &partials, &want, &bounds)?;
        assert_eq!(bits(&product_backward(&lab, d, h, phi)?.1), bits(&partials), "the same bits twice");
    }
    Ok(())
}

/// Partial sums of whole numbers, so that e is exact in any order; then 8 products and additions of e, rounded as the reference
/// rounds it, and the cosines.
fn gradients_of_phis_layer_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (width, n_partials) in WIDTHS.into_iter().flat_map(|width| [1, 3, 33, 256].map(|n| (width, n))) {
        let (mut numbers, n) = (Numbers::new((width + n_partials) as u64), N_QUANTILES * width);
        let partials: Vec<f32> = (0..n_partials * n).map(|_| numbers.below(2001) as f32 - 1000.0).collect();
        let phi: Vec<f32> =
            (0..n).map(|_| if numbers.below(2) == 0 { 0.0 } else { numbers.unit() as f32 + 1e-30 }).collect();
        let sum = |at: usize| partials.iter().skip(at).step_by(n).map(|&x| f64::from(x)).sum::<f64>();
        let e: Vec<f64> = (0..n).map(|at| if phi[at] > 0.0 { sum(at) } else { 0.0 }).collect();
        for precision in PRECISIONS {
            let c = wide(&decoded(&cosines(precision), precision));
            let terms = |at: usize| {
                let (column, i) = (at / N_COSINES, at % N_COSINES);
                let rounded = |e: f64| of_reference(precision).operand(e);
                let (c, e) = (&c, &e);
                (0..N_QUANTILES).map(move |n| rounded(e[n * width + column]) * c[n * N_COSINES + i])
            };
            let want: Vec<f64> = (0..width * N_COSINES).map(|at| terms(at).sum()).collect();
            let bounds: Vec<f64> =
                (0..want.len()).map(|at| 9.0 * UNIT * terms(at).map(f64::abs).sum::<f64>() + 1e-40).collect();
            let want_bias: Vec<f32> =
                (0..width).map(|column| (0..N_QUANTILES).map(|n| e[n * width + column]).sum::<f64>() as f32).collect();
            for &lanes in lab.row_lanes() {
                let (d_weight, d_bias) = (lab.poisoned(width * N_COSINES)?, lab.poisoned(width)?);
                let (given, phi, cosines) =
                    (lab.upload(&partials)?, lab.upload(&phi)?, lab.upload(&cosines(precision))?);
                let launch = iqn_phi_gradient::launch(
                    given.view(),
                    phi.view(),
                    cosines.view(),
                    d_weight.view_mut(),
                    d_bias.view_mut(),
                    precision,
                );
                lab.run(row_shape(width, lanes), launch)?;
                let what = format!("{n_partials} partial sums of {width}, {lanes} lanes, {precision:?}");
                within(&format!("dW of {what}"), &d_weight.read()?, &want, &bounds)?;
                assert_eq!(d_bias.read()?, want_bias, "db of {what}");
            }
        }
    }
    Ok(())
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let phi = vec![1.0; N_QUANTILES * 32];
    assert!(product(&lab, &[], &phi, Precision::Bf16)?.is_empty());
    let (dh, partials) = product_backward(&lab, &[], &[], &phi)?;
    assert!(dh.is_empty() && partials.is_empty());
    Ok(())
}
