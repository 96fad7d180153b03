//! Parts of the network and of its atoms.

use onegraph_tests::{Failed, ensure};

use super::super::{ensure_learns, ensure_only_on, ensure_part_of_u};
use super::{Beside, Switch};
use crate::tensors::Tensors;

pub static SWITCHES: [Switch; 7] = [
    Switch {
        name: "temporal",
        with: &[],
        step: 2,
        beside: Beside::FirstBatch,
        own: &[],
        shows: |on, off| {
            ensure_only_on(on, off, &["online.temporal", "target_next.temporal", "d_temporal"])?;
            // Decay reaches its matrices all the same.
            ensure_learns(on, off, "temporal.norm.gain")?;
            ensure_part_of_u(on, off, 40..104)
        },
    },
    Switch {
        name: "attention",
        with: &[],
        step: 2,
        beside: Beside::FirstBatch,
        own: &[],
        shows: |on, off| {
            ensure_only_on(on, off, &["online.attention", "target_next.attention", "d_attention"])?;
            ensure_learns(on, off, "attention.channels.wo")?;
            ensure_part_of_u(on, off, 104..168)
        },
    },
    // W_isv begins at 0. Its gradient is a part of the norm.
    Switch {
        name: "film",
        with: &[],
        step: 3,
        beside: Beside::FirstStep,
        own: &[
            "film.weight",
            "online.film_inputs",
            "online_next.film_inputs",
            "target_next.film_inputs",
            "theta.squared_norm",
            "readback.grad_norm_sq",
            "isv.2",
            "isv.22",
        ],
        shows: |on, off| {
            ensure_learns(on, off, "film.weight")?;
            let modulates =
                |step: &Tensors| -> Result<bool, Failed> { Ok(step.values("online.film")?.iter().any(|x| *x != 0.0)) };
            ensure!(modulates(on)? && !modulates(off)?, "g and s");
            Ok(())
        },
    },
    Switch {
        name: "spectral",
        with: &["sigma_max=0.1"],
        step: 2,
        beside: Beside::AtNothing(&["sigma_max=1000000"]),
        own: &["spectral.u"],
        shows: |on, off| {
            let (on, off) = (on.values("spectral.scales")?, off.values("spectral.scales")?);
            ensure!(on.iter().all(|scale| *scale < 0.2), "scales of {on:?} for a bound of 0.1");
            ensure!(off.iter().all(|scale| *scale == 1.0), "scales of {off:?} off");
            Ok(())
        },
    },
    Switch {
        name: "depth",
        with: &["depth_keep_last=0.000001"],
        step: 2,
        beside: Beside::AtNothing(&["depth_keep_last=1"]),
        own: &[],
        shows: |on, off| {
            let adds = |step: &Tensors, pass: &str| -> Result<bool, Failed> {
                Ok(step.values(&format!("{pass}.h.2"))? != step.values(&format!("{pass}.h.1"))?)
            };
            ensure!(on.values("scalars.depth_mask")?[1] == 0.0 && !adds(on, "online")?, "the last block is kept");
            ensure!(adds(on, "target_next")?, "the target net leaves a block out");
            ensure!(off.values("scalars.depth_mask")? == [1.0, 1.0] && adds(off, "online")?, "a block is left out");
            Ok(())
        },
    },
    // W_g begins at 0, which are even gates. Its gradient is a part of the norm.
    Switch {
        name: "selection",
        with: &[],
        step: 3,
        beside: Beside::FirstStep,
        own: &["branch.gate.", "d_gate_logits", "theta.squared_norm", "readback.grad_norm_sq", "isv.2", "isv.22"],
        shows: |on, off| {
            ensure_learns(on, off, "branch.gate.direction.weight")?;
            let selects = |step: &Tensors| -> Result<bool, Failed> {
                Ok(step.values("online.gates")?.iter().any(|gate| *gate != 0.125))
            };
            ensure!(selects(on)?, "even gates after two updates");
            Ok(())
        },
    },
    // The atoms themselves follow at the next boundary.
    Switch {
        name: "spacing",
        with: &[],
        step: 50,
        beside: Beside::On,
        own: &["spacing.after"],
        shows: |on, off| {
            let moves = |step: &Tensors| -> Result<bool, Failed> {
                Ok(step.values("spacing.after")? != step.values("spacing.before")?)
            };
            ensure!(moves(on)? && !moves(off)?, "spacing at step 50");
            Ok(())
        },
    },
];
