//! `atoms_update` and `atom_spacing`.

use gpu_kernels::atoms::{atom_spacing, atom_spacing_shape, atoms_update, atoms_update_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance, bits, for_all};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use proptest::prelude::any;
use reference::atoms::{atoms, next_spacing};
use reference::config::N_BRANCHES;
use reference::matrix::Matrix;
use shared_types::isv;

use crate::scene::{ATOMS, U};

pub fn cases() -> Vec<Case> {
    vec![
        case("atoms::known_answers", known_answers),
        case("atoms::equal_the_reference_and_ascend", equal_the_reference_and_ascend),
        case("atoms::spacing_equals_the_reference", spacing_equals_the_reference),
        case("atoms::spacing_is_proposed_only_when_due", spacing_is_proposed_when_due),
    ]
}

/// Bounds of branch b: -(b + 1) and 10 + b.
fn bounds(b: usize) -> (f32, f32) {
    (-(b as f32 + 1.0), 10.0 + b as f32)
}

fn run_atoms(lab: &Lab, spacing: &[f32]) -> Result<Vec<f32>, Failed> {
    let mut bus = [f32::NAN; isv::LEN];
    for b in 0..N_BRANCHES {
        (bus[isv::ATOM_BOUNDS + 2 * b], bus[isv::ATOM_BOUNDS + 2 * b + 1]) = bounds(b);
    }
    let (spacing, bus) = (lab.upload(spacing)?, lab.upload(&bus)?);
    let atoms = lab.poisoned(spacing.len() + N_BRANCHES)?;
    lab.run(atoms_update_shape(), atoms_update::launch(spacing.view(), bus.view(), atoms.view_mut()))?;
    Ok(atoms.read()?)
}

/// Zero spacing is uniform; softmax(ln 3, 0) = (3/4, 1/4).
fn known_answers(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let even = run_atoms(&lab, &[0.0; 16])?;
    let want: Vec<f64> = (0..20)
        .map(|i| bounds(i / 5))
        .zip(0..20)
        .map(|((low, high), i)| low as f64 + (high as f64 - low as f64) * (i % 5) as f64 / 4.0)
        .collect();
    Tolerance { absolute: 0.0, relative: U }.check("uniform", &even, &want)?;
    let uneven = run_atoms(&lab, &[3f32.ln(), 0.0].repeat(4))?;
    for (b, z) in uneven.chunks(3).enumerate() {
        let (low, high) = bounds(b);
        assert_eq!((z[0], z[2]), (low, high));
        Tolerance { absolute: 1e-5, relative: 0.0 }.check("3/4", &[z[1]], &[(0.25 * low + 0.75 * high) as f64])?;
    }
    Ok(())
}

/// Each exponential is off by 4 u of itself, and so is their sum: 8 u of the share, times a range of at most 17, and a rounding.
fn equal_the_reference_and_ascend(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for_all((any::<u64>(), 2usize..=64), |(seed, n_atoms)| {
        let mut numbers = Numbers::new(seed);
        let spacing: Vec<f32> = (0..4 * (n_atoms - 1)).map(|_| (6.0 * numbers.unit() - 3.0) as f32).collect();
        let got = run_atoms(&lab, &spacing)?;
        for (b, z) in got.chunks(n_atoms).enumerate() {
            let (low, high) = bounds(b);
            let exact: Vec<f64> = spacing[b * (n_atoms - 1)..][..n_atoms - 1].iter().map(|s| *s as f64).collect();
            let want = atoms(&exact, (low as f64, high as f64));
            Tolerance { absolute: 8.0 * 17.0 * U, relative: U }.check("atoms", z, &want)?;
            ensure!(z[0] == low && z[n_atoms - 1] == high, "the ends are exact: {z:?}");
            ensure!(z.is_sorted_by(|a, b| a < b), "{z:?} does not ascend");
        }
        Ok(())
    })
}

fn run_spacing(lab: &Lab, targets: &[f32], spacing: &[f32], due: u32) -> Result<Vec<f32>, Failed> {
    let (targets, word) = (lab.upload(targets)?, lab.upload(&[due])?);
    let (before, proposed) = (lab.upload(spacing)?, lab.poisoned(spacing.len())?);
    let launch = atom_spacing::launch(targets.view(), before.view(), proposed.view_mut());
    lab.run(atom_spacing_shape(lab.lanes()), launch.only_if(&word.ptr()))?;
    assert_eq!(bits(&before.read()?), bits(spacing), "it is only proposed");
    Ok(proposed.read()?)
}

fn random_targets(numbers: &mut Numbers, n_rows: usize, n_atoms: usize) -> Vec<f32> {
    (0..n_rows * 4)
        .flat_map(|_| {
            let at = numbers.below(n_atoms);
            (0..n_atoms).map(move |k| if k == at { 0.75 } else { 0.25 / (n_atoms - 1) as f32 })
        })
        .collect()
}

/// A mean of masses up to 1 adds at most 71 rows and then 128 stretches, times the rate; a spacing up to 3 and the centre, of up to
/// 63 numbers of that size, round. However many threads a block has, the order of the sums is the same.
fn spacing_equals_the_reference(device: &Device) -> Outcome {
    for (n_rows, n_atoms) in [(1, 51), (65, 51), (9001, 51)].into_iter().chain(ATOMS.map(|k| (33, k))) {
        let mut numbers = Numbers::new((n_rows * 100 + n_atoms) as u64);
        let targets = random_targets(&mut numbers, n_rows, n_atoms);
        let n_widths = n_atoms - 1;
        // Some past the bound, so that the clip is seen.
        let spacing: Vec<f32> = (0..4 * n_widths).map(|_| (7.0 * numbers.unit() - 3.5) as f32).collect();
        let first = run_spacing(&Lab::new(device)?, &targets, &spacing, 150)?;
        Lab::on_all_lanes(device, |lab| {
            let got = run_spacing(lab, &targets, &spacing, 150)?;
            ensure!(bits(&got) == bits(&first), "{n_rows} rows, {n_atoms} atoms: other bits by {} lanes", lab.lanes());
            Ok(())
        })?;
        for b in 0..N_BRANCHES {
            let exact: Vec<f64> = spacing[b * n_widths..][..n_widths].iter().map(|s| *s as f64).collect();
            let of_branch = Matrix::from_fn(n_rows, n_atoms, |row, k| targets[(row * 4 + b) * n_atoms + k] as f64);
            let want = next_spacing(&exact, &of_branch);
            let absolute = (0.05 * 2.0 * 200.0 + 3.5 * 66.0) * U;
            let what = format!("spacing of branch {b}, {n_rows} rows, {n_atoms} atoms");
            Tolerance { absolute, relative: 0.0 }.check(&what, &first[b * n_widths..][..n_widths], &want)?;
        }
    }
    Ok(())
}

fn spacing_is_proposed_when_due(device: &Device) -> Outcome {
    Lab::on_all_lanes(device, |lab| {
        let (mut numbers, spacing) = (Numbers::new(3), vec![0.25f32; 200]);
        let targets = random_targets(&mut numbers, 70, 51);
        let not_due = run_spacing(lab, &targets, &spacing, 0)?;
        ensure!(not_due.iter().all(|width| width.is_nan()), "not due, it proposes {not_due:?}");
        let due = run_spacing(lab, &targets, &spacing, 50)?;
        ensure!(due.iter().all(|width| width.is_finite()) && due != spacing, "due, it proposes {due:?}");
        Ok(())
    })
}
