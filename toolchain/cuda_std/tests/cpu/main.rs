//! The CPU target: executor and checker.
#![allow(missing_docs)] // the kernels' `launch` modules

mod checker;
mod common;
mod correct;
mod executor;
mod guards;
mod lines;
mod overflow;
