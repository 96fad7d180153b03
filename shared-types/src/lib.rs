//! Layouts used by host and device.
#![no_std]
