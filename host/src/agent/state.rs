//! All that the agent is, on the device.

use bytemuck::Zeroable;
use gpu_kernels::atoms::{atoms_update, atoms_update_shape};
use gpu_kernels::counters::depth_keep;
use gpu_kernels::heads::HeadColumns;
use gpu_kernels::prune;
use shared_types::market::N_BRANCHES;
use shared_types::{Counters, Isv, PopArt, SKIP_WORDS, StepScalars};

use super::layout::Group;
use super::{Learners, Parameters, Sizes, SpectralNorm};
use crate::config::Config;
use crate::device::{Buffer, Device, Stored};
use crate::error::DeviceError;
use crate::market::{Runner, Step};

/// Parameters and everything else that lives from step to step.
pub struct Agent {
    /// What learns.
    pub parameters: Parameters,
    /// Power iterations.
    pub spectral: SpectralNorm,
    /// \[64\], the internal state vector; each entry has its own writer.
    pub bus: Buffer<f32>,
    /// \[1\], the averages of the bus that have had a sample, bit by index.
    pub seeded: Buffer<u64>,
    /// Which of the latest steps skipped their update, a bit each.
    pub skipped: Buffer<u32>,
    /// \[1\].
    pub counters: Buffer<Counters>,
    /// \[1\], the step's scalars, with the depth masks of training passes.
    pub scalars: Buffer<StepScalars>,
    /// \[1\], the same with keep probabilities, for all other passes; written once.
    pub keep: Buffer<StepScalars>,
    /// Spacing of the atoms, \[4, K - 1\].
    pub spacing: Buffer<f32>,
    /// Atoms, \[4, K\]; written at an epoch's boundary.
    pub atoms: Buffer<f32>,
    /// Theta's gradient in the last applied step, as the vaccine takes it; empty without one.
    pub snapshot: Buffer<f32>,
    /// What pruning keeps, a bit a parameter; empty without pruning.
    pub masks: Buffer<u32>,
    /// Moving average of IQN's loss, and its first value, \[2\].
    pub iqn_averages: Buffer<f64>,
    /// \[1\], statistics of q for IQL's heads.
    pub popart: Buffer<PopArt>,
    /// P(trade) under which the policy goes flat, if selectivity is on.
    pub select_threshold: f32,
    /// Parts that are on.
    pub learners: Learners,
    start: Isv,
    seed: [u32; 2],
}

impl Agent {
    /// Takes the memory that `config` asks for; [`restart`](Self::restart) gives it values.
    pub fn new(device: &Device, config: &Config) -> Result<Self, DeviceError> {
        let sizes = Sizes::of(config);
        let parameters = Parameters::new(device, sizes, config.precision, config.learners.target_ema)?;
        let spectral = SpectralNorm::new(device, &parameters, config.sigma_max as f32, config.learners.spectral)?;
        let depth = |block| if config.learners.depth { depth_keep(block, config.depth_keep_last as f32) } else { 1.0 };
        let keep = StepScalars { depth_mask: std::array::from_fn(depth), ..StepScalars::zeroed() };
        Ok(Self {
            spectral,
            bus: device.alloc_zeroed(shared_types::isv::LEN)?,
            seeded: device.alloc_zeroed(1)?,
            skipped: device.alloc_zeroed(SKIP_WORDS)?,
            counters: device.alloc_zeroed(1)?,
            scalars: device.alloc_zeroed(1)?,
            keep: device.upload(&[keep])?,
            spacing: device.alloc_zeroed(N_BRANCHES * (sizes.atoms - 1))?,
            atoms: device.alloc_zeroed(N_BRANCHES * sizes.atoms)?,
            snapshot: device.alloc_zeroed(if config.learners.vaccine {
                parameters.layout.group(Group::Theta).len()
            } else {
                0
            })?,
            masks: device.alloc_zeroed(if config.prunes() {
                parameters.layout.n_elements() / prune::WORD
            } else {
                0
            })?,
            iqn_averages: device.alloc_zeroed(2)?,
            popart: device.alloc_zeroed(1)?,
            select_threshold: config.select.threshold as f32,
            learners: config.learners.clone(),
            start: Isv::at_start(
                config.tau_init as f32,
                config.e_start as f32,
                config.v_min as f32,
                config.v_max as f32,
            ),
            seed: [config.seed as u32, (config.seed >> 32) as u32],
            parameters,
        })
    }

    /// Sizes of the network.
    pub fn sizes(&self) -> Sizes {
        self.parameters.sizes
    }

    /// Columns of the heads' outputs.
    pub fn columns(&self) -> HeadColumns {
        HeadColumns::new(self.parameters.sizes.atoms)
    }

    /// Everything as before the first step, in place. `fold` varies nothing: each fold starts from the same values.
    pub fn restart(&self, runner: Runner<'_>) -> Result<(), DeviceError> {
        self.parameters.restart(self.seed)?;
        self.bus.write(&self.start.entries)?;
        self.seeded.zero()?;
        self.skipped.zero()?;
        self.counters.zero()?;
        self.scalars.write(&[StepScalars { health_at_epoch: 1.0, ..StepScalars::zeroed() }])?;
        self.spacing.zero()?;
        self.snapshot.zero()?;
        self.masks.write(&vec![u32::MAX; self.masks.len()])?;
        self.iqn_averages.zero()?;
        self.popart.zero()?;
        runner.run([self.update_atoms()])?;
        runner.run(self.spectral.start(&self.parameters, self.seed))
    }

    /// Puts the atoms where their spacing says.
    pub fn update_atoms(&self) -> Step {
        let launch = atoms_update::launch(self.spacing.view(), self.bus.view(), self.atoms.view_mut());
        (atoms_update_shape(), launch)
    }

    /// Everything that lives from step to step, by the names that a checkpoint has.
    pub fn state(&self) -> Vec<(&'static str, &dyn Stored)> {
        let p = &self.parameters;
        vec![
            ("online", &p.online.flat),
            ("online.operands", &p.online.shadow),
            ("target", &p.target.flat),
            ("target.operands", &p.target.shadow),
            ("first_moments", &p.first_moments),
            ("second_moments", &p.second_moments),
            ("spectral.u", &self.spectral.u),
            ("spectral.scales", &self.spectral.scales),
            ("spacing", &self.spacing),
            ("snapshot", &self.snapshot),
            ("masks", &self.masks),
            ("atoms", &self.atoms),
            ("iqn.averages", &self.iqn_averages),
            ("isv", &self.bus),
            ("isv.seeded", &self.seeded),
            ("isv.skipped", &self.skipped),
            ("popart", &self.popart),
            ("counters", &self.counters),
            ("scalars", &self.scalars),
        ]
    }
}
