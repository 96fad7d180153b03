//! What the subjects' tests need: bars, a device with a market on it, paths with a script of actions.

use std::ops::Range;

use gpu_kernels::philox;
use host::data::Bars;
use host::device::{Buffer, Device, Module, Stream};
use host::error::DeviceError;
use host::images::KERNELS;
use host::market::Runner;
use host::market::fold::{Fitted, FoldMarket};
use host::market::paths::Paths;
use host::market::rules::{Costs, Rules};
use host::market::series::Series;
use shared_types::{BarRecord, EnvParams, Isv, MarketBar, isv};

/// Length of a bar in these tests.
pub const MINUTE_NS: i64 = 60_000_000_000;
/// 2024-01-01T00:00:00Z, a Monday.
pub const MONDAY_NS: i64 = 1_704_067_200_000_000_000;

/// Fails with the message unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        let holds: bool = $condition;
        if !holds {
            return Err(onegraph_tests::Failed::from(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// A device with the kernels loaded.
pub struct Lab<'a> {
    pub device: &'a Device,
    module: Module,
    stream: Stream,
}

impl<'a> Lab<'a> {
    pub fn new(device: &'a Device) -> Result<Self, DeviceError> {
        Ok(Self { device, module: device.module(&KERNELS)?, stream: device.stream()? })
    }

    pub fn runner(&self) -> Runner<'_> {
        Runner { device: self.device, module: &self.module, stream: &self.stream }
    }

    /// A series with its features, fitted to the bars `train`.
    pub fn world(&self, bars: &Bars, train: Range<usize>, costs: &Costs) -> Result<World, DeviceError> {
        let series = Series::upload(self.device, bars)?;
        self.runner().run(series.features())?;
        let market = FoldMarket::new(self.device, series.len())?;
        let fitted = market.fit(self.runner(), &series, &train, costs)?;
        Ok(World { series, market, fitted })
    }

    /// A market made of nothing but these bars for the environments.
    pub fn bars_alone(&self, bars: &[MarketBar]) -> Result<FoldMarket, DeviceError> {
        let market = FoldMarket::new(self.device, bars.len())?;
        market.features.zero()?;
        market.bars.write(bars)?;
        Ok(market)
    }

    /// The records of one path from bar 0 that does what `actions` say, a row a bar.
    pub fn play(
        &self,
        bars: &[MarketBar],
        params: &EnvParams,
        kelly_cap: f32,
        actions: &[[u8; 4]],
    ) -> Result<Vec<BarRecord>, DeviceError> {
        let market = self.bars_alone(bars)?;
        let paths = Paths::continuous(self.device, params, &bus(kelly_cap), &(0..bars.len()))?;
        for action in &actions[..paths.n_steps()] {
            paths.actions.write(&[*action])?;
            self.runner().run([paths.step(&market)])?;
        }
        paths.records()
    }
}

/// A series on the device, and what was fitted to it.
pub struct World {
    pub series: Series,
    pub market: FoldMarket,
    pub fitted: Fitted,
}

/// The bus at the start, with a cap.
pub fn bus(kelly_cap: f32) -> Isv {
    let mut bus = Isv::at_start(0.01, 0.25, -10.0, 10.0);
    bus.entries[isv::KELLY_CAP] = kelly_cap;
    bus
}

pub fn bus_buffer(device: &Device, kelly_cap: f32) -> Result<Buffer<f32>, DeviceError> {
    device.upload(&bus(kelly_cap).entries)
}

/// Constants for tests by hand: costs 1/64 half spread (of the bars), 1/32 taker, 1/128 maker, sigma 1/16.
pub fn round_params() -> EnvParams {
    let rules = Rules {
        window: 1,
        episode_len: 1000,
        n_step: 3,
        min_hold: [1, 2, 4],
        lambda_dd: 0.0,
        reward_scale: 1.0,
        her_weight: 0.0,
        costs: Costs::default(),
    };
    let mut params = rules.params(&(0..2000), 0.0625, 7).expect("these rules fit");
    (params.taker, params.maker) = (1.0 / 32.0, 1.0 / 128.0);
    params
}

/// A bar from moves in sixty-fourths, with a half spread of one.
pub fn bar64(open: i32, high: i32, low: i32, close: i32) -> MarketBar {
    let move_of = |n: i32| n as f32 / 64.0;
    MarketBar {
        open: move_of(open),
        high: move_of(high),
        low: move_of(low),
        close: move_of(close),
        half_spread: 1.0 / 64.0,
        ..MarketBar::default()
    }
}

/// Which measured columns a made-up series has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Measured {
    Nothing,
    Everything,
}

/// Deterministic numbers for made-up bars.
pub fn uniform(seed: u32, bar: usize, what: u32) -> f64 {
    philox::uniform([seed, 0], 999, what, bar as u32) as f64
}

/// A random walk of bar sigma about 20 bp around 100, with gaps between bars now and then, weekends left out.
pub fn made_up(n: usize, seed: u32, measured: Measured) -> Bars {
    let mut bars = Bars { interval_ns: MINUTE_NS, ..Bars::default() };
    let columns = (measured == Measured::Everything).then(Vec::new);
    let [mut trades, mut signed, mut spread, mut microprice] = [(); 4].map(|_| columns.clone());
    let (mut close, mut time) = (100.0f64, MONDAY_NS + 13 * 3600 * 1_000_000_000);
    for t in 0..n {
        let draw = |what| uniform(seed, t, what);
        let normal = |what| philox::normal([seed, 1], 999, what, t as u32) as f64;
        time += MINUTE_NS * if draw(0) < 0.02 { 1 + (draw(1) * 3000.0) as i64 } else { 1 };
        let open = close * (4e-4 * normal(2)).exp();
        close = open * (20e-4 * normal(3)).exp();
        let high = open.max(close) * (8e-4 * normal(4).abs()).exp();
        let low = open.min(close) * (-8e-4 * normal(5).abs()).exp();
        let volume = if draw(6) < 0.05 { 0.0 } else { (1e4 * draw(7)).round() };
        bars.time_ns.push(time);
        for (column, value) in [(&mut bars.open, open), (&mut bars.high, high), (&mut bars.low, low)] {
            column.push(value);
        }
        bars.close.push(close);
        bars.volume.push(volume);
        for (column, value) in [
            (&mut trades, (300.0 * draw(8)).round()),
            (&mut signed, (volume * (2.0 * draw(9) - 1.0)).round()),
            (&mut spread, 1e-4 * (1.0 + draw(10))),
            (&mut microprice, 1e-4 * (draw(11) - 0.5)),
        ] {
            if let Some(column) = column {
                column.push(value);
            }
        }
    }
    (bars.trades, bars.signed_volume, bars.spread, bars.microprice_offset) = (trades, signed, spread, microprice);
    bars
}

/// The bits of numbers, so that NaNs and signed zeros compare too.
pub fn bits(values: &[f32]) -> Vec<u32> {
    values.iter().map(|value| value.to_bits()).collect()
}

/// The bytes of plain data.
pub fn bytes<T: bytemuck::Pod>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}
