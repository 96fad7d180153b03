//! `trunk_input`.

use gpu_kernels::denoise::{BOTTLENECK, DECODER, ENCODER_BIAS};
use gpu_kernels::trunk::input::{INPUT_WIDTH, trunk_input, trunk_input_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Outcome, case, ensure};
use reference::activation::silu;
use reference::config::Sizes;
use reference::matrix::dot;
use shared_types::Precision;

use super::support::{
    N_ROWS, PRECISIONS, UNIT, decoded, encoded, normals, of_reference, operand_unit, poisoned_operands,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("input::u_is_the_parts_in_their_columns", u_is_the_parts_in_their_columns),
        case("input::a_part_that_is_off_is_zero", a_part_that_is_off_is_zero),
        case("input::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

fn u_is_the_parts_in_their_columns(device: &Device) -> Outcome {
    for window in [4, 8, 16] {
        for n_rows in N_ROWS {
            check(device, window, n_rows, [true; 3])?;
        }
    }
    check(device, 1, 300, [true; 3])
}

fn a_part_that_is_off_is_zero(device: &Device) -> Outcome {
    for off in 0..3 {
        check(device, 4, 7, std::array::from_fn(|part| part != off))?;
    }
    check(device, 4, 7, [false; 3])
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    check(device, 4, 0, [true; 3])
}

/// Exactly the parts, rounded once; of the bottleneck's columns, which are worked out, [`check_bottleneck`] judges. A row past the
/// end shows a write out of bounds.
fn check(device: &Device, window: usize, n_rows: usize, on: [bool; 3]) -> Outcome {
    let lab = Lab::new(device)?;
    let sizes = Sizes::new(window, 8, 4, 5);
    let (stride, columns) = (sizes.state_stride(), sizes.input());
    assert_eq!(columns.width, INPUT_WIDTH);
    let mut numbers = Numbers::new((window * 1000 + n_rows) as u64);
    let rows = normals(&mut numbers, n_rows * stride, 2.0);
    let parts = [n_rows * 64, n_rows * 64, DECODER].map(|n| normals(&mut numbers, n, 0.5));
    let given: Vec<&[f32]> = parts.iter().zip(on).map(|(part, on)| if on { &part[..] } else { &[] }).collect();
    let mut want = vec![0.0; n_rows * INPUT_WIDTH];
    for (row, u) in want.chunks_exact_mut(INPUT_WIDTH).enumerate() {
        let state = &rows[row * stride..];
        u[..columns.portfolio].copy_from_slice(&state[(window - 1) * 24..window * 24]);
        u[columns.portfolio..columns.temporal].copy_from_slice(&state[window * 24..window * 24 + 16]);
        for (part, first) in given.iter().zip([columns.temporal, columns.attention]) {
            if !part.is_empty() {
                u[first..first + 64].copy_from_slice(&part[row * 64..(row + 1) * 64]);
            }
        }
    }
    for precision in PRECISIONS {
        let u = poisoned_operands(&lab, (n_rows + 1) * INPUT_WIDTH, precision)?;
        let (states, temporal) = (lab.upload(&rows)?, lab.upload(given[0])?);
        let (attention, encoder) = (lab.upload(given[1])?, lab.upload(given[2])?);
        let launch = trunk_input::launch(
            states.view(),
            temporal.view(),
            attention.view(),
            encoder.view(),
            u.slice(0..n_rows * INPUT_WIDTH * precision.words()).view_mut(),
            window as u32,
            precision,
        );
        lab.run(trunk_input_shape(n_rows), launch)?;
        let mut got = decoded(&u.read()?, precision);
        if !given[2].is_empty() {
            for row in 0..n_rows {
                let features = &rows[row * stride..][(window - 1) * 24..window * 24];
                let place = row * INPUT_WIDTH + columns.bottleneck;
                check_bottleneck(&got[place..place + BOTTLENECK], features, given[2], precision)?;
                got[place..place + BOTTLENECK].fill(0.0);
            }
        }
        let rounded = decoded(&encoded(&want, precision), precision);
        assert_eq!(bits(&got[..want.len()]), bits(&rounded), "window {window}, {n_rows} rows, {precision:?}");
        assert!(got[want.len()..].iter().all(|value| value.is_nan()));
    }
    Ok(())
}

/// SiLU(W_e x + b_e) of operands. Six groups of products and the bias round at most 9 times, SiLU's slope is at most 1.1 and its own
/// error 2^-21; then the operand is rounded.
fn check_bottleneck(got: &[f32], features: &[f32], parameters: &[f32], precision: Precision) -> Outcome {
    let rounded = |values: &[f32]| -> Vec<f64> {
        values.iter().map(|&value| of_reference(precision).operand(f64::from(value))).collect()
    };
    let (x, weights) = (rounded(features), rounded(&parameters[..ENCODER_BIAS]));
    for (j, got) in got.iter().enumerate() {
        let w = &weights[j * 24..(j + 1) * 24];
        let pre = dot(w, &x) + f64::from(parameters[ENCODER_BIAS + j]);
        let size: f64 = w.iter().zip(&x).map(|(w, x)| (w * x).abs()).sum::<f64>() + pre.abs();
        let bound =
            1.1 * 10.0 * UNIT * size + 8.0 * UNIT * pre.abs() + operand_unit(precision) * silu(pre).abs() * 1.01;
        let off = (f64::from(*got) - silu(pre)).abs();
        ensure!(off <= bound, "bottleneck {j} is {got}, {} expected, {precision:?}", silu(pre));
    }
    Ok(())
}
