//! The table of switches.

use onegraph_tests::{Failed, Outcome, ensure};
use shared_types::isv;

use super::{ensure_learns, ensure_only_on, ensure_part_of_u};
use crate::tensors::Tensors;

/// What the rest of a step is compared with.
pub enum Beside {
    /// The learner touches nothing of the others'.
    On,
    /// With its strength at nothing it changes nothing, and with its own something.
    AtNothing(&'static [&'static str]),
    /// In the first step it changes nothing, in the one looked at something.
    FirstStep,
    /// It reaches everything but the first batch.
    FirstBatch,
}

/// A learner's switch, and how a step shows how it stands.
pub struct Switch {
    /// Key under `learners`.
    pub name: &'static str,
    /// What else the steps are given, on and off.
    pub with: &'static [&'static str],
    /// The step that is looked at.
    pub step: u32,
    /// What the rest is compared with.
    pub beside: Beside,
    /// What is the learner's own, by name or by what a tensor is of; with a dot at its end the beginning of such a name.
    pub own: &'static [&'static str],
    /// What must hold of the step with the learner, and of the one without it.
    pub shows: fn(&Tensors, &Tensors) -> Outcome,
}

/// All of them, in the order of the configuration.
pub const SWITCHES: [Switch; 18] = [
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
    Switch {
        name: "cql",
        with: &["alpha_cql=1"],
        step: 2,
        beside: Beside::AtNothing(&["alpha_cql=0"]),
        own: &[],
        shows: |on, off| {
            let (ce, cql, objective) =
                (on.one("totals.weighted_ce")?, on.one("totals.cql")?, on.one("totals.objective")?);
            ensure!(cql > 0.0 && (objective - ce - cql).abs() <= 1e-6 * objective, "J {objective}, {ce} and {cql}");
            let (ce, objective) = (off.one("totals.weighted_ce")?, off.one("totals.objective")?);
            ensure!(objective == ce, "J {objective} is not the cross-entropy {ce}");
            Ok(())
        },
    },
    // Under this seed the loss falls, so that readiness rises.
    Switch {
        name: "iqn",
        with: &["seed=5", "lambda_iqn=10"],
        step: 4,
        beside: Beside::AtNothing(&["lambda_iqn=0"]),
        own: &["iqn.", "head_losses.1", "isv.21"],
        shows: |on, off| {
            ensure_only_on(on, off, &["iqn.quantiles", "iqn.next_quantiles", "iqn.d_h"])?;
            ensure_learns(on, off, "iqn.out.weight")?;
            ensure!(off.isv(isv::IQN_READINESS)? == 0.0 && off.values("head_losses")?[1] == 0.0, "off it tells a loss");
            Ok(())
        },
    },
    Switch {
        name: "iql",
        with: &[],
        step: 3,
        beside: Beside::AtNothing(&["beta_adv=0"]),
        own: &[
            "iql.",
            "iql_high.",
            "iql_low.",
            "d_iql.",
            "popart.",
            "q_taken",
            "v_high",
            "v_low",
            "head_losses.2",
            "head_losses.3",
            "isv.10",
            "isv.19",
            "isv.20",
        ],
        shows: |on, off| {
            ensure_only_on(on, off, &["v_high", "v_low", "popart.after.mean"])?;
            ensure_learns(on, off, "iql_high.out.weight")?;
            ensure_learns(on, off, "iql_low.hidden.weight")?;
            ensure!(on.isv(isv::POPART_STD)? != 1.0 && on.isv(isv::IQL_GAP)? != 0.0, "PopArt and the gap stand");
            ensure!(off.isv(isv::POPART_STD)? == 1.0 && off.isv(isv::IQL_GAP)? == 0.0, "PopArt or the gap moves");
            Ok(())
        },
    },
    Switch {
        name: "her",
        with: &[],
        step: 2,
        beside: Beside::AtNothing(&["her.ratio=0", "her.weight=0"]),
        own: &[],
        shows: |on, off| {
            let n = |step: &Tensors| -> Result<f64, Failed> { Ok(step.values("batch.relabelled")?.iter().sum()) };
            ensure!(n(on)? > 0.0 && n(off)? == 0.0, "{} rows on, {} off", n(on)?, n(off)?);
            let kept = |step: &Tensors| -> Result<usize, Failed> {
                Ok(step.values("td_errors")?.iter().filter(|td| td.is_nan()).count())
            };
            ensure!(kept(on)? as f64 == n(on)? && kept(off)? == 0, "a relabelled row writes its priority");
            Ok(())
        },
    },
    Switch {
        name: "selectivity",
        with: &[],
        step: 3,
        beside: Beside::On,
        own: &["select.", "selectivity.", "p_trade", "d_select.", "head_losses.4", "isv.16"],
        shows: |on, off| {
            ensure_only_on(on, off, &["p_trade", "select.rate"])?;
            ensure_learns(on, off, "select.weight")?;
            ensure!(off.isv(isv::SELECT_RATE)? == 0.0, "off it tells a rate");
            let rows = on.values("p_trade")?;
            let share = rows.iter().filter(|p| **p >= f64::from(0.4f32)).count() as f64 / rows.len() as f64;
            ensure!(on.isv(isv::SELECT_RATE)? == share, "{} of {share} trade", on.isv(isv::SELECT_RATE)?);
            Ok(())
        },
    },
    Switch {
        name: "denoise",
        with: &[],
        step: 2,
        beside: Beside::FirstBatch,
        own: &[],
        shows: |on, off| {
            ensure_only_on(on, off, &["denoise.inputs", "denoise.row_losses"])?;
            ensure_learns(on, off, "denoise.encoder.weight")?;
            ensure_part_of_u(on, off, 168..200)?;
            ensure!(on.isv(isv::DENOISE_EMA)? > 0.0 && off.isv(isv::DENOISE_EMA)? == 0.0, "the loss's average");
            Ok(())
        },
    },
    Switch {
        name: "risk",
        with: &["risk.lr=0.01", "risk.target=-10"],
        step: 3,
        beside: Beside::On,
        own: &["cvar", "cvar_loss", "isv.45"],
        shows: |on, off| {
            ensure_only_on(on, off, &["cvar", "cvar_loss"])?;
            let (on, off) = (on.isv(isv::RISK_ETA)?, off.isv(isv::RISK_ETA)?);
            ensure!(on < 1.0 && off == 1.0, "eta is {on}, and {off} off");
            Ok(())
        },
    },
    Switch {
        name: "pruning",
        with: &["prune.final=0.5", "prune.end=2", "prune.every=1"],
        step: 3,
        beside: Beside::AtNothing(&["prune.final=0"]),
        own: &[],
        shows: |on, off| {
            let zeros = |step: &Tensors| -> Result<f64, Failed> {
                let weights = step.values("param.after.trunk.block0.w1")?;
                Ok(weights.iter().filter(|w| **w == 0.0).count() as f64 / weights.len() as f64)
            };
            // At most half of the weights, and bins of equal sizes, 2^-7 wide, hold but a few.
            ensure!(zeros(on)? > 0.45 && zeros(on)? <= 0.5, "a share of {} is 0", zeros(on)?);
            ensure!(zeros(off)? == 0.0 && off.isv(isv::SPARSITY)? == 0.0, "weights are 0 without pruning");
            ensure!(on.isv(isv::SPARSITY)? > 0.4 && !on.values("masks")?.is_empty(), "sparsity");
            Ok(())
        },
    },
    // Successive gradients of single rows at a high rate come into conflict.
    Switch {
        name: "vaccine",
        with: &["batch=1", "lr=0.02"],
        step: 8,
        beside: Beside::AtNothing(&["vaccine.weight=0"]),
        own: &["vaccine.", "snapshot.before.", "snapshot.after.", "isv.18"],
        shows: |on, off| {
            ensure_only_on(on, off, &["snapshot.before.trunk.in.weight"])?;
            ensure!(on.one("vaccine.multiple")? > 0.0, "the two gradients are no conflict");
            ensure!(on.one("vaccine.compared")? == 1.0 && off.one("vaccine.compared")? == 0.0, "what is compared");
            ensure!(on.isv(isv::VACCINE_COS_EMA)? != 0.0 && off.isv(isv::VACCINE_COS_EMA)? == 0.0, "phi");
            Ok(())
        },
    },
    // A rate of 1 makes the norm rise to more than twice its average.
    Switch {
        name: "adaptive_clip",
        with: &["lr=1", "clip=1000000"],
        step: 3,
        beside: Beside::FirstStep,
        own: &[],
        shows: |on, off| {
            let scale = |step: &Tensors| step.one("update.theta.gradient_scale");
            ensure!(scale(on)? < 1.0 && scale(off)? == 1.0, "scales of {} and {}", scale(on)?, scale(off)?);
            Ok(())
        },
    },
    Switch {
        name: "causal",
        with: &["causal.every=2"],
        step: 3,
        beside: Beside::On,
        own: &[
            "causal.",
            "readback.causal_mean_sens",
            "isv.11",
            "online.film_inputs",
            "online_next.film_inputs",
            "target_next.film_inputs",
        ],
        shows: |on, off| {
            ensure_only_on(on, off, &["causal.sensitivity"])?;
            let told = |step: &Tensors| step.one("readback.causal_mean_sens");
            ensure!(told(on)? > 0.0 && told(off)? == 0.0, "{} on, {} off", told(on)?, told(off)?);
            Ok(())
        },
    },
];
