//! `c51_q` and `c51_cvar`.

use gpu_kernels::c51::{c51_cvar, c51_q};
use gpu_kernels::heads::{HeadColumns, N_ACTIONS, first_action};
use gpu_kernels::lanes::row_shape;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits};
use onegraph_tests::{Case, Failed, Outcome, case, host_case};
use reference::config::BRANCH_SIZES;
use reference::risk::cvar;
use shared_types::isv;

use crate::scene::{ATOMS, Heads, U, all_q, exact_atoms, p_error, q_error, random_atoms};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("q::columns_are_the_documented_ones", columns_are_the_documented_ones),
        case("q::means_equal_the_reference", means_equal_the_reference),
        case("q::ties_go_to_the_lowest_index", ties_go_to_the_lowest_index),
        case("q::a_nan_is_not_chosen_over_a_number", a_nan_is_not_chosen_over_a_number),
        case("q::case_h_logits_of_80", case_h_logits_of_80),
        case("q::cvar_equals_the_reference", cvar_equals_the_reference),
        case("q::cvar_known_answers", cvar_known_answers),
        case("q::cvar_of_nan_is_nan", cvar_of_nan_is_nan),
    ]
}

fn columns_are_the_documented_ones() -> Outcome {
    let columns = HeadColumns::new(51);
    assert_eq!((columns.start, columns.stride), ([0, 208, 416, 576, 736], 896));
    assert_eq!((columns.value(3), columns.advantage(0, 3), columns.advantage(3, 2)), (153, 361, 838));
    assert_eq!([0, 1, 2, 3, 4].map(first_action), [0, 4, 7, 10, 13]);
    Ok(())
}

/// Q `[R, 13]` and greedy actions.
fn run_q(lab: &Lab, lanes: u32, heads: &Heads, atoms: &[f32]) -> Result<(Vec<f32>, Vec<[u8; 4]>), Failed> {
    let (values, atoms) = (lab.upload(&heads.values)?, lab.upload(atoms)?);
    let (q, greedy) = (lab.poisoned(heads.n_rows * N_ACTIONS)?, lab.upload(&vec![[255u8; 4]; heads.n_rows])?);
    let launch = c51_q::launch(values.view(), atoms.view(), heads.columns, q.view_mut(), greedy.view_mut());
    lab.run(row_shape(heads.n_rows, lanes), launch)?;
    Ok((q.read()?, greedy.read()?))
}

fn run_cvar(lab: &Lab, lanes: u32, heads: &Heads, atoms: &[f32], eta: f32) -> Result<Vec<f32>, Failed> {
    let mut bus = [f32::NAN; isv::LEN];
    bus[isv::RISK_ETA] = eta;
    let (values, atoms, bus) = (lab.upload(&heads.values)?, lab.upload(atoms)?, lab.upload(&bus)?);
    let ranks = lab.poisoned(heads.n_rows * N_ACTIONS)?;
    let launch = c51_cvar::launch(values.view(), atoms.view(), heads.columns, bus.view(), ranks.view_mut());
    lab.run(row_shape(heads.n_rows, lanes), launch)?;
    Ok(ranks.read()?)
}

/// The reference's greedy actions differ from the kernel's only where two Q are closer than their errors.
fn means_equal_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(0, 51), (1, 51), (3, 51), (257, 51)].into_iter().chain(ATOMS.map(|k| (33, k))) {
        let mut numbers = Numbers::new((n_rows * 100 + n_atoms) as u64);
        let heads = Heads::random(&mut numbers, n_rows, n_atoms, 3.0);
        let atoms = random_atoms(&mut numbers, n_atoms, 1.0);
        let want = heads.distributions(&exact_atoms(&atoms));
        for &lanes in lab.row_lanes() {
            let (q, greedy) = run_q(&lab, lanes, &heads, &atoms)?;
            let error = q_error(heads.m, 10.0);
            let what = format!("Q of {n_rows} rows, {n_atoms} atoms, {lanes} lanes");
            Tolerance { absolute: error, relative: 0.0 }.check(&what, &q, &all_q(&want))?;
            for (row, greedy) in greedy.iter().enumerate() {
                for (b, &chosen) in greedy.iter().enumerate() {
                    let best = want.greedy(row)[b];
                    let less = want.q[b][(row, best)] - want.q[b][(row, chosen as usize)];
                    assert!(less <= 2.0 * error, "row {row}, branch {b}: {chosen} is {less} under {best}");
                    let mine = &q[row * N_ACTIONS + first_action(b)..][..BRANCH_SIZES[b]];
                    assert!(mine.iter().all(|q| *q <= mine[chosen as usize]), "{mine:?}, {chosen} chosen");
                }
            }
            assert_eq!(bits(&run_q(&lab, lanes, &heads, &atoms)?.0), bits(&q), "the same bits twice");
        }
    }
    Ok(())
}

fn ties_go_to_the_lowest_index(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(7);
    let atoms = random_atoms(&mut numbers, 51, 0.0);
    for &lanes in lab.row_lanes() {
        // All actions alike; then action 0 of each branch worse, so that the others tie.
        let mut heads = Heads::of_logits(3, &[0.0; 51]);
        assert_eq!(run_q(&lab, lanes, &heads, &atoms)?.1, [[0; 4]; 3]);
        for b in 0..4 {
            // More mass on the lowest atom of action 0 of row 1.
            let at = heads.at(1, heads.columns.advantage(b, 0));
            heads.values[at] = 5.0;
        }
        assert_eq!(run_q(&lab, lanes, &heads, &atoms)?.1, [[0; 4], [1; 4], [0; 4]]);
    }
    Ok(())
}

fn a_nan_is_not_chosen_over_a_number(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let columns = HeadColumns::new(5);
    let nan = f32::NAN;
    let mut numbers = Numbers::new(8);
    let atoms = random_atoms(&mut numbers, 5, 1.0);
    for &lanes in lab.row_lanes() {
        // An advantage that is NaN reaches all actions of its branch, through their mean.
        let heads = Heads::from_fn(3, 5, 1.0, |row, column| {
            if row == 1 && column == columns.advantage(0, 2) + 3 { nan } else { 0.25 * (column % 7) as f32 }
        });
        let (q, greedy) = run_q(&lab, lanes, &heads, &atoms)?;
        let of_row = |row: usize| &q[row * N_ACTIONS..(row + 1) * N_ACTIONS];
        assert!(of_row(1)[..4].iter().all(|q| q.is_nan()), "{:?}", of_row(1));
        assert_eq!(bits(&of_row(1)[4..]), bits(&of_row(0)[4..]), "other branches are as they were");
        assert_eq!((greedy[1][0], &greedy[1][1..]), (0, &greedy[0][1..]));
        assert_eq!(greedy[0], greedy[2]);
    }
    for (values, want) in [
        ([nan, -1e30, nan, f32::NEG_INFINITY], 1),
        ([nan, nan, nan, nan], 0),
        ([1.0, nan, 2.0, nan], 2),
        ([3.0, 3.0, nan, 3.0], 0),
        ([nan, nan, nan, f32::NEG_INFINITY], 3),
    ] {
        assert_eq!(gpu_kernels::c51::highest(values), want, "{values:?}");
    }
    Ok(())
}

/// One atom at +80 and the rest at -80: Q is that atom, to what e^-160 leaves, which is nothing.
fn case_h_logits_of_80(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(9);
    let atoms = random_atoms(&mut numbers, 51, 1.0);
    let columns = HeadColumns::new(51);
    let heads = Heads::from_fn(51, 51, 80.0, |row, column| {
        if column >= 204 {
            return 0.0;
        }
        if (column - columns.value(column / 51)) == row { 80.0 } else { -80.0 }
    });
    let want: Vec<f64> = (0..51)
        .flat_map(|row| (0..4).flat_map(move |b| std::iter::repeat_n(b, BRANCH_SIZES[b])).map(move |b| (row, b)))
        .map(|(row, b): (usize, usize)| atoms[b * 51 + row] as f64)
        .collect();
    for &lanes in lab.row_lanes() {
        let (q, _) = run_q(&lab, lanes, &heads, &atoms)?;
        Tolerance { absolute: 1e-30, relative: U }.check("Q of one atom", &q, &want)?;
    }
    Ok(())
}

/// One partial atom's share is off by the cumulative probability's error: as much as a probability's, and K additions.
fn cvar_equals_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(1, 51), (33, 51), (9, 5), (9, 33), (9, 64)] {
        let mut numbers = Numbers::new((n_rows * 100 + n_atoms) as u64);
        let heads = Heads::random(&mut numbers, n_rows, n_atoms, 3.0);
        let atoms = random_atoms(&mut numbers, n_atoms, 1.0);
        let exact = exact_atoms(&atoms);
        let d = heads.distributions(&exact);
        for eta in [1.0f32, 0.5, 0.25, 0.05] {
            let want: Vec<f64> = (0..n_rows)
                .flat_map(|row| (0..4).flat_map(move |b| (0..BRANCH_SIZES[b]).map(move |a| (row, b, a))))
                .map(|(row, b, a)| cvar(d.p_of(row, b, a), &exact[b], eta as f64))
                .collect();
            let error = 10.0 / eta as f64 * (2.0 * p_error(heads.m) + 96.0 * U);
            for &lanes in lab.row_lanes() {
                let got = run_cvar(&lab, lanes, &heads, &atoms, eta)?;
                let what = format!("CVaR {eta} of {n_rows} rows, {n_atoms} atoms, {lanes} lanes");
                Tolerance { absolute: error, relative: 0.0 }.check(&what, &got, &want)?;
                if eta == 1.0 {
                    let q: Vec<f64> = run_q(&lab, lanes, &heads, &atoms)?.0.iter().map(|q| *q as f64).collect();
                    Tolerance { absolute: error, relative: 0.0 }.check("CVaR of all is the mean", &got, &q)?;
                }
            }
        }
    }
    Ok(())
}

/// Four atoms -10, -10/3, 10/3, 10 of a quarter each: the worst half is their first two, the worst eighth the first.
fn cvar_known_answers(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let atoms = [-8.0, -4.0, 2.0, 10.0].repeat(4);
    let heads = Heads::of_logits(2, &[0.0; 4]);
    for (eta, want) in [(1.0, 0.0), (0.5, -6.0), (0.125, -8.0), (0.75, -10.0 / 3.0)] {
        for &lanes in lab.row_lanes() {
            let got = run_cvar(&lab, lanes, &heads, &atoms, eta)?;
            Tolerance { absolute: 1e-6, relative: 0.0 }.check(&format!("CVaR {eta}"), &got, &[want; 26])?;
        }
    }
    Ok(())
}

fn cvar_of_nan_is_nan(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let atoms = [-8.0, -4.0, 2.0, 10.0].repeat(4);
    let mut heads = Heads::of_logits(2, &[0.0; 4]);
    let at = heads.at(1, heads.columns.advantage(2, 1) + 2);
    heads.values[at] = f32::NAN;
    for &lanes in lab.row_lanes() {
        let ranks = run_cvar(&lab, lanes, &heads, &atoms, 0.5)?;
        for (index, rank) in ranks.iter().enumerate() {
            let reached = index / N_ACTIONS == 1 && (7..10).contains(&(index % N_ACTIONS));
            assert_eq!(rank.is_nan(), reached, "element {index} is {rank}");
        }
    }
    Ok(())
}
