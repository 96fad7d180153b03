//! `branch_select` and `branch_select_backward`.

use gpu_kernels::branches::{N_GATES, N_GROUPS, branch_select, branch_select_backward};
use gpu_kernels::lanes::row_shape;
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, bits};
use onegraph_tests::{Case, Failed, Outcome, case};
use reference::activation::{softmax, softmax_backward};
use shared_types::Precision;
use shared_types::market::N_BRANCHES;

use super::support::{
    N_ROWS, PRECISIONS, UNIT, WIDTHS, decoded, encoded, normals, operand_unit, poisoned_operands, wide, within,
};

pub fn cases() -> Vec<Case> {
    vec![
        case("branches::gates_and_columns_follow_the_reference", gates_and_columns_follow_the_reference),
        case("branches::off_every_branch_sees_h", off_every_branch_sees_h),
        case("branches::case_h_logits_of_80_choose_one_group", case_h_logits_of_80_choose_one_group),
        case("branches::a_nan_stays_in_its_branch_and_row", a_nan_stays_in_its_branch_and_row),
        case("branches::gradients_follow_the_reference", gradients_follow_the_reference),
        case("branches::off_the_gradients_add_up", off_the_gradients_add_up),
        case("branches::no_row_writes_nothing", no_row_writes_nothing),
    ]
}

/// A group of 4, 1, 8 and 64 columns, and of 3 and 5, which are no whole number of vectors.
const SELECTED_WIDTHS: [usize; 6] = [WIDTHS[0], WIDTHS[1], WIDTHS[2], WIDTHS[3], 24, 40];

struct Selection {
    width: usize,
    h2: Vec<f32>,
    logits: Vec<f32>,
    enabled: bool,
}

impl Selection {
    fn random(n_rows: usize, width: usize) -> Self {
        let mut numbers = Numbers::new((n_rows * 1000 + width) as u64);
        let (h2, logits) = (normals(&mut numbers, n_rows * width, 1.0), normals(&mut numbers, n_rows * N_GATES, 2.0));
        Self { width, h2, logits, enabled: true }
    }

    fn n_rows(&self) -> usize {
        self.h2.len() / self.width
    }

    /// (gates, slots 0 to 4) of the kernel; slot 0 is not its own to write.
    fn run(&self, lab: &Lab, lanes: u32, precision: Precision) -> Result<(Vec<f32>, Vec<f32>), Failed> {
        let n_rows = self.n_rows();
        let gates = lab.poisoned(n_rows * N_GATES)?;
        let branch_in = poisoned_operands(lab, 5 * self.h2.len(), precision)?;
        let (h2, logits) = (lab.upload(&self.h2)?, lab.upload(if self.enabled { &self.logits[..] } else { &[] })?);
        let launch = branch_select::launch(
            h2.view(),
            logits.view(),
            gates.view_mut(),
            branch_in.view_mut(),
            u32::from(self.enabled),
            precision,
        );
        lab.run(row_shape(n_rows, lanes), launch)?;
        let branch_in = decoded(&branch_in.read()?, precision);
        assert!(branch_in[..self.h2.len()].iter().all(|value| value.is_nan()), "slot 0 is not selected");
        Ok((gates.read()?, branch_in))
    }

    /// Gates in f64.
    fn gates(&self) -> Vec<f64> {
        self.logits.chunks_exact(N_GROUPS).flat_map(|logits| softmax(&wide(logits))).collect()
    }

    /// 8 gate of the group of each column, of each branch: `[4, R, H]`.
    fn factors(&self, gates: &[f64]) -> Vec<f64> {
        let n = self.h2.len();
        (0..N_BRANCHES * n)
            .map(|i| {
                let (branch, row, column) = (i / n, i % n / self.width, i % self.width);
                N_GROUPS as f64 * gates[row * N_GATES + branch * N_GROUPS + column * N_GROUPS / self.width]
            })
            .collect()
    }
}

/// A gate: the logits' difference rounds (|l - top| units of the exponential), the exponential has 4 units, the sum 3 + 4, the
/// quotient 1: relative (|l - top| + that of the others + 12) units; differences are taken at the widest of the row.
fn gate_error(logits: &[f32]) -> f64 {
    let (low, high) = logits.iter().fold((f32::MAX, f32::MIN), |(low, high), &l| (low.min(l), high.max(l)));
    (f64::from(high - low) * 2.0 + 12.0) * UNIT
}

fn gates_and_columns_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in SELECTED_WIDTHS {
        for n_rows in N_ROWS {
            let selection = Selection::random(n_rows, width);
            let want_gates = selection.gates();
            let errors: Vec<f64> =
                selection.logits.chunks_exact(N_GROUPS).flat_map(|logits| [gate_error(logits); N_GROUPS]).collect();
            let bounds: Vec<f64> = want_gates.iter().zip(&errors).map(|(gate, error)| gate * error).collect();
            for &lanes in lab.row_lanes() {
                for precision in PRECISIONS {
                    let what = format!("{n_rows} rows of {width}, {lanes} lanes, {precision:?}");
                    let (gates, branch_in) = selection.run(&lab, lanes, precision)?;
                    within(&format!("gates of {what}"), &gates, &want_gates, &bounds)?;
                    // From the kernel's own gates: a product with 8 is exact, then one product and the operand.
                    let n = selection.h2.len();
                    let factors = selection.factors(&wide(&gates));
                    let want: Vec<f64> =
                        factors.iter().enumerate().map(|(i, f)| f * f64::from(selection.h2[i % n])).collect();
                    let relative = UNIT + operand_unit(precision) * 1.001;
                    let bounds: Vec<f64> = want.iter().map(|x| relative * x.abs() + 1e-40).collect();
                    within(&format!("h_b of {what}"), &branch_in[n..], &want, &bounds)?;
                }
            }
        }
    }
    Ok(())
}

fn off_every_branch_sees_h(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in [8, 64] {
        let selection = Selection { enabled: false, ..Selection::random(33, width) };
        for &lanes in lab.row_lanes() {
            for precision in PRECISIONS {
                let (gates, branch_in) = selection.run(&lab, lanes, precision)?;
                assert_eq!(gates, vec![0.125; 33 * N_GATES]);
                let h = decoded(&encoded(&selection.h2, precision), precision);
                for slot in branch_in.chunks_exact(h.len()).skip(1) {
                    assert_eq!(bits(slot), bits(&h));
                }
            }
        }
    }
    Ok(())
}

fn case_h_logits_of_80_choose_one_group(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let mut selection = Selection::random(9, 64);
    for (i, logit) in selection.logits.iter_mut().enumerate() {
        *logit = if i % N_GROUPS == i / N_GROUPS % N_GROUPS { 80.0 } else { -80.0 };
    }
    for &lanes in lab.row_lanes() {
        let (gates, branch_in) = selection.run(&lab, lanes, Precision::F32)?;
        for (i, gate) in gates.iter().enumerate() {
            let chosen = i % N_GROUPS == i / N_GROUPS % N_GROUPS;
            assert!(if chosen { *gate == 1.0 } else { *gate <= 1e-38 }, "gate {i} is {gate}");
        }
        assert!(branch_in[selection.h2.len()..].iter().all(|value| value.is_finite()));
    }
    Ok(())
}

fn a_nan_stays_in_its_branch_and_row(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let (n_rows, width, row, branch) = (9, 64, 4, 2);
    for bad in [f32::NAN, f32::INFINITY] {
        let mut selection = Selection::random(n_rows, width);
        selection.logits[row * N_GATES + branch * N_GROUPS + 3] = bad;
        for &lanes in lab.row_lanes() {
            let (gates, branch_in) = selection.run(&lab, lanes, Precision::F32)?;
            for (i, gate) in gates.iter().enumerate() {
                if (i / N_GATES, i % N_GATES / N_GROUPS) != (row, branch) {
                    assert!(gate.is_finite(), "gate {i}");
                }
            }
            let slot = &branch_in[(1 + branch) * n_rows * width..][row * width..][..width];
            assert!(slot.iter().any(|value| value.is_nan()), "{bad} must be seen");
            let others = branch_in[n_rows * width..].chunks_exact(width).enumerate();
            for (i, values) in others.filter(|(i, _)| *i != branch * n_rows + row) {
                assert!(values.iter().all(|value| value.is_finite()), "row {i}");
            }
        }
    }
    Ok(())
}

/// Gradients of a selection, from given gates and gradients of the five slots.
struct Gradients {
    gates: Vec<f32>,
    d_in: Vec<f32>,
    extra: Vec<f32>,
}

impl Gradients {
    fn random(selection: &Selection, with_extra: bool) -> Self {
        let mut numbers = Numbers::new(17 + selection.h2.len() as u64);
        let n = selection.h2.len();
        Self {
            gates: selection.gates().into_iter().map(|gate| gate as f32).collect(),
            d_in: normals(&mut numbers, 5 * n, 1.0),
            extra: normals(&mut numbers, if with_extra { n } else { 0 }, 1.0),
        }
    }

    /// (dh, dgate_logits) of the kernel.
    fn run(&self, lab: &Lab, of: &Selection, lanes: u32, p: Precision) -> Result<(Vec<f32>, Vec<f32>), Failed> {
        let n_rows = of.n_rows();
        let (dh, dlogits) = (lab.poisoned(of.h2.len())?, poisoned_operands(lab, n_rows * N_GATES, p)?);
        let (h2, gates) = (lab.upload(&of.h2)?, lab.upload(&self.gates)?);
        let (d_in, extra) = (lab.upload(&self.d_in)?, lab.upload(&self.extra)?);
        let launch = branch_select_backward::launch(
            h2.view(),
            gates.view(),
            d_in.view(),
            extra.view(),
            dh.view_mut(),
            dlogits.view_mut(),
            u32::from(of.enabled),
            p,
        );
        lab.run(row_shape(n_rows, lanes), launch)?;
        Ok((dh.read()?, decoded(&dlogits.read()?, p)))
    }
}

/// dh: one product and six sums of terms. dgate: a lane adds at most W columns of a group one after the other, 4 levels more, the
/// products; its softmax backwards another 8 + 3 on gates times magnitudes.
fn gradients_follow_the_reference(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for width in SELECTED_WIDTHS {
        for n_rows in N_ROWS {
            let selection = Selection::random(n_rows, width);
            for with_extra in [true, false] {
                let gradients = Gradients::random(&selection, with_extra);
                check_gradients(&lab, &selection, &gradients)?;
            }
        }
    }
    Ok(())
}

fn check_gradients(lab: &Lab, selection: &Selection, gradients: &Gradients) -> Outcome {
    let (n, width) = (selection.h2.len(), selection.width);
    let (h, gates, d) = (wide(&selection.h2), wide(&gradients.gates), wide(&gradients.d_in));
    let factors = selection.factors(&gates);
    let (mut dh, mut dh_bounds) = (vec![], vec![]);
    for i in 0..n {
        let extra = gradients.extra.get(i).copied().map_or(0.0, f64::from);
        let terms: Vec<f64> =
            [d[i], extra].into_iter().chain((0..N_BRANCHES).map(|b| d[(1 + b) * n + i] * factors[b * n + i])).collect();
        dh.push(terms.iter().sum());
        dh_bounds.push(7.0 * UNIT * terms.iter().map(|term| term.abs()).sum::<f64>());
    }
    let (mut dlogits, mut dlogit_sizes) = (vec![], vec![]);
    for (i, gate) in gates.chunks_exact(N_GROUPS).enumerate() {
        let (row, branch) = (i / N_BRANCHES, i % N_BRANCHES);
        let term = |column: usize| {
            let at = row * width + column;
            N_GROUPS as f64 * d[(1 + branch) * n + at] * h[at]
        };
        let group = |g: usize| g * width / N_GROUPS..(g + 1) * width / N_GROUPS;
        let dgate: Vec<f64> = (0..N_GROUPS).map(|g| group(g).map(term).sum()).collect();
        let size: Vec<f64> = (0..N_GROUPS).map(|g| group(g).map(|j| term(j).abs()).sum()).collect();
        let inner: f64 = gate.iter().zip(&size).map(|(gate, size)| gate * size).sum();
        dlogits.extend(softmax_backward(gate, &dgate));
        dlogit_sizes.extend(gate.iter().zip(&size).map(|(gate, size)| gate * (size + inner)));
    }
    for &lanes in lab.row_lanes() {
        for precision in PRECISIONS {
            let what = format!("{} rows of {width}, {lanes} lanes, {precision:?}", n / width);
            let (got_dh, got_dlogits) = gradients.run(lab, selection, lanes, precision)?;
            within(&format!("dh of {what}"), &got_dh, &dh, &dh_bounds)?;
            let adds = (width / N_GROUPS) as f64 + 16.0;
            let bounds: Vec<f64> = dlogits
                .iter()
                .zip(&dlogit_sizes)
                .map(|(d, size)| adds * UNIT * size + operand_unit(precision) * 1.001 * d.abs() + 1e-40)
                .collect();
            within(&format!("dgate_logits of {what}"), &got_dlogits, &dlogits, &bounds)?;
        }
    }
    Ok(())
}

fn off_the_gradients_add_up(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let selection = Selection { enabled: false, ..Selection::random(33, 64) };
    let mut gradients = Gradients::random(&selection, false);
    gradients.gates.fill(0.125);
    let n = selection.h2.len();
    // Whole numbers, so that any order of their sum is exact.
    gradients.d_in.iter_mut().for_each(|d| *d = d.round());
    for &lanes in lab.row_lanes() {
        let (dh, dlogits) = gradients.run(&lab, &selection, lanes, Precision::F32)?;
        let want: Vec<f32> = (0..n).map(|i| (0..5).map(|slot| gradients.d_in[slot * n + i]).sum()).collect();
        assert_eq!(dh, want);
        assert!(dlogits.iter().all(|d| *d == 0.0));
    }
    Ok(())
}

fn no_row_writes_nothing(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let selection = Selection::random(0, 32);
    for &lanes in lab.row_lanes() {
        selection.run(&lab, lanes, Precision::Bf16)?;
        Gradients::random(&selection, true).run(&lab, &selection, lanes, Precision::Bf16)?;
    }
    Ok(())
}
