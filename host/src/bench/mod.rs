//! How long parts of the step take on the device at hand, and how long they would take at best.
//!
//! | file | holds |
//! |---|---|
//! | [`rates`] | what the device reaches: a large copy, a large matrix product; floors by them |
//! | [`timer`] | medians of times between events; a child as a graph of its own |
//! | [`measured`] | a run's step with the times of its children, as the run's folder keeps it |

pub mod measured;
pub mod rates;
pub mod timer;

pub use measured::MeasuredGraph;
pub use rates::Rates;
pub use timer::Timer;
