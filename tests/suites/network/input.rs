//! `trunk_input`.

use gpu_kernels::trunk::input::{INPUT_WIDTH, trunk_input, trunk_input_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Outcome, case};
use reference::config::Sizes;

use super::support::{N_ROWS, PRECISIONS, decoded, encoded, normals, poisoned_operands};

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

/// Exactly the parts, rounded once. A row past the end shows a write out of bounds.
fn check(device: &Device, window: usize, n_rows: usize, on: [bool; 3]) -> Outcome {
    let lab = Lab::new(device)?;
    let sizes = Sizes::new(window, 8, 4, 5);
    let (stride, columns) = (sizes.state_stride(), sizes.input());
    assert_eq!(columns.width, INPUT_WIDTH);
    let mut numbers = Numbers::new((window * 1000 + n_rows) as u64);
    let rows = normals(&mut numbers, n_rows * stride, 2.0);
    let parts = [64, 64, 32].map(|width| normals(&mut numbers, n_rows * width, 1.0));
    let given: Vec<&[f32]> = parts.iter().zip(on).map(|(part, on)| if on { &part[..] } else { &[] }).collect();
    let mut want = vec![0.0; n_rows * INPUT_WIDTH];
    for (row, u) in want.chunks_exact_mut(INPUT_WIDTH).enumerate() {
        let state = &rows[row * stride..];
        u[..columns.portfolio].copy_from_slice(&state[(window - 1) * 24..window * 24]);
        u[columns.portfolio..columns.temporal].copy_from_slice(&state[window * 24..window * 24 + 16]);
        for (part, (first, width)) in
            given.iter().zip([(columns.temporal, 64), (columns.attention, 64), (columns.bottleneck, 32)])
        {
            if !part.is_empty() {
                u[first..first + width].copy_from_slice(&part[row * width..(row + 1) * width]);
            }
        }
    }
    for precision in PRECISIONS {
        let u = poisoned_operands(&lab, (n_rows + 1) * INPUT_WIDTH, precision)?;
        let (rows, temporal) = (lab.upload(&rows)?, lab.upload(given[0])?);
        let (attention, bottleneck) = (lab.upload(given[1])?, lab.upload(given[2])?);
        let launch = trunk_input::launch(
            rows.view(),
            temporal.view(),
            attention.view(),
            bottleneck.view(),
            u.slice(0..n_rows * INPUT_WIDTH * precision.words()).view_mut(),
            window as u32,
            precision,
        );
        lab.run(trunk_input_shape(n_rows), launch)?;
        let got = decoded(&u.read()?, precision);
        let rounded = decoded(&encoded(&want, precision), precision);
        assert_eq!(bits(&got[..want.len()]), bits(&rounded), "window {window}, {n_rows} rows, {precision:?}");
        assert!(got[want.len()..].iter().all(|value| value.is_nan()));
    }
    Ok(())
}
