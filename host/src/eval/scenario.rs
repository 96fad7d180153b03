//! Under which costs, orders and cap a test is repeated.

use serde::{Deserialize, Serialize};
use shared_types::{EnvParams, Isv, isv};

/// One repetition of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scenario {
    /// Costs as configured, all orders, the checkpoint's cap: the result.
    Configured,
    /// Every cost halved.
    HalfCosts,
    /// Every cost doubled.
    TwiceCosts,
    /// Every order is a market order.
    MarketOrders,
    /// The cap on positions is 1. The agent sees that cap, so that it may choose otherwise too.
    FullCap,
}

impl Scenario {
    /// All of them, the result first.
    pub const ALL: [Self; 5] = [Self::Configured, Self::HalfCosts, Self::TwiceCosts, Self::MarketOrders, Self::FullCap];

    /// For people.
    pub fn title(self) -> &'static str {
        match self {
            Self::Configured => "as configured",
            Self::HalfCosts => "half the costs",
            Self::TwiceCosts => "twice the costs",
            Self::MarketOrders => "market orders only",
            Self::FullCap => "cap 1",
        }
    }

    /// The environments' constants under this scenario.
    pub fn params(self, configured: &EnvParams) -> EnvParams {
        let mut params = *configured;
        match self {
            Self::HalfCosts => params.cost_scale *= 0.5,
            Self::TwiceCosts => params.cost_scale *= 2.0,
            Self::MarketOrders => params.flags |= EnvParams::MARKET_ORDERS_ONLY,
            Self::Configured | Self::FullCap => {}
        }
        params
    }

    /// The bus under this scenario.
    pub fn bus(self, checkpoint: &Isv) -> Isv {
        let mut bus = *checkpoint;
        if self == Self::FullCap {
            bus.entries[isv::KELLY_CAP] = 1.0;
        }
        bus
    }
}
