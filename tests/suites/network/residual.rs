//! `residual_norm` and `residual_out`.

use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::forward::{residual_norm, residual_out, residual_out_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Outcome, case};
use shared_types::{Precision, StepScalars};

use super::entry::check_normed;
use super::support::{N_ROWS, PRECISIONS, UNIT, WIDTHS, decoded, encoded, normals, poisoned_operands, within};

pub fn cases() -> Vec<Case> {
    vec![
        case("residual::blocks_follow_the_reference_at_every_size", blocks_follow_the_reference_at_every_size),
        case("residual::a_skipped_block_changes_nothing", a_skipped_block_changes_nothing),
        case("residual::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

/// Scalars whose other fields and whose other mask would be seen.
fn scalars(block: usize, mask: f32) -> StepScalars {
    let mut depth_mask = [f32::NAN; 2];
    depth_mask[block] = mask;
    StepScalars { lr: f32::NAN, depth_mask, ..StepScalars::default() }
}

/// h + m z rounds twice: once a product, once the sum.
fn check(lab: &Lab, n_rows: usize, width: usize, block: usize, mask: f32, precision: Precision) -> Outcome {
    let mut numbers = Numbers::new((n_rows * 7 + width) as u64);
    let n = n_rows * width;
    let (h, z) = (normals(&mut numbers, n, 1.0), normals(&mut numbers, n, 3.0));
    let gain: Vec<f32> = normals(&mut numbers, width, 0.3).into_iter().map(|x| 1.0 + x).collect();
    let want: Vec<f64> = h.iter().zip(&z).map(|(&h, &z)| f64::from(h) + f64::from(mask) * f64::from(z)).collect();
    let bounds: Vec<f64> = want
        .iter()
        .zip(&z)
        .map(|(sum, &z)| UNIT * (sum.abs() + 2.0 * f64::from(mask) * f64::from(z.abs())) + 1e-40)
        .collect();
    let what = format!("{n_rows} rows of {width}, mask {mask}, {precision:?}");
    let (hs, zs, gains) = (lab.upload(&h)?, lab.upload(&z)?, lab.upload(&gain)?);
    let scalars = lab.upload(&[scalars(block, mask)])?;
    for &lanes in lab.row_lanes() {
        let (next, normed) = (lab.poisoned(n)?, poisoned_operands(lab, n, precision)?);
        let launch = residual_norm::launch(
            hs.view(),
            zs.view(),
            scalars.view(),
            gains.view(),
            next.view_mut(),
            normed.view_mut(),
            block as u32,
            precision,
        );
        lab.run(row_shape(n_rows, lanes), launch)?;
        let (next, normed) = (next.read()?, decoded(&normed.read()?, precision));
        within(&format!("h of {what}, {lanes} lanes"), &next, &want, &bounds)?;
        check_normed(&format!("{what}, {lanes} lanes"), &next, &normed, &gain, precision)?;
    }
    let (next, out) = (lab.poisoned(n)?, poisoned_operands(lab, n, precision)?);
    let launch = residual_out::launch(
        hs.view(),
        zs.view(),
        scalars.view(),
        next.view_mut(),
        out.view_mut(),
        block as u32,
        precision,
    );
    lab.run(residual_out_shape(n_rows, width), launch)?;
    let next = next.read()?;
    within(&format!("last h of {what}"), &next, &want, &bounds)?;
    assert_eq!(out.read()?, encoded(&next, precision), "the operands are the stream's, rounded once");
    Ok(())
}

fn blocks_follow_the_reference_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in WIDTHS.into_iter().chain([12, 100, 1028]) {
        for n_rows in N_ROWS {
            for precision in PRECISIONS {
                check(&lab, n_rows, width, n_rows % 2, 1.0, precision)?;
            }
        }
    }
    // Passes without stochastic depth weigh a block by its keep probability.
    check(&lab, 33, 64, 0, 0.95, Precision::F32)?;
    check(&lab, 33, 64, 1, 0.9, Precision::Bf16)
}

fn a_skipped_block_changes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let h = normals(&mut Numbers::new(5), 33 * 64, 1.0);
    let (hs, zs) = (lab.upload(&h)?, lab.upload(&vec![1e30f32; h.len()])?);
    let (scalars, next) = (lab.upload(&[scalars(1, 0.0)])?, lab.poisoned(h.len())?);
    let out = poisoned_operands(&lab, h.len(), Precision::F32)?;
    let launch =
        residual_out::launch(hs.view(), zs.view(), scalars.view(), next.view_mut(), out.view_mut(), 1, Precision::F32);
    lab.run(residual_out_shape(33, 64), launch)?;
    assert_eq!(bits(&next.read()?), bits(&h));
    Ok(())
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    check(&Lab::new(device)?, 0, 32, 0, 1.0, Precision::Bf16)
}
