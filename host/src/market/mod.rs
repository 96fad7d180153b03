//! The market between its data and the agent, on the host.

pub mod walk_forward;
