//! When transitions were scored, and which were the longest ago.

use gpu_kernels::rescore::{mark_scored, mark_scored_shape, stalest_transitions, stalest_transitions_shape};
use half::bf16;
use onegraph_tests::lab::{Lab, Numbers};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::Counters;

pub fn cases() -> Vec<Case> {
    vec![
        case("rescore::the_stalest_by_hand", |device| Lab::on_all_lanes(device, the_stalest_by_hand)),
        case("rescore::the_stalest_are_those_of_a_stable_sort", |device| {
            Lab::on_all_lanes(device, the_stalest_are_those_of_a_stable_sort)
        }),
        case("rescore::what_is_scored_is_marked", |device| what_is_scored_is_marked(&Lab::new(device)?)),
    ]
}

fn counters(rng_step: i32) -> Counters {
    Counters { rng_step, ..Counters::default() }
}

/// The first `n_rows` of `n` picked among the first `n_filled` slots.
fn stalest(lab: &Lab, scored: &[u32], now: u32, n_filled: usize, n: usize, n_rows: usize) -> Result<Vec<u32>, Failed> {
    let (last_scored, counters) = (lab.upload(scored)?, lab.upload(&[counters(now as i32)])?);
    let indices = lab.upload(&vec![u32::MAX; n_rows])?;
    let (n_filled, n) = (n_filled as u32, n as u32);
    let launch = stalest_transitions::launch(last_scored.view(), counters.view(), n_filled, n, indices.view_mut());
    lab.run(stalest_transitions_shape(lab.lanes()), launch)?;
    Ok(indices.read()?)
}

fn the_stalest_by_hand(lab: &Lab) -> Outcome {
    let scored = [7, 3, 9, 3, 0, 3, 1];
    assert_eq!(stalest(lab, &scored, 9, 7, 3, 3)?, [1, 4, 6]);
    assert_eq!(stalest(lab, &scored, 9, 7, 4, 4)?, [1, 3, 4, 6], "of equals the lower slots");
    assert_eq!(stalest(lab, &scored, 9, 7, 7, 7)?, [0, 1, 2, 3, 4, 5, 6]);
    assert_eq!(stalest(lab, &scored, 9, 4, 1, 1)?, [1], "slots behind the filled ones hold nothing");
    assert_eq!(stalest(lab, &scored, 9, 7, 2, 5)?, [4, 6, 4, 6, 4], "rows beyond them repeat");
    assert_eq!(stalest(lab, &[0; 3], 0, 3, 2, 2)?, [0, 1], "before any step");
    assert_eq!(stalest(lab, &[u32::MAX, 5], u32::MAX, 2, 1, 1)?, [1]);
    Ok(())
}

fn the_stalest_are_those_of_a_stable_sort(lab: &Lab) -> Outcome {
    for n_filled in [1usize, 2, 3, 31, 33, 1000, 1023, 1025, 4099] {
        let mut numbers = Numbers::new(n_filled as u64);
        // Few steps leave many equals, many hardly any.
        for n_steps in [1, 5, 4096] {
            let scored: Vec<u32> = (0..n_filled + 3).map(|_| (numbers.unit() * f64::from(n_steps)) as u32).collect();
            for n in [1, n_filled.div_ceil(3)] {
                let mut want: Vec<u32> = (0..n_filled as u32).collect();
                want.sort_by_key(|&slot| scored[slot as usize]);
                want.truncate(n);
                want.sort_unstable();
                let got = stalest(lab, &scored, n_steps, n_filled, n, n)?;
                ensure!(got == want, "{n} of {n_filled}, {n_steps} steps");
            }
        }
    }
    Ok(())
}

fn what_is_scored_is_marked(lab: &Lab) -> Outcome {
    let errors = [0.5, f32::NAN, 0.0, f32::INFINITY, 2.0, f32::NAN];
    let (indices, td) = (lab.upload(&[4u32, 1, 0, 2, 4, 4])?, lab.upload(&errors.map(bf16::from_f32))?);
    let (last_scored, counters) = (lab.upload(&[3u32; 6])?, lab.upload(&[counters(8)])?);
    let launch = mark_scored::launch(indices.view(), td.view(), counters.view(), last_scored.view_mut());
    lab.run(mark_scored_shape(errors.len()), launch)?;
    // Slot 1 and 2 met errors that are no numbers; slot 4 met two that are, and one that is not.
    assert_eq!(last_scored.read()?, [8, 3, 3, 3, 8, 3]);
    Ok(())
}
