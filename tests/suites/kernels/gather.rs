//! `gather_f32_rows_padded`.

use gpu_kernels::gather::{gather_f32_rows_padded, gather_f32_rows_padded_shape};
use host::device::Device;
use onegraph_tests::ensure;
use onegraph_tests::lab::{Lab, Numbers, bits, for_all};
use onegraph_tests::{Case, Failed, Outcome, case};
use proptest::prelude::*;

pub fn cases() -> Vec<Case> {
    vec![
        case("gather::by_hand", by_hand),
        case("gather::widths_and_strides_across_every_edge", widths_and_strides_across_every_edge),
        case("gather::random_shapes_give_exactly_the_rows", random_shapes_give_exactly_the_rows),
        case("gather::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

fn by_hand(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let source = lab.upload(&[1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    let indices = lab.upload(&[2u32, 0, 2])?;
    let target = lab.poisoned(9)?;
    let launch = gather_f32_rows_padded::launch(source.view(), indices.view(), target.view_mut(), 2, 3);
    lab.run(gather_f32_rows_padded_shape(3), launch)?;
    assert_eq!(target.read()?, [5.0, 6.0, 0.0, 1.0, 2.0, 0.0, 5.0, 6.0, 0.0]);
    Ok(())
}

fn widths_and_strides_across_every_edge(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let shapes = [
        (400, 448), // preset full: vectors, a padding of 12 of them
        (112, 128), // preset tiny
        (448, 448), // no padding
        (1, 64),    // elements, nearly all padding
        (401, 448), // a width that is no multiple of four
        (4, 6),     // a stride that is none
        (7, 7),     // neither
        (4, 4),     // one vector
        (516, 576), // past what a warp holds in flight
        (1030, 1088),
    ];
    for (width, stride) in shapes {
        for n_rows in [1, 7, 8, 9, 300] {
            check(&lab, 37, n_rows, width, stride, 7)?;
        }
    }
    check(&lab, 1, 5000, 400, 448, 1)
}

fn random_shapes_give_exactly_the_rows(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let shapes = (1usize..50, 1usize..80, 1usize..140, 0usize..70, any::<u64>());
    for_all(shapes, |(n_source, n_rows, width, padding, seed)| {
        check(&lab, n_source, n_rows, width, width + padding, seed)
    })
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (source, indices, target) = (lab.upload(&[1.0f32; 4])?, lab.upload::<u32>(&[])?, lab.poisoned(4)?);
    let launch = gather_f32_rows_padded::launch(source.view(), indices.view(), target.view_mut(), 4, 4);
    lab.run(gather_f32_rows_padded_shape(0), launch)?;
    assert!(target.read()?.iter().all(|value| value.is_nan()));
    Ok(())
}

/// Random rows of random bits, against a loop. A row past the target's end shows a write out of its bounds.
fn check(lab: &Lab, n_source: usize, n_rows: usize, width: usize, stride: usize, seed: u64) -> Result<(), Failed> {
    let mut numbers = Numbers::new(seed);
    let rows: Vec<f32> = (0..n_source * width).map(|_| f32::from_bits(numbers.word() as u32)).collect();
    let picks: Vec<u32> = (0..n_rows).map(|_| numbers.below(n_source) as u32).collect();
    let (source, indices, target) = (lab.upload(&rows)?, lab.upload(&picks)?, lab.poisoned((n_rows + 1) * stride)?);
    let launch = gather_f32_rows_padded::launch(
        source.view(),
        indices.view(),
        target.slice(0..n_rows * stride).view_mut(),
        width as u32,
        stride as u32,
    );
    lab.run(gather_f32_rows_padded_shape(n_rows), launch)?;
    let mut expected = Vec::with_capacity((n_rows + 1) * stride);
    for &pick in &picks {
        expected.extend_from_slice(&rows[pick as usize * width..(pick as usize + 1) * width]);
        expected.resize(expected.len() + stride - width, 0.0);
    }
    expected.resize(expected.len() + stride, f32::NAN);
    ensure!(
        bits(&target.read()?) == bits(&expected),
        "{n_rows} of {n_source} rows of {width} into {stride}, seed {seed}"
    );
    Ok(())
}
