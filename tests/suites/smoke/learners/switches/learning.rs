//! What learns besides the core, and how it does.

use onegraph_tests::{Failed, ensure};
use shared_types::isv;

use super::super::{ensure_learns, ensure_only_on, ensure_part_of_u, moves};
use super::{Beside, Switch};
use crate::tensors::Tensors;

/// What IQL's switch reaches; PopArt's, on top of IQL, all of it but the first: Q of the actions taken.
static IQL: [&str; 13] = [
    "q_taken",
    "iql.",
    "iql_high.",
    "iql_low.",
    "d_iql.",
    "popart.",
    "v_high",
    "v_low",
    "head_losses.2",
    "head_losses.3",
    "isv.10",
    "isv.19",
    "isv.20",
];

pub static SWITCHES: [Switch; 14] = [
    Switch {
        name: "cql",
        with: &["alpha_cql=1"],
        step: 2,
        beside: Beside::AtNothing(&["alpha_cql=0"]),
        own: &["row_losses.3", "totals.cql", "isv.14"],
        shows: |on, off| {
            ensure!(on.isv(isv::CQL_EMA)? > 0.0 && off.isv(isv::CQL_EMA)? == 0.0, "CQL's average");
            let terms = off.values("row_losses")?.into_iter().skip(3).step_by(4);
            ensure!(off.one("totals.cql")? == 0.0 && terms.sum::<f64>() == 0.0, "a term of CQL is worked out");
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
        with: &["learners.popart=true"],
        step: 3,
        beside: Beside::AtNothing(&["beta_adv=0"]),
        own: &IQL,
        shows: |on, off| {
            ensure_only_on(on, off, &["v_high", "v_low", "popart.after.mean"])?;
            ensure_learns(on, off, "iql_high.out.weight")?;
            ensure_learns(on, off, "iql_low.hidden.weight")?;
            ensure!(on.isv(isv::POPART_STD)? != 1.0 && on.isv(isv::IQL_GAP)? != 0.0, "PopArt and the gap stand");
            ensure!(off.isv(isv::POPART_STD)? == 1.0 && off.isv(isv::IQL_GAP)? == 0.0, "PopArt or the gap moves");
            Ok(())
        },
    },
    // Through the modulation it would reach priorities.
    Switch {
        name: "popart",
        with: &["learners.iql=true", "beta_adv=0"],
        step: 3,
        beside: Beside::On,
        own: IQL.split_at(1).1,
        shows: |on, off| {
            ensure_only_on(on, off, &["popart.before.mean", "popart.after.mean", "popart.after.square"])?;
            ensure!(on.isv(isv::POPART_MEAN)? != 0.0 && on.isv(isv::POPART_STD)? != 1.0, "PopArt stands");
            ensure!(off.isv(isv::POPART_MEAN)? == 0.0 && off.isv(isv::POPART_STD)? == 1.0, "PopArt moves");
            let [std, shrink, shift] = ["std", "shrink", "shift"].map(|part| off.one(&format!("iql.{part}")));
            ensure!((std?, shrink?, shift?) == (1.0, 1.0, 0.0), "the heads are rescaled");
            let (out, high) = (off.values("iql.out")?, off.values("v_high")?);
            ensure!(out.iter().step_by(2).eq(&high), "V is not the raw output");
            ensure!(on.isv(isv::IQL_GAP)? != 0.0 && off.isv(isv::IQL_GAP)? != 0.0, "the gap stands");
            ensure!(moves(on, "iql_high.out.weight")? && moves(off, "iql_high.out.weight")?, "V_high does not learn");
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
        name: "q_statistics",
        with: &[],
        step: 50,
        beside: Beside::On,
        own: &[
            "totals.q_mean",
            "totals.q_min",
            "totals.q_max",
            "totals.q_variance",
            "totals.avg_max_q",
            "readback.q_mean",
            "readback.q_min",
            "readback.q_max",
            "readback.q_variance",
            "readback.avg_max_q",
            "isv.5",
            "isv.6",
            "online.film_inputs",
            "online_next.film_inputs",
            "target_next.film_inputs",
        ],
        shows: |on, off| {
            for name in ["q_mean", "q_min", "q_max", "q_variance", "avg_max_q"] {
                for kind in ["totals", "readback"] {
                    let of = |step: &Tensors| step.one(&format!("{kind}.{name}"));
                    ensure!(of(on)? != 0.0 && of(off)? == 0.0, "{kind}.{name}: {} on, {} off", of(on)?, of(off)?);
                }
            }
            for entry in [isv::Q_MEAN_EMA, isv::Q_VAR_EMA] {
                ensure!(on.isv(entry)? != 0.0 && off.isv(entry)? == 0.0, "ISV {entry}");
            }
            Ok(())
        },
    },
    // The target begins as the online network.
    Switch {
        name: "target_ema",
        with: &[],
        step: 3,
        beside: Beside::FirstStep,
        own: &["target.before.", "target.after.", "target_shadow.", "spectral."],
        shows: |on, off| {
            let names =
                ["target.before", "target.after", "target_shadow"].map(|kind| format!("{kind}.trunk.in.weight"));
            ensure_only_on(on, off, &names.each_ref().map(String::as_str))?;
            // In the core both networks' passes are the same but for their parameters.
            let agree = |step: &Tensors| -> Result<bool, Failed> {
                Ok(step.values("target_next.heads")? == step.values("online_next.heads")?)
            };
            ensure!(agree(off)? && !agree(on)?, "the passes on s'");
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
