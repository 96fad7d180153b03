//! The agent: its parameters, its network's passes, and the buffers that a step works on.
//!
//! | file | holds |
//! |---|---|
//! | [`layout`] | the table of all tensors in the flat parameters |
//! | [`initial`] | their initial values |
//! | [`parameters`] | parameters, moments, gradient and operands on the device |
//! | [`pass`] | a forward pass |
//! | [`backward`] | the backward pass |
//! | [`weight_gradient`] | dW = dy^T x |
//! | [`temporal`] | the temporal block's launches |
//! | [`iqn`] | IQN's head: passes, loss, gradients |
//! | [`value_heads`], [`selectivity`], [`denoise`], [`risk`] | the auxiliary learners |
//! | [`attention`] | the attention's |
//! | [`spectral`] | power iterations, and the operands of the trunk's matrices |
//! | [`state`] | all that the agent is: parameters, atoms, counters, internal state vector |
//! | [`policy`] | the agent as what chooses actions |

pub mod attention;
pub mod backward;
pub mod denoise;
pub mod initial;
pub mod iqn;
pub mod layout;
pub mod parameters;
pub mod pass;
pub mod policy;
pub mod risk;
pub mod selectivity;
pub mod spectral;
pub mod state;
pub mod temporal;
pub mod value_heads;
pub mod weight_gradient;

pub use attention::{AttentionBackward, AttentionForward};
pub use backward::Backward;
pub use denoise::Denoise;
pub use iqn::Iqn;
pub use parameters::{Parameters, Weights};
pub use pass::Pass;
pub use policy::NetworkPolicy;
pub use risk::Risk;
pub use selectivity::{Selectivity, TradeProbability};
pub use spectral::SpectralNorm;
pub use state::Agent;
pub use temporal::{TemporalBackward, TemporalForward};
pub use value_heads::ValueHeads;

pub use crate::config::Learners;

/// Sizes of the network that a preset chooses; the design fixes the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Sizes {
    /// Bars T of the window, a multiple of 4.
    pub window: usize,
    /// Width H of the trunk, a multiple of 8.
    pub hidden: usize,
    /// Width M of the hidden layer of V and of each A_b, a multiple of 8.
    pub branch_hidden: usize,
    /// Atoms K of a return distribution.
    pub atoms: usize,
}

impl Sizes {
    /// What a configuration asks for.
    pub const fn of(config: &crate::config::Config) -> Self {
        let crate::config::Config { window, hidden, branch_hidden, atoms, .. } = *config;
        Self { window: window as usize, hidden, branch_hidden, atoms }
    }

    /// Width of a state.
    pub const fn state_dim(&self) -> usize {
        shared_types::market::state_dim(self.window)
    }

    /// Width of a row in a batch: a multiple of 64.
    pub const fn state_stride(&self) -> usize {
        self.state_dim().div_ceil(64) * 64
    }
}

/// Widths that the design fixes.
pub mod width {
    /// Embedding and output of the temporal block.
    pub const TEMPORAL: usize = 64;
    /// Inner channels of the temporal block.
    pub const SCAN_INNER: usize = 128;
    /// Heads of the scan.
    pub const SCAN_HEADS: usize = 4;
    /// Columns of a head's state.
    pub const SCAN_STATE: usize = 16;
    /// Taps of the causal convolution.
    pub const CONV_TAPS: usize = 4;
    /// Embedding and output of the attention.
    pub const ATTENTION: usize = 64;
    /// Denoise bottleneck.
    pub const BOTTLENECK: usize = 32;
    /// The trunk's input u.
    pub const INPUT: usize =
        shared_types::market::N_FEATURES + shared_types::market::N_ACCOUNT + TEMPORAL + ATTENTION + BOTTLENECK;
    /// Groups of the variable selection.
    pub const GROUPS: usize = 8;
    /// Entries of the internal state vector that modulate the trunk.
    pub const FILM_INPUTS: usize = 12;
    /// Cosines of IQN's embedding of a quantile level.
    pub const COSINES: usize = 64;
    /// Hidden layer of V_high and V_low.
    pub const IQL_HIDDEN: usize = 128;
    /// Actions of all branches.
    pub const ACTIONS: usize = 13;
}
