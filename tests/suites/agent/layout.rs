//! Tensors and their initial values.

use std::sync::Arc;

use host::agent::Sizes;
use host::agent::initial::initial_values;
use host::agent::layout::{ALIGNMENT, Group, Layout};
use onegraph_tests::ensure;
use onegraph_tests::{Case, Outcome, host_case};
use reference::init;
use reference::layout as expected;

pub fn cases() -> Vec<Case> {
    vec![
        host_case("layout::tensors_lie_where_the_reference_has_them", tensors_lie_where_the_reference_has_them),
        host_case("layout::initial_values_are_the_references", initial_values_are_the_references),
        host_case("layout::theta_full_has_the_published_size", theta_full_has_the_published_size),
    ]
}

const SIZES: [Sizes; 3] = [
    Sizes { window: 4, hidden: 32, branch_hidden: 16, atoms: 51 },
    Sizes { window: 8, hidden: 64, branch_hidden: 32, atoms: 51 },
    Sizes { window: 16, hidden: 512, branch_hidden: 128, atoms: 51 },
];

fn expected_layout(sizes: &Sizes) -> Arc<expected::Layout> {
    let sizes = reference::config::Sizes::new(sizes.window, sizes.hidden, sizes.branch_hidden, sizes.atoms);
    Arc::new(expected::Layout::new(&sizes))
}

fn tensors_lie_where_the_reference_has_them() -> Outcome {
    for sizes in SIZES {
        let (layout, expected) = (Layout::new(&sizes), expected_layout(&sizes));
        ensure!(layout.tensors().len() == expected.tensors.len(), "{} tensors", layout.tensors().len());
        ensure!(layout.n_elements() == expected.len(), "{} elements", layout.n_elements());
        ensure!(layout.target() == expected.target_range(), "the target's range");
        for (tensor, expected) in layout.tensors().iter().zip(&expected.tensors) {
            let same = (&tensor.name, &tensor.shape, tensor.offset, tensor.decays, tensor.prunable)
                == (&expected.name, &expected.shape, expected.offset, expected.decays, expected.prunable);
            ensure!(same, "{tensor:?}, not {expected:?}");
            ensure!(tensor.offset.is_multiple_of(ALIGNMENT), "{} begins at {}", tensor.name, tensor.offset);
        }
        let spectral: Vec<&str> =
            layout.tensors().iter().filter(|tensor| tensor.spectral).map(|tensor| tensor.name.as_str()).collect();
        let names = ["trunk.in.weight", "trunk.block0.w1", "trunk.block0.w2", "trunk.block1.w1", "trunk.block1.w2"];
        ensure!(spectral == names, "spectral norm on {spectral:?}");
    }
    Ok(())
}

/// In f32 from the same words: a normal's logarithm, root and cosine are within 2^-21 of each other's f64, relative to the
/// largest normal (5.8) where the cosine passes zero.
fn initial_values_are_the_references() -> Outcome {
    let (sizes, seed) = (SIZES[0], 0x0123_4567_89ab_cdef_u64);
    let (layout, expected) = (Layout::new(&sizes), expected_layout(&sizes));
    let values = initial_values(&layout, [seed as u32, (seed >> 32) as u32]);
    let expected = init::initial_values(&expected, seed);
    for (at, (&value, &want)) in values.iter().zip(&expected.flat).enumerate() {
        let slack = 6.0 * 2f64.powi(-21) + 2f64.powi(-22) * want.abs();
        ensure!((f64::from(value) - want).abs() <= slack, "element {at} is {value}, {want} expected");
    }
    Ok(())
}

/// 1.65 million parameters of theta at the preset `full`.
fn theta_full_has_the_published_size() -> Outcome {
    let layout = Layout::new(&SIZES[2]);
    let theta = layout.tensors().iter().filter(|tensor| tensor.group == Group::Theta);
    let n: usize = theta.map(|tensor| tensor.n_elements()).sum();
    ensure!((1_640_000..1_660_000).contains(&n), "{n} parameters");
    Ok(())
}
