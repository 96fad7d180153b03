//! `dump` as a user runs it: what the file holds fits together, and `docs/dump.md` names it.

use std::path::Path;
use std::process::{Command, Output};

use safetensors::{Dtype, SafeTensors};

fn onegraph(arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_onegraph"));
    command.args(arguments).args(["--device", "cpu"]).output().expect("the program starts")
}

/// Switches that are off in the preset.
const LEARNERS: [&str; 7] = [
    "learners.temporal=true",
    "learners.attention=true",
    "learners.iqn=true",
    "learners.iql=true",
    "learners.selectivity=true",
    "learners.denoise=true",
    "learners.risk=true",
];

/// Dumps step `n_steps` of the tiny preset with every learner, under a seed that gives IQN a heavier loss in the first step than in
/// the second, so that it is a part of the third step's objective.
fn dump(folder: &Path, n_steps: u32, precision: &str) -> Vec<u8> {
    let precision = format!("precision={precision}");
    dump_with(folder, n_steps, &[&LEARNERS[..], &[&precision, "seed=5"]].concat())
}

fn dump_with(folder: &Path, n_steps: u32, sets: &[&str]) -> Vec<u8> {
    let (file, steps) = (folder.join(format!("step-{n_steps}.safetensors")), n_steps.to_string());
    let to = file.to_str().expect("UTF-8");
    let mut arguments = vec!["dump", "--preset", "tiny", "--steps", &steps, "--out", to, "--json"];
    sets.iter().for_each(|set| arguments.extend(["--set", set]));
    let output = onegraph(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let dumped: serde_json::Value = serde_json::from_slice(&output.stdout).expect("JSON alone");
    let bytes = std::fs::read(&file).expect("the file");
    assert_eq!((dumped["bytes"].as_u64(), dumped["step"].as_u64()), (Some(bytes.len() as u64), Some(n_steps.into())));
    let tensors = SafeTensors::deserialize(&bytes).expect("a tensor file");
    assert_eq!(dumped["tensors"].as_u64(), Some(tensors.len() as u64));
    bytes
}

fn floats(tensors: &SafeTensors<'_>, name: &str) -> Vec<f64> {
    let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F32, "{name}");
    let (words, _) = tensor.data().as_chunks::<4>();
    words.iter().map(|&word| f32::from_le_bytes(word).into()).collect()
}

fn one(tensors: &SafeTensors<'_>, name: &str) -> f64 {
    let values = floats(tensors, name);
    assert_eq!(values.len(), 1, "{name}");
    values[0]
}

fn double(tensors: &SafeTensors<'_>, name: &str) -> f64 {
    let tensor = tensors.tensor(name).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tensor.dtype(), Dtype::F64, "{name}");
    f64::from_le_bytes(tensor.data().try_into().expect("one number"))
}

fn assert_close(got: f64, want: f64, tolerance: f64, what: &str) {
    assert!((got - want).abs() <= tolerance, "{what}: {got}, {want} expected within {tolerance}");
}

#[test]
fn a_step_fits_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let (two, three) = (dump(folder.path(), 2, "f32"), dump(folder.path(), 3, "f32"));
    assert!(dump(folder.path(), 3, "f32") == three, "the same seed gives the same file");
    let (two, three) = (SafeTensors::deserialize(&two).unwrap(), SafeTensors::deserialize(&three).unwrap());
    for name in ["param", "target", "first_moment", "second_moment"] {
        let of_tensor = |when: &str| format!("{name}.{when}.trunk.block0.w1");
        let (after_two, before_three) = (floats(&two, &of_tensor("after")), floats(&three, &of_tensor("before")));
        assert_eq!(after_two, before_three, "{name}");
    }
    assert_eq!(floats(&two, "isv.after"), floats(&three, "isv.before"));

    // AdamW on one tensor, in f64: a few roundings of f32 on values of order 1e-3 to 1.
    let of = |name: &str| floats(&three, &format!("{name}.trunk.block0.w1"));
    let scalar = |name: &str| one(&three, &format!("update.theta.{name}"));
    let (before, after, gradient) = (of("param.before"), of("param.after"), of("gradient"));
    let (m, v) = (of("first_moment.after"), of("second_moment.after"));
    assert!(gradient.iter().any(|g| *g != 0.0) && before != after);
    for (at, (w, g)) in before.iter().zip(&gradient).enumerate() {
        let g = g * scalar("gradient_scale");
        assert_close(m[at], 0.9 * of_at(&three, "first_moment.before", at) + 0.1 * g, 1e-6 * g.abs() + 1e-9, "m");
        let (m_hat, v_hat) = (m[at] / (1.0 - 0.9f64.powi(3)), v[at] / (1.0 - 0.999f64.powi(3)));
        let step = m_hat / (v_hat.sqrt() + 1e-8) + scalar("weight_decay") * w;
        assert_close(after[at], w - scalar("lr") * step, 2e-6, "w");
    }

    // The trunk's first product under its spectral factor, in f64.
    let (u, pre_in) = (floats(&three, "online.u"), floats(&three, "online.pre_in"));
    let (weight, bias) = (floats(&three, "param.before.trunk.in.weight"), floats(&three, "param.before.trunk.in.bias"));
    let factor = floats(&three, "spectral.scales")[0];
    let (n_inputs, n_outputs) = (weight.len() / bias.len(), bias.len());
    for row in 0..u.len() / n_inputs {
        for output in 0..n_outputs {
            let x = &u[row * n_inputs..][..n_inputs];
            let w = &weight[output * n_inputs..][..n_inputs];
            let product: f64 = x.iter().zip(w).map(|(x, w)| x * w * factor).sum();
            let size: f64 = x.iter().zip(w).map(|(x, w)| (x * w).abs()).sum();
            assert_close(pre_in[row * n_outputs + output], product + bias[output], 2e-6 * (size + 1.0), "pre_in");
        }
    }

    // Operands that nothing rounds: the trunk's are the parameters before the step under the factor, the others' those after it.
    let operand = floats(&three, "shadow.trunk.in.weight");
    for (operand, w) in operand.iter().zip(&weight) {
        assert_close(*operand, w * factor, f64::from(f32::EPSILON) * w.abs(), "operand");
    }
    let of_head = |kind: &str| floats(&three, &format!("{kind}.branch.value.hidden.weight"));
    assert_eq!(of_head("shadow"), of_head("param.after"));
    assert_eq!(of_head("target_shadow"), of_head("target.after"));
    assert_eq!(of_head("snapshot.after"), of_head("gradient"));
    assert_eq!(floats(&two, "snapshot.after.film.weight"), floats(&three, "snapshot.before.film.weight"));

    // Outputs of the temporal block and the attention are their parts of u, and their gradients what W_in sends back.
    let width = 64;
    let d_pre_in = floats(&three, "d_pre_in");
    for (part, first, last_weight) in [("temporal", 40, "out_proj.weight"), ("attention", 104, "channels.wo")] {
        let (output, d_output) = (floats(&three, &format!("online.{part}")), floats(&three, &format!("d_{part}")));
        assert!(output.len() == u.len() / n_inputs * width && output.len() == d_output.len());
        for (row, d_pre_in) in d_pre_in.chunks(n_outputs).enumerate() {
            let of_row = row * width..(row + 1) * width;
            assert_eq!(output[of_row.clone()], u[row * n_inputs + first..][..width], "{part}, row {row}");
            for (column, d) in d_output[of_row].iter().enumerate() {
                let w = weight.iter().skip(first + column).step_by(n_inputs);
                let terms: Vec<f64> = d_pre_in.iter().zip(w).map(|(d, w)| d * w * factor).collect();
                let size: f64 = terms.iter().map(|term| term.abs()).sum();
                assert_close(*d, terms.iter().sum(), 2e-6 * size, part);
            }
        }
        let gradient = floats(&three, &format!("gradient.{part}.{last_weight}"));
        assert!(gradient.iter().any(|g| *g != 0.0), "{part} does not learn");
    }

    // IQN's product is h * phi, and what it adds to dJ / dh what comes back through it; the readiness is that of the step before.
    let (phi, product, h) = (floats(&three, "iqn.phi"), floats(&three, "iqn.product"), floats(&three, "online.h.2"));
    let (d_product, d_h) = (floats(&three, "iqn.d_product"), floats(&three, "iqn.d_h"));
    let readiness = floats(&three, "isv.before")[21];
    let averages = floats(&three, "iqn.averages.before");
    assert!(readiness > 0.0, "a readiness of {readiness}");
    assert_close(readiness, 1.0 - averages[0] / averages[1], 2e-7, "readiness");
    for (at, (&h, &d)) in h.iter().zip(&d_h).enumerate() {
        let (row, column) = (at / n_outputs, at % n_outputs);
        let places = |n: usize| ((row * 8 + n) * n_outputs + column, n * n_outputs + column);
        (0..8).map(places).for_each(|(at, of_phi)| assert_eq!(product[at] as f32, h as f32 * phi[of_phi] as f32));
        let terms: Vec<f64> =
            (0..8).map(places).map(|(at, of_phi)| 0.1 * readiness * d_product[at] * phi[of_phi]).collect();
        let size: f64 = terms.iter().map(|term| term.abs()).sum();
        assert_close(d, terms.iter().sum(), 1e-6 * size, "d_h");
    }
    let losses = floats(&three, "iqn.row_losses");
    let mean = losses.iter().sum::<f64>() / losses.len() as f64;
    assert_close(floats(&three, "head_losses")[1], mean, 1e-6 * mean, "L_iqn");

    // PopArt: V is the same under the statistics before and, rescaled, under those after; and its EMAs take in q.
    let popart = |name: &str| double(&three, &format!("popart.{name}"));
    let (mean, square) = (popart("before.mean"), popart("before.square"));
    let (std, shrink, shift) = (one(&three, "iql.std"), one(&three, "iql.shrink"), one(&three, "iql.shift"));
    let (out, q) = (floats(&three, "iql.out"), floats(&three, "q_taken"));
    for (row, v) in floats(&three, "v_high").into_iter().enumerate() {
        assert_close(v, (square - mean * mean).sqrt() * out[2 * row] + mean, 1e-5, "V");
        assert_close(v, std * (shrink * out[2 * row] + shift) + popart("after.mean"), 1e-5, "V rescaled");
    }
    let mean_q = q.iter().sum::<f64>() / q.len() as f64;
    assert_close(popart("after.mean"), mean + 0.01 * (mean_q - mean), 1e-8, "mu");
    for target in floats(&three, "targets").chunks(51) {
        assert_close(target.iter().sum(), 1.0, 1e-5, "mass");
    }
    let heaviest = floats(&three, "batch.weights").into_iter().fold(0.0, f64::max);
    assert_close(heaviest, 1.0, 1e-6, "greatest weight");
    assert_eq!(one(&three, "totals.objective"), one(&three, "readback.total_loss"));
    let counters = three.tensor("counters.rng_step").unwrap();
    assert_eq!((counters.dtype(), counters.data()), (Dtype::I32, &3i32.to_le_bytes()[..]));
}

fn of_at(tensors: &SafeTensors<'_>, name: &str, at: usize) -> f64 {
    let tensor = tensors.tensor(&format!("{name}.trunk.block0.w1")).expect("the tensor");
    f32::from_le_bytes(tensor.data()[4 * at..][..4].try_into().expect("4 bytes")).into()
}

/// A name of the documentation stands for names of the file: X, T and LEARNER for anything, l for a number.
fn stands_for(pattern: &str, name: &str) -> bool {
    let (mut pattern, mut name) = (pattern.split('.').peekable(), name.split('.').peekable());
    while let Some(part) = pattern.next() {
        let Some(of_name) = name.next() else { return false };
        match part {
            "X" | "T" => return pattern.peek().is_none(),
            "LEARNER" => {}
            "l" if of_name.parse::<u32>().is_ok() => {}
            _ if part == of_name => {}
            _ => return false,
        }
    }
    name.peek().is_none()
}

#[test]
fn the_documentation_has_every_name_and_no_other() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = dump(folder.path(), 1, "bf16");
    let tensors = SafeTensors::deserialize(&bytes).expect("a tensor file");
    assert_eq!(tensors.tensor("online.u").unwrap().dtype(), Dtype::BF16);
    assert_eq!(tensors.tensor("td_errors").unwrap().dtype(), Dtype::BF16);
    let (mut patterns, mut words) = (Vec::new(), Vec::new());
    for line in include_str!("../../docs/dump.md").lines().filter(|line| line.starts_with("| ")) {
        let first = line.split('|').nth(1).expect("a cell");
        let quoted = |text: &str| -> Vec<String> { text.split('`').skip(1).step_by(2).map(str::to_owned).collect() };
        for name in quoted(first) {
            let of_pass = first.trim_start().starts_with("X = ");
            patterns.push(if of_pass { format!("online.{name}") } else { name.clone() });
            if of_pass {
                patterns.extend(["online_next", "target_next"].map(|pass| format!("{pass}.{name}")));
            }
        }
        words.extend(quoted(line));
    }
    for pattern in &patterns {
        assert!(tensors.names().iter().any(|name| stands_for(pattern, name)), "{pattern} is in no file");
    }
    let is_pass = |name: &str| ["online.", "online_next.", "target_next."].iter().any(|pass| name.starts_with(pass));
    for name in tensors.names() {
        let matching = patterns.iter().filter(|pattern| !(is_pass(name) && pattern.ends_with(".X")));
        assert!(matching.into_iter().any(|pattern| stands_for(pattern, name)), "docs/dump.md lacks {name}");
        let field = name.rsplit('.').next().expect("a name");
        if ["totals.", "update.", "counters.", "scalars.", "readback."].iter().any(|group| name.starts_with(group)) {
            assert!(words.iter().any(|word| word == field), "docs/dump.md lacks {field} of {name}");
        }
    }
}

/// Each index of the internal state vector has its row, under the same name; entries without a row are 0 in a step of every learner.
#[test]
fn the_documentation_has_every_entry_of_the_internal_state_vector() {
    let table = include_str!("../../docs/dump.md").split("## Entries of `isv`").nth(1).expect("a table");
    let cells = |line: &str| -> Vec<String> { line.split('|').map(|cell| cell.trim().to_owned()).collect() };
    let rows: Vec<Vec<String>> = table.lines().filter(|line| line.starts_with("| ")).skip(1).map(cells).collect();
    let documented: Vec<(String, String)> = rows.iter().map(|row| (row[1].clone(), row[2].clone())).collect();
    let index = |line: &str| -> Option<(String, String)> {
        let (name, value) = line.strip_prefix("pub const ")?.split_once(": usize = ")?;
        let (name, value) = (name.to_lowercase(), value.trim_end_matches(';').to_owned());
        let range = (name == "atom_bounds").then(|| format!("{value} to 30"));
        (name != "len").then(|| (range.unwrap_or(value), name))
    };
    let indices: Vec<_> = include_str!("../../shared-types/src/isv.rs").lines().filter_map(index).collect();
    assert_eq!(documented, indices);
    assert!(rows.iter().all(|row| row.len() == 6 && row[3..5].iter().all(|cell| !cell.is_empty())), "{rows:?}");

    let folder = tempfile::tempdir().expect("a folder");
    let bytes = dump(folder.path(), 3, "bf16");
    let tensors = SafeTensors::deserialize(&bytes).expect("a tensor file");
    let has_row =
        |entry: usize| (23..=30).contains(&entry) || documented.iter().any(|(number, _)| *number == entry.to_string());
    for (entry, value) in floats(&tensors, "isv.after").into_iter().enumerate() {
        assert!(has_row(entry) || value == 0.0, "entry {entry} is {value} and has no row");
    }
}

#[test]
fn without_temporal_block_and_attention_their_buffers_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = dump_with(folder.path(), 1, &["learners.temporal=false", "learners.attention=false"]);
    let tensors = SafeTensors::deserialize(&bytes).expect("a tensor file");
    let names = tensors.names();
    for (part, last_weight) in [("temporal", "out_proj.weight"), ("attention", "channels.wo")] {
        let of_part = |name: &str| name.ends_with(&format!(".{part}")) || name == format!("d_{part}");
        assert!(!names.iter().any(|name| of_part(name)), "{names:?}");
        let gradient = floats(&tensors, &format!("gradient.{part}.{last_weight}"));
        assert!(gradient.iter().all(|g| *g == 0.0), "{part} learns though it is off");
    }
}

#[test]
fn without_iqn_its_buffers_are_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let bytes = dump_with(folder.path(), 1, &["learners.iqn=false"]);
    let tensors = SafeTensors::deserialize(&bytes).expect("a tensor file");
    let names = tensors.names();
    assert!(names.iter().all(|name| !name.starts_with("iqn.")), "{names:?}");
    assert!(floats(&tensors, "gradient.iqn.out.weight").iter().all(|g| *g == 0.0));
}

#[test]
fn a_wrong_place_is_refused_before_the_work() {
    let output = onegraph(&["dump", "--preset", "tiny", "--steps", "1", "--out", "/nonexistent/folder/x.safetensors"]);
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("/nonexistent/folder/x.safetensors") && message.contains("another place"), "{message}");
    assert_eq!(onegraph(&["dump", "--steps", "0", "--out", "x"]).status.code(), Some(2));
}

/// As on a full disk: the limit of a file's size is met while the dump is written, with the temporary file still there.
#[test]
fn a_dump_that_finds_no_room_says_so_of_its_own_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let dump = "dump --preset tiny --steps 1 --device cpu --out step.safetensors";
    let script = format!("ulimit -f 600; exec {} {dump}", env!("CARGO_BIN_EXE_onegraph"));
    let output = Command::new("bash").args(["-c", &script]).current_dir(folder.path()).output().expect("a shell");
    let message = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{message}");
    assert_eq!(message, "error: cannot write step.safetensors: File too large (os error 27); choose another place\n");
    let left: Vec<_> = std::fs::read_dir(folder.path()).expect("a folder").collect();
    assert!(left.is_empty(), "{left:?}");
}
