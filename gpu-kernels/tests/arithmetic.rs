//! The kernels' plain arithmetic, where every input can be tried.

use gpu_kernels::philox::{box_muller, cos_turns, unit};
use gpu_kernels::seg_tree::goes_right;

/// Every argument that a uniform can be, against the f64 cosine, within the documented 2^-23.
#[test]
fn the_cosine_holds_its_bound_for_every_uniform() {
    let worst = (0..=1u32 << 24)
        .map(|i| {
            let turns = i as f32 / 16_777_216.0;
            (cos_turns(turns) as f64 - (std::f64::consts::TAU * turns as f64).cos()).abs()
        })
        .fold(0.0, f64::max);
    println!("cosine: {:.1}% of the tolerance used", 100.0 * worst / 2f64.powi(-23));
    assert!(worst <= 2f64.powi(-23), "{worst:e}");
}

#[test]
fn quarters_of_a_turn_are_exact() {
    assert_eq!([0.0, 0.25, 0.5, 0.75, 1.0].map(cos_turns), [1.0, 0.0, -1.0, 0.0, 1.0]);
}

/// The least and the largest word give finite normals: u1 = 1 - uniform is never 0.
#[test]
fn normals_are_finite_at_the_ends_of_the_uniforms() {
    for word in [0, u32::MAX] {
        for angle in [0, 1 << 30, 1 << 31, u32::MAX] {
            let normal = box_muller(unit(word), unit(angle));
            assert!(normal.is_finite() && normal.abs() < 5.8, "{word:x} {angle:x}: {normal}");
        }
    }
    assert_eq!(box_muller(0.0, 0.0), 0.0);
}

#[test]
fn a_draw_goes_right_only_where_there_is_mass() {
    assert!(!goes_right(0.0, 1.0, 1.0));
    assert!(goes_right(1.0, 1.0, 1.0));
    assert!(!goes_right(1.0, 1.0, 0.0), "nothing lies right, whatever the rounding");
    assert!(goes_right(0.0, 0.0, 1.0), "nothing lies left");
}
