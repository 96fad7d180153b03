//! Supplies the symbols of libcuda, finds the driver at run time, and counts the calls that pass.
//!
//! `cust` links against libcuda. This crate defines the same symbols, each a forwarder through a table, so that a program
//! starts on a machine without a driver. [`load`] finds the driver and fills the table; until then, and for a function
//! that the driver lacks, a call returns an error status. Because every call passes here, the [`ledger`] can count them.

pub mod ledger;
mod load;
mod symbols;

pub use load::{DriverError, DriverInfo, DriverVersion, MINIMUM_VERSION, is_named, load};
pub use symbols::NAMES;
