//! Random numbers, rounding, layout, initial values.

use std::sync::Arc;

use crate::support::*;
use reference::activation::softplus;
use reference::config::Sizes;
use reference::init::{initial_values, inverse_softplus};
use reference::layout::{ALIGNMENT, Group, Init, Layout, trunk_matrices};
use reference::matrix::{Matrix, mean, variance};
use reference::philox::{normal, philox4x32_10, uniform, word_to_uniform};
use reference::precision::{Precision, round_bf16};

/// The vectors published with Random123 (`kat_vectors`, philox4x32 10).
#[test]
fn philox_known_answers() {
    for (counter, key, want) in [
        ([0; 4], [0; 2], [0x6627_e8d5, 0xe169_c58d, 0xbc57_ac4c, 0x9b00_dbd8]),
        ([u32::MAX; 4], [u32::MAX; 2], [0x408f_276d, 0x41c8_3b0e, 0xa20b_c7c6, 0x6d54_51fd]),
        (
            [0x243f_6a88, 0x85a3_08d3, 0x1319_8a2e, 0x0370_7344],
            [0xa409_3822, 0x299f_31d0],
            [0xd16c_fe09, 0x94fd_cceb, 0x5001_e420, 0x2412_6ea1],
        ),
    ] {
        assert_eq!(philox4x32_10(counter, key), want);
    }
}

#[test]
fn uniforms_span_their_range_and_normals_have_their_moments() {
    assert_eq!((word_to_uniform(0), word_to_uniform(u32::MAX)), (0.0, 1.0 - 2f64.powi(-24)));
    let n = 40_000;
    let uniforms: Vec<f64> = (0..n).map(|e| uniform(7, 3, 1, e)).collect();
    let normals: Vec<f64> = (0..n).map(|e| normal(7, 3, 1, e)).collect();
    // Four standard errors: sigma / sqrt(n), and sqrt(2 / n) for a normal's variance.
    let root = f64::from(n).sqrt();
    assert_close("mean of uniforms", mean(&uniforms), 0.5, 4.0 * (1.0 / 12f64).sqrt() / root);
    assert_close("mean of normals", mean(&normals), 0.0, 4.0 / root);
    assert_close("variance of normals", variance(&normals), 1.0, 4.0 * 2f64.sqrt() / root);
    assert_ne!(uniform(7, 3, 1, 0), uniform(7, 4, 1, 0), "another stream");
    assert_ne!(uniform(7, 3, 1, 0), uniform(7 << 32, 3, 1, 0), "the seed's high word counts");
}

#[test]
fn bf16_rounds_to_nearest_even() {
    // Neighbours of 1 in bf16 are 2^-7 apart; of 1 + 2^-7 the mantissa is odd.
    let step = 2f64.powi(-7);
    for (why, x, want) in [
        ("representable", 1.0 + step, 1.0 + step),
        ("tie goes to the even one, down", 1.0 + step / 2.0, 1.0),
        ("tie goes to the even one, up", 1.0 + 1.5 * step, 1.0 + 2.0 * step),
        ("just over a tie", 1.0 + step / 2.0 + 2f64.powi(-20), 1.0 + step),
        ("carries into the exponent", 2.0 - step / 4.0, 2.0),
        ("negative", -1.0 - 1.5 * step, -1.0 - 2.0 * step),
        ("zero", 0.0, 0.0),
        ("past the greatest finite", 3.4e38, f64::INFINITY),
    ] {
        assert_eq!(round_bf16(x), want, "{why}");
    }
    assert!(round_bf16(f64::NAN).is_nan());
}

#[test]
fn products_agree_with_their_definition_and_round_both_operands() {
    let mut numbers = Numbers(1);
    let (x, w) = (numbers.matrix(3, 4, 1.0), numbers.matrix(2, 4, 1.0));
    for precision in [Precision::Exact, Precision::Bf16] {
        let r = |v: f64| precision.operand(v);
        let y = precision.linear(&x, &w);
        for i in 0..3 {
            for j in 0..2 {
                let want: f64 = (0..4).map(|k| r(x[(i, k)]) * r(w[(j, k)])).sum();
                assert_close("x W^T", y[(i, j)], want, 1e-15);
            }
        }
        // dy W and dy^T x are the same product on transposed operands.
        let dx = precision.linear(&y, &w.transposed());
        assert!(precision.linear_dx(&y, &w).zip(&dx, |a, b| a - b).values.iter().all(|d| d.abs() < 1e-14));
        let dw = precision.linear(&y.transposed(), &x.transposed());
        assert!(precision.linear_dw(&y, &x).zip(&dw, |a, b| a - b).values.iter().all(|d| d.abs() < 1e-14));
    }
    assert_eq!(Matrix::from_values(1, 2, vec![1.0, 2.0]).transposed().values, [1.0, 2.0]);
}

#[test]
fn layout_is_aligned_in_order_and_of_the_designs_sizes() {
    let sizes = Sizes::FULL;
    assert_eq!((sizes.state_dim(), sizes.state_stride(), sizes.input().width), (400, 448, 200));
    let layout = Layout::new(&sizes);
    let mut end = 0;
    for tensor in &layout.tensors {
        assert!(tensor.offset.is_multiple_of(ALIGNMENT) && tensor.offset >= end && tensor.offset < end + ALIGNMENT);
        end = tensor.range().end;
    }
    for (name, shape) in [
        ("temporal.in_proj.weight", vec![292, 64]),
        ("temporal.conv.weight", vec![160, 4]),
        ("trunk.in.weight", vec![512, 200]),
        ("film.weight", vec![1024, 12]),
        ("branch.gate.direction.weight", vec![8, 512]),
        ("branch.value.out.weight", vec![204, 128]),
        ("branch.direction.out.weight", vec![204, 128]),
        ("branch.hold.out.bias", vec![153]),
        ("attention.channels.wq", vec![16, 16]),
        ("iqn.out.weight", vec![13, 128]),
        ("iql_low.hidden.weight", vec![128, 512]),
        ("denoise.decoder.weight", vec![24, 32]),
    ] {
        assert_eq!(layout.tensor(name).shape, shape, "{name}");
    }
    let groups =
        [Group::Theta, Group::Attention, Group::Iqn, Group::IqlHigh, Group::IqlLow, Group::Selectivity, Group::Denoise];
    let mut end = 0;
    for group in groups {
        assert_eq!(layout.range(group).start, end, "groups follow one another");
        end = layout.range(group).end;
    }
    assert_eq!(end, layout.len());
    assert_eq!(layout.target_range(), 0..layout.range(Group::IqlHigh).start);
    assert_eq!(trunk_matrices(&sizes).len(), 5);
}

#[test]
fn decay_and_pruning_reach_the_right_tensors() {
    let layout = Layout::new(&Sizes::TINY);
    let without_decay = ["bias", "gain", "conv.weight", "dt_bias", "a_log", "temporal.d", ".b1", ".b2"];
    for tensor in &layout.tensors {
        let exempt = without_decay.iter().any(|end| tensor.name.ends_with(end));
        assert_eq!(tensor.decays, !exempt, "{}", tensor.name);
    }
    let prunable: Vec<&str> = layout.tensors.iter().filter(|t| t.prunable).map(|t| t.name.as_str()).collect();
    assert_eq!(prunable.len(), 5 + 10, "five matrices of the trunk, two each of V and the four A_b: {prunable:?}");
    assert!(prunable.iter().all(|name| name.starts_with("trunk.") || name.starts_with("branch.")));
    assert!(prunable.iter().all(|name| !name.contains("gate") && !name.contains("bias") && !name.contains("gain")));
}

#[test]
fn initial_values_have_their_distributions() {
    let layout = Arc::new(Layout::new(&Sizes::SMALL));
    let p = initial_values(&layout, 42);
    for (i, tensor) in layout.tensors.iter().enumerate() {
        let values = p.slice(&tensor.name);
        match tensor.init {
            Init::Zero => assert!(values.iter().all(|x| *x == 0.0), "{}", tensor.name),
            Init::One => assert!(values.iter().all(|x| *x == 1.0), "{}", tensor.name),
            Init::Normal(factor) => {
                let want = factor * normal(42, 1000 + i as u32, 0, 3) / (tensor.fan_in() as f64).sqrt();
                assert_eq!(values[3], want, "{}: stream, element and scale", tensor.name);
            }
            Init::Conv => assert!(values.iter().all(|x| (-0.5..0.5).contains(x)), "{}", tensor.name),
            Init::ALog => assert!(values.iter().all(|x| (1.0..16.0).contains(&x.exp())), "{}", tensor.name),
            Init::DtBias => {
                assert!(values.iter().all(|x| (0.000_999..0.100_1).contains(&softplus(*x))), "{}", tensor.name);
            }
        }
    }
    let w = p.slice("trunk.in.weight");
    // Relative error of a sample variance is sqrt(2 / n); n = 12,800.
    assert_close("variance of W_in times fan-in", variance(w) * 200.0, 1.0, 4.0 * (2.0 / w.len() as f64).sqrt());
    let is_last = |t: &&reference::layout::TensorSpec| t.init == Init::Normal(0.01);
    let hundredths: Vec<&str> = layout.tensors.iter().filter(is_last).map(|t| t.name.as_str()).collect();
    assert_eq!(hundredths.len(), 6, "last layers of V, four A_b and IQN: {hundredths:?}");
    assert!(hundredths.iter().all(|name| name.ends_with("out.weight")));
    assert_close("inverse of softplus", softplus(inverse_softplus(0.037)), 0.037, 1e-15);
}
