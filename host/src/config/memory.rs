//! Bytes that a run needs on its device and on the host, from the configuration alone.

use std::fmt;

use gpu_kernels::attention::{self, attention_n_parts, attention_tensor_n_parts};
use gpu_kernels::causal::n_pass_rows;
use gpu_kernels::iqn::{N_QUANTILES as QUANTILES, QUANTILE_STRIDE};
use gpu_kernels::seg_tree::TreeShape;
use gpu_kernels::temporal::{self, temporal_n_parts};
use shared_types::market::{N_ACCOUNT, N_BRANCHES, N_FEATURES, N_RECENT, state_dim};
use shared_types::{BarRecord, EnvState, MarketBar, PendingStep, Precision};

use super::keys::Config;
use super::setting::Sampler;
use crate::data::simulate::Market;
use crate::eval::scenario::Scenario;
use crate::eval::threshold_rule::N_SIDE_BY_SIDE;
use crate::market::paths::{N_RANDOM, n_side_by_side};

/// Widths that the design fixes: embedding of a bar, output of the temporal block and of the attention.
const EMBED: usize = 64;
/// Outputs of the temporal block's first projection: z 128, x 128, B 16, C 16, dt 4.
const PROJECTION: usize = 292;
/// Channels of z, of x and of y in the temporal block.
const INNER: usize = 128;
/// Channels of the temporal block's convolution: x, B, C.
const CONVOLVED: usize = 160;
/// Width of the trunk's input.
const INPUT: usize = 200;
/// Width of the denoise bottleneck.
const BOTTLENECK: usize = 32;
/// Cosines of IQN's embedding.
const COSINES: usize = 64;
/// Actions of all branches.
const ACTIONS: usize = 13;
/// Width of the hidden layer of V_high and V_low.
const IQL_HIDDEN: usize = 128;
/// Entries of the internal state vector that modulate the trunk.
const FILM_INPUTS: usize = 12;
const F32: usize = size_of::<f32>();
const F64: usize = size_of::<f64>();

/// One entry of the sum.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryPart {
    /// What it is for.
    pub name: &'static str,
    /// Its size.
    pub bytes: u64,
}

/// What a run needs, on its device or on the host.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct MemoryEstimate {
    /// The parts.
    pub parts: Vec<MemoryPart>,
    /// Their sum.
    pub total_bytes: u64,
}

/// A configuration that is too large for its device.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the run needs {} on {device}, which has {} free: {}; take a smaller preset, `capacity`, `batch` or `environments`, \
     or fewer bars, or end other programs there",
    bytes_text(.estimate.total_bytes), bytes_text(*.free_bytes), .estimate
)]
pub struct MemoryError {
    /// What is needed.
    pub estimate: MemoryEstimate,
    /// What there is.
    pub free_bytes: u64,
    /// The device's name.
    pub device: String,
}

impl Config {
    /// Device memory of a run over a series of `n_bars`: the sum of its buffers, without what a driver takes for itself.
    pub fn memory_estimate(&self, n_bars: usize) -> MemoryEstimate {
        let parameters = self.n_parameters();
        let parts = [
            ("replay ring", self.ring_bytes()),
            ("priorities", self.priority_bytes()),
            // Weights, gradient, two moments, gradient snapshot, pruning mask, and the operands of the weights; target and its operands.
            ("parameters", parameters * (6 * F32 + self.operand_bytes()) + self.target_bytes(parameters)),
            ("batch", self.batch * (2 * self.state_stride() * F32 + 64)),
            // One pass of the step is differentiated, so that each of its values has a gradient beside it; the passes of online
            // and target network on the next states keep values alone.
            ("training passes", self.batch * 4 * self.pass_row_bytes() + self.parts_bytes() + self.iqn_bytes()),
            ("causal sensitivity", self.causal_bytes()),
            ("environments", self.environments * (self.environment_bytes() + self.pass_row_bytes())),
            ("market", n_bars * market_bar_bytes()),
            ("evaluation", self.evaluation_bytes(n_bars)),
        ];
        MemoryEstimate::of(parts)
    }

    /// Memory of the host beside the bars that a run of `n_bars` has read: what the tests' paths leave there.
    pub fn host_memory_estimate(&self, n_bars: usize) -> MemoryEstimate {
        // The agent's and buy-and-hold's returns under every scenario and the threshold rule's, f32; then of one path after the other
        // the time and the return, and of the two that an interval compares the returns and, twice, two running sums, f64.
        const KEPT: usize = (2 * Scenario::ALL.len() + 1) * F32;
        const COMPARED: usize = 5 * F32 + F64 + 2 * (F64 + 2 * 2 * F64);
        let tested = if self.folds == 1 { n_bars / 5 } else { 3 * n_bars / 10 };
        let random = N_RANDOM.min(n_side_by_side(n_bars / 5)) * F32;
        let deviations = if self.returns() { n_bars * F64 } else { 0 };
        MemoryEstimate::of([
            ("records read back", self.records_bytes(n_bars)),
            ("returns of the tests", tested * (KEPT + COMPARED.max(random)) + deviations),
        ])
    }

    /// Whether the simulated market returns, so that the threshold rule is a baseline.
    fn returns(&self) -> bool {
        self.sim.market == Market::MeanReverting
    }

    fn state_stride(&self) -> usize {
        state_dim(self.window as usize).next_multiple_of(64)
    }

    fn operand_bytes(&self) -> usize {
        self.precision.words() * size_of::<u16>()
    }

    /// Two states, actions, reward, done, episode, discount power, achieved, last_scored.
    fn ring_bytes(&self) -> usize {
        self.capacity * (2 * state_dim(self.window as usize) * F32 + 4 + 4 + 1 + 4 + 4 + 4 + 4)
    }

    fn priority_bytes(&self) -> usize {
        let tree = TreeShape::for_slots(self.capacity).expect("the range of `capacity` is a tree's");
        let prefix = if self.per.sampler == Sampler::Scan { self.capacity } else { 0 };
        tree.n_nodes() * F32 + (tree.owners_len() + prefix) * size_of::<u64>()
    }

    /// Elements of the flat parameters, without the gaps that align tensors.
    pub fn n_parameters(&self) -> usize {
        let (h, m, k, t) = (self.hidden, self.branch_hidden, self.atoms, self.window as usize);
        let dense = |outputs: usize, inputs: usize| outputs * (inputs + 1);
        let temporal = dense(EMBED, N_FEATURES) + PROJECTION * EMBED + CONVOLVED * 5 + 3 * 4 + INNER + EMBED * INNER;
        let trunk = dense(h, INPUT) + h + 2 * (h + 2 * dense(h, h)) + 2 * h * FILM_INPUTS;
        let branches = 4 * 8 * h + 5 * dense(m, h) + dense((4 + ACTIONS) * k, m);
        let attention = dense(EMBED, N_FEATURES) + 4 * EMBED * EMBED + EMBED + 4 * t * t + t;
        let iqn = dense(h, COSINES) + dense(m, h) + dense(ACTIONS, m);
        let iql = 2 * (dense(IQL_HIDDEN, h) + dense(1, IQL_HIDDEN));
        let others = dense(1, h) + dense(BOTTLENECK, N_FEATURES) + dense(N_FEATURES, BOTTLENECK);
        temporal + trunk + branches + attention + iqn + iql + others
    }

    fn target_bytes(&self, n_parameters: usize) -> usize {
        if self.learners.target_ema { n_parameters * (F32 + self.operand_bytes()) } else { 0 }
    }

    /// What one row leaves behind on its way through the network.
    fn pass_row_bytes(&self) -> usize {
        let (h, m) = (self.hidden, self.branch_hidden);
        let operand = self.operand_bytes();
        // pre_in, h0 to h2, and of each block pre1 and z; n, s and the five inputs of the branches are operands.
        let trunk = 8 * h * F32 + (INPUT + 4 * h + 5 * h) * operand;
        let heads =
            64 * F32 + 5 * m * (F32 + operand) + (4 + ACTIONS) * self.atoms.next_multiple_of(16) * (F32 + operand);
        let others = 2 * IQL_HIDDEN * F32 + (BOTTLENECK + N_FEATURES) * F32;
        // The temporal block and the attention leave their outputs alone: their backward passes make the rest again.
        2 * EMBED * F32 + trunk + heads + others
    }

    /// The pass over rows with and without interventions, their states, Q and greedy actions.
    fn causal_bytes(&self) -> usize {
        let row = self.state_stride() * F32 + self.pass_row_bytes() + ACTIONS * F32 + N_BRANCHES;
        if self.learners.causal { n_pass_rows(self.batch) * row } else { 0 }
    }

    /// Gradients of the temporal block and the attention that their thread blocks leave, and what those of the attention keep, on a
    /// GPU; on the CPU they are fewer.
    fn parts_bytes(&self) -> usize {
        const N_THREADS: u32 = 512;
        let (on, window) = (&self.learners, self.window as usize);
        let temporal = temporal_n_parts(self.batch, window, N_THREADS) * temporal::N_PARAMETERS;
        let of_attention = attention::n_parameters(window);
        let attention = if self.precision == Precision::Bf16 && window <= attention::TENSOR_BARS {
            attention_tensor_n_parts(self.batch) * of_attention
        } else {
            attention_n_parts(self.batch, window, N_THREADS) * (of_attention + attention::KEPT)
        };
        (if on.temporal { temporal * F32 } else { 0 }) + if on.attention { attention * F32 } else { 0 }
    }

    /// IQN's head on a batch: of each quantile h * phi, the hidden layer before and after SiLU and their gradients, the outputs of both
    /// networks and their gradient; of each row the gradient of h and the loss.
    fn iqn_bytes(&self) -> usize {
        let (h, m, operand) = (self.hidden, self.branch_hidden, self.operand_bytes());
        let quantile = (h + m) * (F32 + operand) + m * operand + QUANTILE_STRIDE * (2 * F32 + operand);
        if self.learners.iqn { self.batch * (QUANTILES * quantile + (h + 1) * F32) } else { 0 }
    }

    fn environment_bytes(&self) -> usize {
        let pending = self.n_step as usize * (size_of::<PendingStep>() + 2 * N_ACCOUNT * F32);
        size_of::<EnvState>() + pending + (N_RECENT + N_ACCOUNT + self.state_stride()) * F32 + 8
    }

    /// Records of paths, and a row of the network for each segment of a validation.
    fn evaluation_bytes(&self, n_bars: usize) -> usize {
        self.records_bytes(n_bars) + (n_bars / 5).div_ceil(self.episode_len as usize) * self.pass_row_bytes()
    }

    /// Records of the paths that are there at once: the longest test under every scenario, random paths over it, or threshold rules
    /// over a training part. Validation has fewer.
    fn records_bytes(&self, n_bars: usize) -> usize {
        let test = n_bars / 5;
        let side_by_side = |n_bars: usize, n_paths: usize| n_bars * n_paths.min(n_side_by_side(n_bars));
        let rules = if self.returns() { side_by_side(n_bars, N_SIDE_BY_SIDE) } else { 0 };
        let n_records = (test * Scenario::ALL.len()).max(side_by_side(test, N_RANDOM)).max(rules);
        n_records * size_of::<BarRecord>()
    }
}

/// Raw and scaled features, the bar itself, its columns: time, prices, volume, four measured ones, three terms, three indicators.
const fn market_bar_bytes() -> usize {
    N_FEATURES * (F64 + F32) + size_of::<MarketBar>() + 16 * F64
}

impl MemoryEstimate {
    fn of<const N: usize>(parts: [(&'static str, usize); N]) -> Self {
        let parts = parts.map(|(name, bytes)| MemoryPart { name, bytes: bytes as u64 }).to_vec();
        let total_bytes = parts.iter().map(|part| part.bytes).sum();
        Self { parts, total_bytes }
    }

    /// Both together, of a device that is the host itself.
    pub fn and(mut self, other: Self) -> Self {
        self.parts.extend(other.parts);
        self.total_bytes += other.total_bytes;
        self
    }

    /// An error if it is more than what is free on `device`.
    pub fn check(&self, free_bytes: usize, device: &str) -> Result<(), MemoryError> {
        let free_bytes = free_bytes as u64;
        if self.total_bytes <= free_bytes {
            return Ok(());
        }
        Err(MemoryError { estimate: self.clone(), free_bytes, device: device.to_owned() })
    }
}

/// The sum: `replay ring 3.1 GiB + priorities 8.0 MiB + ...`.
impl fmt::Display for MemoryEstimate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<String> =
            self.parts.iter().map(|part| format!("{} {}", part.name, bytes_text(part.bytes))).collect();
        write!(f, "{}", parts.join(" + "))
    }
}

/// Bytes for people: `512 B`, `8.0 MiB`, `3.2 GiB`.
pub fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let power = (bytes.ilog2() / 10).min(UNITS.len() as u32);
    format!("{:.1} {}", bytes as f64 / f64::from(power * 10).exp2(), UNITS[power as usize - 1])
}
