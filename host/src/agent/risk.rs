//! Risk over a batch: the loss that the level of CVaR descends.

use gpu_kernels::c51::c51_cvar;
use gpu_kernels::lanes::row_shape;
use gpu_kernels::risk::{cvar_loss, cvar_loss_shape};
use shared_types::market::N_BRANCHES;

use super::{Agent, Pass, width};
use crate::device::{Buffer, Device};
use crate::error::DeviceError;
use crate::market::Step;

/// Buffers of the learner.
pub struct Risk {
    /// CVaR of every action on s, \[R, 13\].
    pub cvar: Buffer<f32>,
    /// \[1\], cvar_loss.
    pub loss: Buffer<f32>,
    lanes: u32,
}

impl Risk {
    /// Buffers for `n_rows` rows.
    pub fn new(device: &Device, n_rows: usize) -> Result<Self, DeviceError> {
        let cvar = device.alloc_zeroed(n_rows * width::ACTIONS)?;
        Ok(Self { cvar, loss: device.alloc_zeroed(1)?, lanes: device.row_lanes() })
    }

    /// The launches behind `pass`.
    pub fn launches(&self, pass: &Pass, actions: &Buffer<[u8; N_BRANCHES]>, agent: &Agent) -> Vec<Step> {
        let cvar = c51_cvar::launch(
            pass.heads.view(),
            agent.atoms.view(),
            agent.columns(),
            agent.bus.view(),
            self.cvar.view_mut(),
        );
        let loss = cvar_loss::launch(self.cvar.view(), actions.view(), self.loss.view_mut());
        vec![(row_shape(actions.len(), self.lanes), cvar), (cvar_loss_shape(self.lanes), loss)]
    }
}
