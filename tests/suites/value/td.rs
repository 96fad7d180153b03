//! TD errors as priorities take them: `td_error_bf16`, and `modulated_td_bf16` by IQL's advantage.

use gpu_kernels::c51::{modulated_td_bf16, row_loss, td_error_bf16, td_error_bf16_shape};
use half::bf16;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use reference::replay::modulated_td;
use shared_types::IqlTotals;
use shared_types::nan_flags::{INFINITE, NAN};

pub fn cases() -> Vec<Case> {
    vec![
        case("td::errors_are_rounded_and_gated", errors_are_rounded_and_gated),
        case("td::modulated_errors_equal_the_reference", modulated_errors_equal_the_reference),
    ]
}

fn errors_are_rounded_and_gated(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n in [0, 1, 33, 257, 1000] {
        let mut numbers = Numbers::new(n as u64);
        let mut row_losses: Vec<f32> = (0..n * row_loss::N).map(|_| numbers.heavy()).collect();
        // The largest number of f32 is none of bf16; a relabelled row is NaN on purpose.
        const SPECIAL: [f32; 5] = [f32::NAN, f32::MAX, f32::NAN, 0.0, -1e-7];
        for (row, losses) in row_losses.chunks_mut(row_loss::N).enumerate() {
            losses[row_loss::TD] = SPECIAL.get(row).copied().unwrap_or(losses[row_loss::TD]);
        }
        let is_relabelled = |row: usize| row % 5 == 2;
        let relabelled: Vec<u8> = (0..n).map(|row| is_relabelled(row).into()).collect();
        for gate in [0u32, 1] {
            let (losses, gate_word) = (lab.upload(&row_losses)?, lab.upload(&[gate])?);
            let (relabelled, td) = (lab.upload(&relabelled)?, lab.upload(&vec![bf16::from_f32(7.0); n])?);
            let flag = lab.zeroed::<u32>(1)?;
            let (gate_view, flag_view) = (gate_word.view(), flag.view_mut());
            let launch = td_error_bf16::launch(losses.view(), gate_view, relabelled.view(), td.view_mut(), flag_view);
            lab.run(td_error_bf16_shape(n), launch)?;
            // Row 0 is NaN, row 1 infinite and row 2 relabelled; a gated step's rows are NaN on purpose.
            let want = if gate == 1 { 0 } else { [0, NAN, NAN | INFINITE][n.min(2)] };
            assert_eq!(flag.read()?, [want], "{n} rows, gate {gate}");
            for (row, td) in td.read()?.into_iter().enumerate() {
                let want = bf16::from_f32(row_losses[row * row_loss::N + row_loss::TD]);
                let is_nan = gate == 1 || is_relabelled(row) || want.is_nan();
                assert!(if is_nan { td.is_nan() } else { td.to_bits() == want.to_bits() }, "row {row}: {td}, {want}");
            }
        }
    }
    Ok(())
}

/// exp within 2^-22, the quotient's roundings, and bf16's own: 2^-8 and a little.
fn modulated_errors_equal_the_reference(device: &Device) -> Outcome {
    const RELABELLED: usize = 11;
    let lab = Lab::new(device)?;
    let n = 300;
    let mut numbers = Numbers::new(9);
    let mut uniform =
        |scale: f64| -> Vec<f32> { (0..n).map(|_| (scale * (2.0 * numbers.unit() - 1.0)) as f32).collect() };
    let (q, mut v, td) = (uniform(2.0), uniform(2.0), uniform(1.0).iter().map(|x| x.abs()).collect::<Vec<_>>());
    v[7] = f32::NAN;
    let mut row_losses = vec![f32::NAN; n * row_loss::N];
    td.iter().enumerate().for_each(|(row, td)| row_losses[row * row_loss::N + row_loss::TD] = *td);
    let run = |std: f32, beta: f32, gate: u32| -> Result<(Vec<bf16>, u32), Failed> {
        let (row_losses, gate) = (lab.upload(&row_losses)?, lab.upload(&[gate])?);
        let (q, v, totals) =
            (lab.upload(&q)?, lab.upload(&v)?, lab.upload(&[IqlTotals { std, ..Default::default() }])?);
        let relabelled: Vec<u8> = (0..n).map(|row| u8::from(row == RELABELLED)).collect();
        let (relabelled, errors, flag) = (lab.upload(&relabelled)?, lab.zeroed::<bf16>(n)?, lab.zeroed::<u32>(1)?);
        let launch = modulated_td_bf16::launch(
            row_losses.view(),
            gate.view(),
            relabelled.view(),
            q.view(),
            v.view(),
            totals.view(),
            beta,
            errors.view_mut(),
            flag.view_mut(),
        );
        lab.run(td_error_bf16_shape(n), launch)?;
        Ok((errors.read()?, flag.read()?[0]))
    };
    for (std, beta) in [(1.0f32, 1.0f32), (0.1, 1.0), (1e-4, 1.0), (1.0, 0.25)] {
        let mut n_bounded = 0;
        let (errors, flag) = run(std, beta, 0)?;
        ensure!(flag == NAN, "row 7 has no V, and the flag is {flag}");
        for (row, got) in errors.into_iter().enumerate() {
            if row == 7 || row == RELABELLED {
                ensure!(got.is_nan(), "a V that is no number, or another goal, gives {got}");
                continue;
            }
            let want =
                modulated_td(f64::from(td[row]), f64::from(q[row]), f64::from(v[row]), f64::from(std), f64::from(beta));
            let ratio = want / f64::from(td[row]);
            n_bounded += usize::from(!(0.2501..=3.999).contains(&ratio));
            ensure!((got.to_f64() - want).abs() <= 1.01 / 256.0 * want, "row {row}: {got}, {want} expected");
        }
        ensure!((std == 1.0) == (n_bounded < n / 2), "{n_bounded} of {n} at the bounds with std {std}");
    }
    let (gated, flag) = run(0.5, 1.0, 1)?;
    ensure!(gated.iter().all(|td| td.is_nan()) && flag == 0, "a gated step writes priorities, or flags them: {flag}");
    let plain: Vec<bf16> = td.iter().map(|td| bf16::from_f32(*td)).collect();
    let (unmodulated, _) = run(0.5, 0.0, 0)?;
    ensure!(
        (0..n).all(|row| row == 7 || row == RELABELLED || unmodulated[row] == plain[row]),
        "with beta 0 the errors change"
    );
    Ok(())
}
