//! Sums over rows in two stages.

use gpu_kernels::columns::{
    ColumnShape, NO_TARGET, column_partials_f32, column_partials_operands, column_partials_scaled,
    column_partials_shape, column_sums, column_sums_shape, n_column_partials, rows_a_partial,
};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case, host_case};
use shared_types::Precision;

use super::support::{N_ROWS, PRECISIONS, UNIT, UNIT_BF16, encoded, normals, within};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("columns::stretches_cover_the_rows", stretches_cover_the_rows),
        case("columns::whole_numbers_sum_exactly_at_every_size", whole_numbers_sum_exactly_at_every_size),
        case("columns::sums_hold_their_bound", sums_hold_their_bound),
        case("columns::groups_strides_and_targets_are_kept_apart", groups_strides_and_targets_are_kept_apart),
        case("columns::scaled_rows_sum_exactly", scaled_rows_sum_exactly),
        case("columns::rounded_operands_hold_their_bound", rounded_operands_hold_their_bound),
        case("columns::a_nan_or_an_infinity_reaches_its_column_alone", a_nan_or_an_infinity_reaches_its_column_alone),
        case("columns::no_row_gives_zero", no_row_gives_zero),
    ]
}

fn stretches_cover_the_rows() -> Outcome {
    for n_rows in (0..3000).chain([8192, 8193, 100_000]) {
        let (n, partials) = (rows_a_partial(n_rows), n_column_partials(n_rows));
        assert!(
            partials <= 256 && n * partials >= n_rows && n * partials.saturating_sub(1) <= n_rows.saturating_sub(1)
        );
    }
    assert_eq!((n_column_partials(8192), rows_a_partial(8192)), (256, 32));
    Ok(())
}

/// The larger error of a sum of n rows, in units of the magnitudes' sum: the additions of a stretch, then of the partial sums.
fn adds(n_rows: usize) -> f64 {
    (rows_a_partial(n_rows) + n_column_partials(n_rows)) as f64
}

/// Both stages over a matrix without gaps, columns in reverse order at the target.
fn sums(lab: &Lab, values: &[f32], n_columns: usize, operands: Option<Precision>) -> Result<Vec<f32>, Failed> {
    let n_rows = values.len() / n_columns;
    let partials = lab.poisoned(n_column_partials(n_rows) * n_columns)?;
    let shape = ColumnShape::dense(n_rows, n_columns);
    match operands {
        None => {
            let source = lab.upload(values)?;
            let launch = column_partials_f32::launch(source.view(), partials.view_mut(), shape);
            lab.run(column_partials_shape(n_rows, n_columns), launch)?;
        }
        Some(precision) => {
            let source = lab.upload(&encoded(values, precision))?;
            let launch = column_partials_operands::launch(source.view(), partials.view_mut(), shape, precision);
            lab.run(column_partials_shape(n_rows, n_columns), launch)?;
        }
    }
    let targets: Vec<u32> = (0..n_columns as u32).rev().collect();
    let (targets, out) = (lab.upload(&targets)?, lab.poisoned(n_columns)?);
    let launch = column_sums::launch(partials.view(), targets.view(), out.view_mut());
    lab.run(column_sums_shape(n_columns), launch)?;
    Ok(out.read()?.into_iter().rev().collect())
}

fn whole_numbers_sum_exactly_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in N_ROWS.into_iter().chain([7, 8, 9, 2047, 2048, 2049, 5000]) {
        for n_columns in [4, 12, 64] {
            let mut numbers = Numbers::new((n_rows * n_columns) as u64);
            let values: Vec<f32> = (0..n_rows * n_columns).map(|_| numbers.below(15) as f32 - 7.0).collect();
            let want: Vec<f32> =
                (0..n_columns).map(|column| values.iter().skip(column).step_by(n_columns).sum()).collect();
            assert_eq!(sums(&lab, &values, n_columns, None)?, want, "{n_rows} rows of {n_columns}");
            for precision in PRECISIONS {
                let got = sums(&lab, &values, n_columns, Some(precision))?;
                assert_eq!(got, want, "{n_rows} rows of {n_columns} as operands, {precision:?}");
            }
        }
    }
    Ok(())
}

fn sums_hold_their_bound(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in [33, 257, 8192] {
        let mut numbers = Numbers::new(n_rows as u64);
        let values: Vec<f32> =
            (0..n_rows * 8).map(|_| numbers.heavy() * if numbers.below(2) == 0 { 1.0 } else { -1.0 }).collect();
        let of = |column: usize| values.iter().skip(column).step_by(8).map(|&value| f64::from(value));
        let want: Vec<f64> = (0..8).map(|column| of(column).sum()).collect();
        let bounds: Vec<f64> =
            (0..8).map(|column| adds(n_rows) * UNIT * of(column).map(f64::abs).sum::<f64>()).collect();
        let got = sums(&lab, &values, 8, None)?;
        within(&format!("{n_rows} rows"), &got, &want, &bounds)?;
        assert_eq!(bits(&sums(&lab, &values, 8, None)?), bits(&got), "the same numbers give the same bits");
    }
    Ok(())
}

/// Two first stages fill columns of the same partial sums: one of three groups, one of a matrix in the middle of wider rows. Some
/// columns have no target, and one that nothing wrote is not read.
fn groups_strides_and_targets_are_kept_apart(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_rows, n_columns, row_stride, group_stride, n_groups) = (50, 8, 12, 50 * 12 + 20, 3);
    let mut numbers = Numbers::new(3);
    let mut whole = |n: usize| -> Vec<f32> { (0..n).map(|_| numbers.below(100) as f32).collect() };
    let (grouped, wider) = (whole(n_groups * group_stride), whole(n_rows * 40));
    let (first_of_wider, partial_stride) = (n_groups * n_columns + 4, n_groups * n_columns + 4 + 16);
    let partials = lab.upload(&vec![f32::NAN; n_column_partials(n_rows) * partial_stride])?;
    let grouped_shape = ColumnShape {
        n_rows: n_rows as u32,
        n_columns: n_columns as u32,
        row_stride: row_stride as u32,
        n_groups: n_groups as u32,
        group_stride: group_stride as u32,
        partial_stride: partial_stride as u32,
    };
    let wider_shape =
        ColumnShape { row_stride: 40, partial_stride: partial_stride as u32, ..ColumnShape::dense(n_rows, 16) };
    let source = lab.upload(&grouped)?;
    let launch = column_partials_f32::launch(source.view(), partials.view_mut(), grouped_shape);
    lab.run(column_partials_shape(n_rows, n_groups * n_columns), launch)?;
    let source = lab.upload(&encoded(&wider, Precision::F32))?;
    let columns = source.slice(20 * Precision::F32.words()..source.len());
    let into = partials.slice(first_of_wider..partials.len());
    let launch = column_partials_operands::launch(columns.view(), into.view_mut(), wider_shape, Precision::F32);
    lab.run(column_partials_shape(n_rows, 16), launch)?;

    // Group 1 goes nowhere, nor does the gap; the wider matrix's columns 3.. go before the groups'.
    let mut targets = vec![NO_TARGET; partial_stride];
    let mut want = vec![f32::NAN; 64];
    for column in 0..n_columns {
        for group in [0, 2] {
            let target = 30 + group * 10 + column;
            targets[group * n_columns + column] = target as u32;
            want[target] = (0..n_rows).map(|row| grouped[group * group_stride + row * row_stride + column]).sum();
        }
    }
    for column in 3..16 {
        targets[first_of_wider + column] = column as u32;
        want[column] = (0..n_rows).map(|row| wider[row * 40 + 20 + column]).sum();
    }
    let (targets, out) = (lab.upload(&targets)?, lab.poisoned(64)?);
    let launch = column_sums::launch(partials.view(), targets.view(), out.view_mut());
    lab.run(column_sums_shape(partial_stride), launch)?;
    assert_eq!(bits(&out.read()?), bits(&want));
    Ok(())
}

/// Whole numbers, in wider rows and wider partial sums.
fn scaled_rows_sum_exactly(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in N_ROWS.into_iter().chain([0, 8, 2049]) {
        let mut numbers = Numbers::new(n_rows as u64);
        let mut whole = |n: usize| -> Vec<f32> { (0..n).map(|_| numbers.below(15) as f32 - 7.0).collect() };
        let (values, factors) = (whole(n_rows * 12), whole(n_rows));
        let want: Vec<f32> =
            (0..8).map(|column| (0..n_rows).map(|row| factors[row] * values[row * 12 + column]).sum()).collect();
        let shape = ColumnShape { row_stride: 12, partial_stride: 20, ..ColumnShape::dense(n_rows, 8) };
        let (source, scales) = (lab.upload(&values)?, lab.upload(&factors)?);
        let partials = lab.poisoned(n_column_partials(n_rows) * 20)?;
        let launch = column_partials_scaled::launch(source.view(), scales.view(), partials.view_mut(), shape);
        lab.run(column_partials_shape(n_rows, 8), launch)?;
        let targets: Vec<u32> = (0..20).map(|column| if column < 8 { column } else { NO_TARGET }).collect();
        let (targets, out) = (lab.upload(&targets)?, lab.poisoned(8)?);
        let launch = column_sums::launch(partials.view(), targets.view(), out.view_mut());
        lab.run(column_sums_shape(20), launch)?;
        assert_eq!(out.read()?, want, "{n_rows} rows");
    }
    Ok(())
}

/// Beside the unrounded sum: 2^-8 of the magnitudes, and the additions. Some columns round one way in every row, by nearly as much.
fn rounded_operands_hold_their_bound(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_rows in [33, 2100] {
        let mut values = normals(&mut Numbers::new(n_rows as u64), n_rows * 64, 1.0);
        for row in values.chunks_exact_mut(64) {
            row[..8].fill(1.0 + 2f32.powi(-8) * 0.999);
        }
        let of = |column: usize| values.iter().skip(column).step_by(64).map(|&value| f64::from(value));
        let want: Vec<f64> = (0..64).map(|column| of(column).sum()).collect();
        let relative = UNIT_BF16 + 1.01 * adds(n_rows) * UNIT;
        let bounds: Vec<f64> = (0..64).map(|column| relative * of(column).map(f64::abs).sum::<f64>()).collect();
        let got = sums(&lab, &values, 64, Some(Precision::Bf16))?;
        within(&format!("{n_rows} rows of bf16"), &got, &want, &bounds)?;
    }
    Ok(())
}

fn a_nan_or_an_infinity_reaches_its_column_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for bad in [f32::NAN, f32::INFINITY] {
        let mut values = vec![1.0f32; 300 * 12];
        values[299 * 12 + 5] = bad;
        let got = sums(&lab, &values, 12, None)?;
        // A NaN's payload is the adder's own.
        assert!(if bad.is_nan() { got[5].is_nan() } else { got[5] == bad }, "{bad} became {}", got[5]);
        assert!(got.iter().enumerate().all(|(column, sum)| column == 5 || *sum == 300.0));
    }
    Ok(())
}

fn no_row_gives_zero(device: &Device) -> Outcome {
    assert_eq!(sums(&Lab::new(device)?, &[], 8, None)?, [0.0; 8]);
    Ok(())
}
