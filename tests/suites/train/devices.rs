//! A device against the CPU from one checkpoint: a step number by number, and many steps by what they come to.
//!
//! On the CPU itself the two are the same program, and have to be the same bits.

use std::path::Path;

use host::config::Config;
use host::device::{Device, DeviceChoice};
use host::market::walk_forward::walk_forward;
use host::run::Checkpoint;
use host::train::dump::{self, Before};
use host::train::{Trainer, load};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use safetensors::{Dtype, SafeTensors};
use shared_types::Precision;

use crate::learner::unchecked;
use crate::runs::{bars, checkpoint, config, folder, train, with_learners};

pub fn cases() -> Vec<Case> {
    vec![
        case("devices::an_unrounded_step_is_the_cpus", |device| a_step_is_the_cpus(device, Precision::F32)),
        case("devices::a_rounded_step_is_the_cpus", |device| a_step_is_the_cpus(device, Precision::Bf16)),
        case("devices::two_hundred_steps_come_to_the_cpus", two_hundred_steps_come_to_the_cpus),
    ]
}

/// An agent of every learner that has trained for an epoch on the CPU: where both devices begin.
struct Start {
    config: Config,
    parent: tempfile::TempDir,
    checkpoint: Checkpoint,
}

impl Start {
    fn new(precision: Precision) -> Result<Self, Failed> {
        let config = with_learners(Config { precision, ..config() });
        let (parent, cpu) = (tempfile::tempdir()?, cpu()?);
        let run = folder(&parent.path().join("run"), &config, &cpu)?;
        train(&cpu, &config, &bars(&config), &run, None)?;
        let checkpoint = checkpoint(&run, 1, config.epochs)?;
        Ok(Self { config, parent, checkpoint })
    }

    /// A trainer on `device` that stands there.
    fn trainer(&self, device: &Device) -> Result<Trainer, Failed> {
        let bars = bars(&self.config);
        let fold = walk_forward(bars.len(), self.config.folds, self.config.episode_len as usize)?.remove(0);
        let mut trainer = Trainer::new(device, &self.config, &bars)?;
        trainer.begin_fold(&fold)?;
        load(&mut trainer, &self.checkpoint, &self.config)?;
        Ok(trainer)
    }

    /// Everything about the next step on `device`, as a file.
    fn step(&self, device: &Device, name: &str) -> Result<Vec<u8>, Failed> {
        let mut trainer = self.trainer(device)?;
        let before = Before::read(&trainer)?;
        trainer.step()?;
        trainer.finish_steps()?;
        let path = self.parent.path().join(name);
        dump::write(&trainer, &before, &path)?;
        Ok(std::fs::read(Path::new(&path))?)
    }
}

fn cpu() -> Result<Device, Failed> {
    Ok(unchecked(&Device::open(DeviceChoice::Cpu)?))
}

/// A tensor's elements, and whether they are floating-point.
fn elements(dtype: Dtype, bytes: &[u8]) -> (Vec<f64>, bool) {
    fn each<const N: usize>(bytes: &[u8], of: impl Fn([u8; N]) -> f64) -> Vec<f64> {
        bytes.as_chunks::<N>().0.iter().map(|&element| of(element)).collect()
    }
    match dtype {
        Dtype::F32 => (each(bytes, |b| f32::from_le_bytes(b).into()), true),
        Dtype::F64 => (each(bytes, f64::from_le_bytes), true),
        Dtype::BF16 => (each(bytes, |b| half::bf16::from_le_bytes(b).to_f64()), true),
        _ => (each(bytes, |[b]| b.into()), false),
    }
}

/// How far `got` may be from `want`, by the name: relative to the norm of `want`, an element of which may be NaN where both are.
///
/// Section 6.4 of the design bounds each device's distance from the float64 reference (1e-5 unrounded; with operands in bf16 J 1e-4,
/// activations 2%, gradients 6%), and so the two's from each other by twice as much. A gradient passes into moments as it is, and
/// into second moments squared, which doubles it. An update moves by at most lr an element, up or down: 2 lr sqrt(n) in norm is
/// added for parameters, whose sign of an element's gradient near 0 may differ.
fn bound(name: &str, precision: Precision) -> f64 {
    let gradients = ["gradient", "first_moment", "update", "snapshot"];
    let is_gradient = name.split('.').any(|part| part.starts_with("d_") || gradients.contains(&part));
    let squared = name.starts_with("second_moment.") || name.ends_with(".squared_norm");
    match precision {
        Precision::F32 => 2e-5 * if squared { 2.0 } else { 1.0 },
        Precision::Bf16 if squared => 0.24,
        Precision::Bf16 if is_gradient => 0.12,
        Precision::Bf16 => 0.04,
    }
}

fn a_step_is_the_cpus(device: &Device, precision: Precision) -> Outcome {
    let (device, start) = (unchecked(device), Start::new(precision)?);
    let (got, want) = (start.step(&device, "got")?, start.step(&cpu()?, "want")?);
    if device.backend_name() == "cpu" {
        ensure!(got == want, "two processes' worth of one step differ on the CPU");
    }
    let (got, want) = (SafeTensors::deserialize(&got)?, SafeTensors::deserialize(&want)?);
    ensure!(got.names().len() == want.names().len(), "{} tensors, {}", got.names().len(), want.names().len());
    let (mut n_floats, mut off) = (0, Vec::new());
    for (name, want) in want.iter() {
        let got = got.tensor(name)?;
        ensure!(got.dtype() == want.dtype() && got.shape() == want.shape(), "{name}: {:?}", got.shape());
        let ((got, is_float), (want, _)) = (elements(got.dtype(), got.data()), elements(want.dtype(), want.data()));
        if !is_float {
            ensure!(got == want, "{name}: whole numbers differ");
            continue;
        }
        n_floats += 1;
        let (mut difference, mut size) = (0.0, 0.0);
        for (at, (got, want)) in got.iter().zip(&want).enumerate() {
            ensure!(got.is_nan() == want.is_nan(), "{name}[{at}]: {got}, {want}");
            if !want.is_nan() {
                difference += (got - want).powi(2);
                size += want.powi(2);
            }
        }
        let moved = name.starts_with("param.") || name.starts_with("target.");
        let room = if moved { 2.0 * start.config.lr * (want.len() as f64).sqrt() } else { 0.0 };
        let bound = bound(name, precision) * f64::sqrt(size) + room;
        if f64::sqrt(difference) > bound {
            off.push(format!("{name}: {:e} of a norm of {:e}, bound {bound:e}", f64::sqrt(difference), size.sqrt()));
        }
    }
    ensure!(n_floats > 200, "{n_floats} tensors were compared");
    ensure!(off.is_empty(), "off the CPU's:\n{}", off.join("\n"));
    Ok(())
}

/// Means over 200 steps on one replay differ by no more than four standard errors, taken from means of 20 steps each, which hardly
/// depend on each other.
fn two_hundred_steps_come_to_the_cpus(device: &Device) -> Outcome {
    const N_BLOCKS: usize = 10;
    const BLOCK: usize = 20;
    let start = Start::new(Precision::Bf16)?;
    let run = |device: &Device| -> Result<Vec<[f64; 4]>, Failed> {
        let mut trainer = start.trainer(device)?;
        let mut told = Vec::new();
        for _ in 0..N_BLOCKS * BLOCK {
            trainer.step()?;
            trainer.finish_steps()?;
            let published = trainer.published().ok_or("nothing was published")?;
            ensure!(published.readback.nan_flags == [0; 7], "{:?}", published.readback.nan_flags);
            let norm = f64::from(published.readback.grad_norm_sq).sqrt();
            let totals = trainer.memory().totals.read()?[0];
            told.push([f64::from(totals.objective), f64::from(totals.mse), norm, f64::from(totals.q_mean)]);
        }
        Ok(told)
    };
    let (got, want) = (run(&unchecked(device))?, run(&cpu()?)?);
    for (number, what) in ["J", "mse", "gradient's norm", "mean Q"].into_iter().enumerate() {
        let blocks = |told: &[[f64; 4]]| -> Vec<f64> {
            told.chunks(BLOCK).map(|block| block.iter().map(|step| step[number]).sum::<f64>() / BLOCK as f64).collect()
        };
        let mean_and_error = |blocks: Vec<f64>| {
            let mean = blocks.iter().sum::<f64>() / N_BLOCKS as f64;
            let variance = blocks.iter().map(|block| (block - mean).powi(2)).sum::<f64>() / (N_BLOCKS - 1) as f64;
            (mean, (variance / N_BLOCKS as f64).sqrt())
        };
        let ((got, got_error), (want, want_error)) = (mean_and_error(blocks(&got)), mean_and_error(blocks(&want)));
        println!("{what}: {got:.5} +- {got_error:.5}, on the CPU {want:.5} +- {want_error:.5}");
        let room = 4.0 * got_error.hypot(want_error);
        ensure!((got - want).abs() <= room, "{what}: {got} in the mean, {want} on the CPU, {room} at most between");
    }
    Ok(())
}
