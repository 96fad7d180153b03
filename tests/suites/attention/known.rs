//! Answers that can be worked out by hand, of one row of four bars.

use gpu_kernels::attention::{WIDTH, position};
use host::device::Device;
use onegraph_tests::lab::Lab;
use onegraph_tests::{Case, Outcome, case, ensure};

use crate::problem::{PRECISIONS, Problem, ways};

pub fn cases() -> Vec<Case> {
    vec![
        case("known::without_weights_the_positions_are_normed_twice", without_weights_the_positions_are_normed_twice),
        case(
            "known::equal_bars_and_even_weights_average_the_channels",
            equal_bars_and_even_weights_average_the_channels,
        ),
        case("known::a_sharp_head_copies_from_the_bar_it_looks_at", a_sharp_head_copies_from_the_bar_it_looks_at),
    ]
}

const T: usize = 4;
const EPSILON: f64 = 1e-5;

/// One row of four bars of zeros; every tensor is 0 but the gains, which are 1.
fn blank() -> Problem {
    let mut problem = Problem::new(1, T, 1);
    problem.parameters.flat.fill(0.0);
    problem.parameters.slice_mut("attention.bars.gain").fill(1.0);
    problem.parameters.slice_mut("attention.channels.gain").fill(1.0);
    problem.bars = problem.bars.map(|_| 0.0);
    problem
}

/// The mean of x / sqrt(mean of x^2 + 1e-5) over four bars.
fn mean_of_normed(x: [f64; T]) -> f64 {
    let square = x.iter().map(|x| x * x).sum::<f64>() / T as f64;
    x.iter().sum::<f64>() / T as f64 / (square + EPSILON).sqrt()
}

/// Every number here and in the operands is of order 1 and a chain of some ten roundings of f32 long.
fn expect(device: &Device, problem: &Problem, want: impl Fn(usize) -> f64) -> Outcome {
    let lab = Lab::new(device)?;
    for precision in PRECISIONS {
        for way in ways(&lab, precision, T) {
            let output = problem.forward(&lab, precision, way)?;
            for (channel, got) in output.iter().enumerate() {
                let (got, want) = (f64::from(*got), want(channel));
                ensure!(
                    (got - want).abs() <= 2e-6,
                    "{precision:?}, {way:?}, channel {channel}: {got}, {want} expected"
                );
            }
        }
    }
    Ok(())
}

/// sin^2 + cos^2 = 1 makes the mean square of every bar's positions 1/2.
fn without_weights_the_positions_are_normed_twice(device: &Device) -> Outcome {
    expect(device, &blank(), |channel| {
        let normed = |bar: usize| f64::from(position(bar, channel)) / (0.5 + EPSILON).sqrt();
        mean_of_normed([normed(0), normed(1), normed(2), normed(3)])
    })
}

/// Adds to a square matrix's element.
fn add(problem: &mut Problem, tensor: &str, row: usize, column: usize, value: f64) {
    let width = if tensor.starts_with("attention.bars") { WIDTH } else { T };
    problem.parameters.slice_mut(tensor)[row * width + column] += value;
}

/// A bias so large that positions vanish beside it (within 2^-24) gives every bar the same signs: + in 48 channels, - in 16. Normed they are
/// +-1. Queries of 0 weigh all channels evenly, so that each is given the mean, 1/2, of which W_o = diag(0, 2, 0, 2) lets twice
/// through at bars 1 and 3: 1, 2, 1, 2 in the channels of +, -1, 0, -1, 0 in the others.
fn equal_bars_and_even_weights_average_the_channels(device: &Device) -> Outcome {
    let mut problem = blank();
    let sign = |channel: usize| if channel % 4 == 1 { -1.0 } else { 1.0 };
    for (channel, bias) in problem.parameters.slice_mut("attention.embed.bias").iter_mut().enumerate() {
        *bias = 2f64.powi(40) * sign(channel);
    }
    for bar in 0..T {
        add(&mut problem, "attention.channels.wv", bar, bar, 1.0);
    }
    for bar in [1, 3] {
        add(&mut problem, "attention.channels.wo", bar, bar, 2.0);
    }
    expect(device, &problem, |channel| {
        let s = sign(channel);
        mean_of_normed([s, s + 1.0, s, s + 1.0])
    })
}

/// The last head of the attention over bars scores a bar by its feature 7, which bar 2 alone has: 2^10 against 0 after the scale, so that
/// the others' weight is 0. It copies feature 9 of that bar, 3, 5, 8, 2 being those of the four, into channel 20 of every bar. The positions
/// vanish beside 2^30 of every value.
fn a_sharp_head_copies_from_the_bar_it_looks_at(device: &Device) -> Outcome {
    const LARGE: f64 = (1u64 << 30) as f64;
    const FEATURE_9: [f64; T] = [3.0, 5.0, 8.0, 2.0];
    let (asks, looks, takes, into) = (10, 11, 12, 20);
    let mut problem = blank();
    let mut embed = |channel: usize, feature: usize| {
        problem.parameters.slice_mut("attention.embed.weight")[channel * 24 + feature] = LARGE;
    };
    embed(asks, 0);
    embed(looks, 7);
    embed(takes, 9);
    for (bar, value) in FEATURE_9.into_iter().enumerate() {
        problem.bars[(bar, 0)] = 1.0;
        problem.bars[(bar, 9)] = value;
    }
    problem.bars[(2, 7)] = 1.0;
    // A head of 16 columns: 2^10 = 2^30 2^-24 times 2^30 2^-24, over 4.
    add(&mut problem, "attention.bars.wq", 48, asks, 2f64.powi(-24));
    add(&mut problem, "attention.bars.wk", 48, looks, 2f64.powi(-24));
    add(&mut problem, "attention.bars.wv", 50, takes, 1.0);
    add(&mut problem, "attention.bars.wo", into, 50, 1.0);
    expect(device, &problem, |channel| {
        let of_bar = |bar: usize| {
            let looked_at = if bar == 2 { 1.0 } else { 0.0 };
            let channels = [(asks, 1.0), (looks, looked_at), (takes, FEATURE_9[bar]), (into, FEATURE_9[2])];
            let square = channels.iter().map(|(_, x)| x * x).sum::<f64>() / WIDTH as f64;
            let x = channels.iter().find(|(at, _)| *at == channel).map_or(0.0, |(_, x)| *x);
            x / square.sqrt()
        };
        mean_of_normed([of_bar(0), of_bar(1), of_bar(2), of_bar(3)])
    })
}
