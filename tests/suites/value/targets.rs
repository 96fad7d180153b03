//! `c51_targets`.

use gpu_kernels::c51::{c51_targets, c51_targets_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits, for_all};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use proptest::prelude::any;
use reference::c51::project;
use reference::config::N_BRANCHES;
use reference::double_dqn::discount;
use shared_types::isv;

use crate::scene::{ATOMS, Heads, U, exact_atoms, p_error, random_actions, random_atoms};

pub fn cases() -> Vec<Case> {
    vec![
        case("targets::equal_the_reference", equal_the_reference),
        case("targets::case_g_known_answers", case_g_known_answers),
        case("targets::case_g_mass_is_conserved_for_any_spacing", case_g_mass_is_conserved),
        case("targets::case_g_an_atom_on_another_gives_it_all_its_mass", case_g_an_atom_on_another),
        case("targets::case_h_logits_of_80", case_h_logits_of_80),
        case("targets::case_j_a_cut_episode_bootstraps", case_j_a_cut_episode_bootstraps),
        case("targets::nan_reaches_its_row_alone", nan_reaches_its_row_alone),
        case("targets::the_same_bits_twice", the_same_bits_twice),
    ]
}

const GAMMA: f32 = 0.97;

/// The inputs besides heads and atoms.
#[derive(Clone, Debug)]
struct Rows {
    greedy: Vec<[u8; 4]>,
    rewards: Vec<f32>,
    dones: Vec<u8>,
    powers: Vec<f32>,
    gamma: f32,
}

impl Rows {
    fn random(numbers: &mut Numbers, n_rows: usize, reach: f64) -> Self {
        Self {
            greedy: random_actions(numbers, n_rows),
            rewards: (0..n_rows).map(|_| (reach * (2.0 * numbers.unit() - 1.0)) as f32).collect(),
            dones: (0..n_rows).map(|_| (numbers.below(5) == 0) as u8).collect(),
            powers: (0..n_rows).map(|_| 1.0 + numbers.below(3) as f32).collect(),
            gamma: GAMMA,
        }
    }

    /// `n_rows` times the same row, action 0.
    fn alike(n_rows: usize, reward: f32, gamma: f32, done: bool) -> Self {
        Self {
            greedy: vec![[0; 4]; n_rows],
            rewards: vec![reward; n_rows],
            dones: vec![done as u8; n_rows],
            powers: vec![1.0; n_rows],
            gamma,
        }
    }
}

fn run(lab: &Lab, lanes: u32, heads: &Heads, rows: &Rows, atoms: &[f32]) -> Result<Vec<f32>, Failed> {
    let mut bus = [f32::NAN; isv::LEN];
    bus[isv::GAMMA] = rows.gamma;
    let (values, greedy, rewards) = (lab.upload(&heads.values)?, lab.upload(&rows.greedy)?, lab.upload(&rows.rewards)?);
    let (dones, powers) = (lab.upload(&rows.dones)?, lab.upload(&rows.powers)?);
    let (bus, atoms) = (lab.upload(&bus)?, lab.upload(atoms)?);
    let targets = lab.poisoned(heads.n_rows * N_BRANCHES * heads.n_atoms())?;
    let launch = c51_targets::launch(
        values.view(),
        greedy.view(),
        rewards.view(),
        dones.view(),
        powers.view(),
        bus.view(),
        atoms.view(),
        heads.columns,
        targets.view_mut(),
    );
    lab.run(c51_targets_shape(heads.n_rows, lanes), launch)?;
    Ok(targets.read()?)
}

fn reference_targets(heads: &Heads, rows: &Rows, atoms: &[f32]) -> Vec<f64> {
    let exact = exact_atoms(atoms);
    let d = heads.distributions(&exact);
    let mut targets = Vec::new();
    for row in 0..heads.n_rows {
        let discount = discount(rows.gamma as f64, rows.powers[row] as u32, rows.dones[row] != 0);
        for (b, z) in exact.iter().enumerate() {
            let p = d.p_of(row, b, rows.greedy[row][b] as usize);
            targets.extend(project(p, rows.rewards[row] as f64, discount, z));
        }
    }
    targets
}

fn least_width(atoms: &[f32]) -> f64 {
    exact_atoms(atoms).iter().flat_map(|z| z.windows(2)).map(|pair| pair[1] - pair[0]).fold(f64::INFINITY, f64::min)
}

/// T is off by (n + 2) u of numbers up to 20, which moves that much over the least width of the mass, on either side; the
/// shares round four times, the sum over sources at most K times.
fn equal_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (n_rows, n_atoms) in [(0, 51), (1, 51), (3, 51), (257, 51)].into_iter().chain(ATOMS.map(|k| (33, k))) {
        let mut numbers = Numbers::new((n_rows * 100 + n_atoms) as u64);
        let heads = Heads::random(&mut numbers, n_rows, n_atoms, 3.0);
        let atoms = random_atoms(&mut numbers, n_atoms, 1.0);
        let rows = Rows::random(&mut numbers, n_rows, 6.0);
        let want = reference_targets(&heads, &rows, &atoms);
        let absolute = 2.0 * 5.0 * 20.0 * U / least_width(&atoms) + p_error(heads.m) + (n_atoms + 8) as f64 * U;
        for &lanes in lab.row_lanes() {
            let got = run(&lab, lanes, &heads, &rows, &atoms)?;
            let what = format!("targets of {n_rows} rows, {n_atoms} atoms, {lanes} lanes");
            Tolerance { absolute, relative: 0.0 }.check(&what, &got, &want)?;
        }
    }
    Ok(())
}

/// G. Worked by hand on distributions of one or two equal atoms: every number is a short binary fraction, so equality is exact.
fn case_g_known_answers(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    const OFF: f32 = -1000.0;
    let grid = [-1.0f32, 0.0, 1.0];
    let uneven = [-1.0f32, 0.0, 0.5, 3.0];
    for (why, z, logits, reward, gamma, done, want) in [
        ("T = z: nothing moves", &grid[..], &[0.0, OFF, 0.0][..], 0.0, 1.0, false, &[0.5, 0.0, 0.5][..]),
        ("T = 0, 1: half a step", &grid, &[0.0, OFF, 0.0], 0.5, 0.5, false, &[0.0, 0.5, 0.5]),
        ("T = 1/2 of the middle atom", &grid, &[OFF, 0.0, OFF], 0.5, 0.5, false, &[0.0, 0.5, 0.5]),
        ("terminal under the grid: all on atom 0", &grid, &[0.0, OFF, 0.0], -5.0, 1.0, true, &[1.0, 0.0, 0.0]),
        ("terminal over the grid: all on the last", &grid, &[0.0, OFF, 0.0], 5.0, 1.0, true, &[0.0, 0.0, 1.0]),
        ("terminal at -1/4", &grid, &[0.0, 0.0, OFF], -0.25, 1.0, true, &[0.25, 0.75, 0.0]),
        ("terminal on an atom", &grid, &[0.0, 0.0, OFF], 0.0, 1.0, true, &[0.0, 1.0, 0.0]),
        ("terminal on the first", &grid, &[OFF, 0.0, 0.0], -1.0, 1.0, true, &[1.0, 0.0, 0.0]),
        ("terminal on the last", &grid, &[OFF, 0.0, 0.0], 1.0, 1.0, true, &[0.0, 0.0, 1.0]),
        ("clipped above", &grid, &[OFF, 0.0, 0.0], 1.0, 1.0, false, &[0.0, 0.0, 1.0]),
        ("clipped below", &grid, &[0.0, 0.0, OFF], -1.5, 1.0, false, &[1.0, 0.0, 0.0]),
        ("uneven: 1/2 falls on an atom", &uneven, &[OFF, 0.0, OFF, OFF], 0.5, 1.0, false, &[0.0, 0.0, 1.0, 0.0]),
        ("uneven: 7/4 lies in the middle", &uneven, &[0.0, 0.0, OFF, OFF], 1.75, 1.0, true, &[0.0, 0.0, 0.5, 0.5]),
        ("uneven: T = -1/2, 1/2", &uneven, &[0.0, 0.0, OFF, OFF], 0.5, 1.0, false, &[0.25, 0.25, 0.5, 0.0]),
    ] {
        let atoms = z.repeat(4);
        for n_rows in [1, 11, 33] {
            let heads = Heads::of_logits(n_rows, logits);
            for &lanes in lab.row_lanes() {
                let got = run(&lab, lanes, &heads, &Rows::alike(n_rows, reward, gamma, done), &atoms)?;
                assert_eq!(got, want.repeat(4 * n_rows), "{why}; {n_rows} rows, {lanes} lanes");
            }
        }
    }
    Ok(())
}

/// G. Any spacing up to its bound, any reward: mass is 1 to 1e-5, no entry is negative, and the mean is kept where nothing is clipped.
fn case_g_mass_is_conserved(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for_all((any::<u64>(), 2usize..=64, 0.0f64..=3.0), |(seed, n_atoms, spread)| {
        let mut numbers = Numbers::new(seed);
        let n_rows = 5;
        let heads = Heads::random(&mut numbers, n_rows, n_atoms, 4.0);
        let atoms = random_atoms(&mut numbers, n_atoms, spread);
        let reach = [0.5, 15.0, 1e6][numbers.below(3)];
        let rows = Rows::random(&mut numbers, n_rows, reach);
        for &lanes in lab.row_lanes() {
            let got = run(&lab, lanes, &heads, &rows, &atoms)?;
            for (index, m) in got.chunks(n_atoms).enumerate() {
                let mass: f64 = m.iter().map(|m| *m as f64).sum();
                ensure!((mass - 1.0).abs() < 1e-5, "branch {index} has mass {mass}, {lanes} lanes");
                ensure!(m.iter().all(|m| *m >= 0.0), "branch {index}: {m:?}, {lanes} lanes");
            }
        }
        Ok(())
    })
}

/// G. A terminal reward on each atom in turn, of random spacing: that atom has all mass, the next none, exactly.
fn case_g_an_atom_on_another(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for n_atoms in ATOMS {
        let mut numbers = Numbers::new(n_atoms as u64);
        let atoms = random_atoms(&mut numbers, n_atoms, 3.0)[..n_atoms].repeat(4);
        let heads = Heads::random(&mut numbers, n_atoms, n_atoms, 2.0);
        let mut rows = Rows::alike(n_atoms, 0.0, GAMMA, true);
        rows.rewards = atoms[..n_atoms].to_vec();
        for &lanes in lab.row_lanes() {
            let got = run(&lab, lanes, &heads, &rows, &atoms)?;
            for (index, m) in got.chunks(n_atoms).enumerate() {
                let on = index / 4;
                for (k, &m) in m.iter().enumerate() {
                    // Its sources are added one by one: K roundings.
                    let off = if k == on { (m as f64 - 1.0).abs() } else { m as f64 };
                    let bound = if k == on { (n_atoms + 16) as f64 * U } else { 0.0 };
                    assert!(off <= bound, "{n_atoms} atoms, row {on}: atom {k} has {m}, {lanes} lanes");
                }
            }
        }
    }
    Ok(())
}

/// H. All mass of the source on one atom to what e^-160 leaves.
fn case_h_logits_of_80(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(3);
    let atoms = random_atoms(&mut numbers, 51, 1.0);
    let heads = Heads::from_fn(51, 51, 80.0, |row, column| {
        if column >= 204 {
            return 0.0;
        }
        if column % 51 == row { 80.0 } else { -80.0 }
    });
    let rows = Rows::random(&mut numbers, 51, 3.0);
    let want = reference_targets(&heads, &rows, &atoms);
    for &lanes in lab.row_lanes() {
        let got = run(&lab, lanes, &heads, &rows, &atoms)?;
        let absolute = 2.0 * 5.0 * 20.0 * U / least_width(&atoms) + 16.0 * U;
        Tolerance { absolute, relative: 0.0 }.check("targets of one atom", &got, &want)?;
    }
    Ok(())
}

/// J. done 0 bootstraps, whatever the reason for the episode's end; done 1 does not; and the discount is gamma^n.
fn case_j_a_cut_episode_bootstraps(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let atoms = [-8.0f32, -4.0, 0.0, 4.0, 8.0].repeat(4);
    // All mass on z = 8.
    let heads = Heads::of_logits(4, &[-1000.0, -1000.0, -1000.0, -1000.0, 0.0]);
    let mut rows = Rows::alike(4, 0.0, 0.5, false);
    rows.powers = vec![1.0, 2.0, 3.0, 1.0];
    rows.dones = vec![0, 0, 0, 1];
    let want =
        [[0.0, 0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.5, 0.5, 0.0], [0.0, 0.0, 0.75, 0.25, 0.0], [0.0, 0.0, 1.0, 0.0, 0.0]];
    for &lanes in lab.row_lanes() {
        let got = run(&lab, lanes, &heads, &rows, &atoms)?;
        for (row, want) in want.iter().enumerate() {
            assert_eq!(got[row * 20..(row + 1) * 20], want.repeat(4), "row {row}, {lanes} lanes");
        }
    }
    Ok(())
}

fn nan_reaches_its_row_alone(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(4);
    let atoms = random_atoms(&mut numbers, 51, 1.0);
    let mut heads = Heads::random(&mut numbers, 5, 51, 2.0);
    let mut rows = Rows::random(&mut numbers, 5, 2.0);
    rows.rewards[1] = f32::NAN;
    rows.dones[1] = 1;
    let at = heads.at(3, heads.columns.value(2) + 40);
    heads.values[at] = f32::NAN;
    for &lanes in lab.row_lanes() {
        let got = run(&lab, lanes, &heads, &rows, &atoms)?;
        for (index, m) in got.chunks(51).enumerate() {
            let (row, branch) = (index / 4, index % 4);
            let reached = row == 1 || (row == 3 && branch == 2);
            assert!(m.iter().all(|m| m.is_nan() == reached), "row {row}, branch {branch}: {m:?}");
        }
    }
    Ok(())
}

fn the_same_bits_twice(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut numbers = Numbers::new(5);
    let atoms = random_atoms(&mut numbers, 51, 2.0);
    let heads = Heads::random(&mut numbers, 40, 51, 3.0);
    let rows = Rows::random(&mut numbers, 40, 8.0);
    for &lanes in lab.row_lanes() {
        let first = run(&lab, lanes, &heads, &rows, &atoms)?;
        assert_eq!(bits(&run(&lab, lanes, &heads, &rows, &atoms)?), bits(&first));
    }
    Ok(())
}
