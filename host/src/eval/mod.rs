//! Judging what was earned.
//!
//! | file | holds |
//! |---|---|
//! | [`backtest`] | a policy taken over paths bar by bar, one graph launch a bar; [`evaluate`](backtest::evaluate), [`validate`](backtest::validate) |
//! | [`scenario`] | under which costs, orders and cap a path trades |
//! | [`random`] | the random baseline: its median path |
//! | [`records`] | what is kept of a path, and adds up over folds |
//! | [`performance`] | ratios of a path |
//! | [`statistics`] | ratios of returns and their intervals |
//! | [`evaluation`] | all folds together: `evaluation.json` |
//! | [`error`] | why paths were not traded to their ends |
//! | [`curves`] | equity and drawdown, thinned out |
//! | [`tear_sheet`] | a result as a terminal shows it |
//! | [`threshold_rule`] | the rule that sees the simulator's deviation |

pub mod backtest;
pub mod curves;
pub mod error;
pub mod evaluation;
pub mod performance;
pub mod random;
pub mod records;
pub mod scenario;
pub mod statistics;
pub mod tear_sheet;
pub mod threshold_rule;

pub use error::EvalError;
