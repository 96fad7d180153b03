//! I8: nothing that is fitted or trained depends on a bar behind the training part.

use std::ops::Range;

use host::config::Config;
use host::data::Bars;
use host::data::simulate::Simulation;
use host::device::Device;
use host::images::KERNELS;
use host::market::Runner;
use host::market::fold::{Fitted, FoldMarket};
use host::market::series::Series;
use host::market::walk_forward::{Fold, walk_forward};
use host::metrics::EpochMetrics;
use host::run::RunFolder;
use onegraph_tests::{Case, Failed, Outcome, case, ensure};

use crate::learner::unchecked;
use crate::runs::{bars, checkpoint, config, equal_tensors, folder, train};

pub fn cases() -> Vec<Case> {
    vec![
        case("look_ahead::bars_behind_the_training_part_fit_nothing", bars_behind_the_training_part_fit_nothing),
        case("look_ahead::bars_behind_the_training_part_train_nothing", bars_behind_the_training_part_train_nothing),
    ]
}

/// The bars with those of `part` taken from another market, ten times as lively and at another price; times stay.
fn replaced(bars: &Bars, part: Range<usize>) -> Bars {
    let other =
        Simulation { market: host::data::simulate::Market::RandomWalk, n_bars: bars.len() as u32, seed: 99 }.bars();
    let mut mixed = Bars::with_measures(&bars.measures());
    (mixed.symbol, mixed.interval_ns) = (bars.symbol.clone(), bars.interval_ns);
    for idx in 0..bars.len() {
        let mut bar = bars.bar(idx);
        if part.contains(&idx) {
            let lively = |price: f64| 40.0 * (price / other.close[0]).powi(10);
            (bar.open, bar.high) = (lively(other.open[idx]), lively(other.high[idx]));
            (bar.low, bar.close) = (lively(other.low[idx]), lively(other.close[idx]));
            bar.volume = 3.0 * bar.volume + 1.0;
            bar.measured.iter_mut().for_each(|value| *value *= 0.5);
        }
        mixed.push(&bar);
    }
    mixed
}

fn the_fold(bars: &Bars, config: &Config) -> Result<Fold, Failed> {
    Ok(walk_forward(bars.len(), config.folds, config.episode_len as usize)?.remove(0))
}

struct Market {
    fitted: Fitted,
    /// Bits of the scaled features, \[n, F\].
    features: Vec<u32>,
    /// Bytes of the environments' bars.
    bars: Vec<u8>,
    bytes_a_bar: usize,
}

fn market(device: &Device, bars: &Bars, fold: &Fold, config: &Config) -> Result<Market, Failed> {
    let (module, stream) = (device.module(&KERNELS)?, device.stream()?);
    let runner = Runner { device, module: &module, stream: &stream };
    let series = Series::upload(device, bars)?;
    runner.run(series.features())?;
    let market = FoldMarket::new(device, series.len())?;
    let fitted = market.fit(runner, &series, &fold.train, &config.market_costs())?;
    let rows: Vec<u8> = bytemuck::cast_slice(&market.bars.read()?).to_vec();
    let features = onegraph_tests::lab::bits(&market.features.read()?);
    Ok(Market { fitted, features, bytes_a_bar: rows.len() / bars.len(), bars: rows })
}

fn bars_behind_the_training_part_fit_nothing(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = config();
    let bars = bars(&config);
    let fold = the_fold(&bars, &config)?;
    let behind = replaced(&bars, fold.train.end..bars.len());
    let (one, other) = (market(device, &bars, &fold, &config)?, market(device, &behind, &fold, &config)?);
    ensure!(one.fitted == other.fitted, "{:?} and {:?} were fitted", one.fitted, other.fitted);
    let (n_features, n_bytes) = (one.features.len() / bars.len() * fold.train.end, one.bytes_a_bar * fold.train.end);
    ensure!(one.features[..n_features] == other.features[..n_features], "features of training bars differ");
    ensure!(one.bars[..n_bytes] == other.bars[..n_bytes], "training bars differ");
    ensure!(one.features[n_features..] != other.features[n_features..], "the replaced bars have the same features");
    let within = market(device, &replaced(&bars, fold.train.end - 1..fold.train.end), &fold, &config)?;
    ensure!(within.fitted != one.fitted, "the last training bar fits nothing");
    Ok(())
}

/// A run each on the bars as they are, with others behind the training part, and with another last training bar: the first two give
/// the same checkpoint in every byte, and the same Sharpe ratio on the training part; their validations differ, as does the third run.
fn bars_behind_the_training_part_train_nothing(device: &Device) -> Outcome {
    let device = &unchecked(device);
    let config = config();
    let bars = bars(&config);
    let fold = the_fold(&bars, &config)?;
    let parent = tempfile::tempdir()?;
    let run = |name: &str, bars: &Bars| -> Result<RunFolder, Failed> {
        let run = folder(&parent.path().join(name), &config, device)?;
        train(device, &config, bars, &run, None)?;
        Ok(run)
    };
    let told = |run: &RunFolder| -> Result<EpochMetrics, Failed> {
        Ok(serde_json::from_str(&std::fs::read_to_string(run.path().join("metrics.jsonl"))?)?)
    };
    let one = run("as they are", &bars)?;
    let other = run("others behind", &replaced(&bars, fold.train.end..bars.len()))?;
    equal_tensors(&checkpoint(&other, 1, 1)?, &checkpoint(&one, 1, 1)?)?;
    let (one_told, other_told) = (told(&one)?, told(&other)?);
    ensure!(one_told.train_sharpe == other_told.train_sharpe, "Sharpe ratios on the training part differ");
    ensure!(one_told.actions == other_told.actions && one_told.loss == other_told.loss, "losses or actions differ");
    let sharpe = |told: &EpochMetrics| told.validation.as_ref().map(|validation| validation.sharpe);
    ensure!(sharpe(&one_told) != sharpe(&other_told), "validations on other bars are equal");
    let within = run("another last bar", &replaced(&bars, fold.train.end - 1..fold.train.end))?;
    ensure!(equal_tensors(&checkpoint(&within, 1, 1)?, &checkpoint(&one, 1, 1)?).is_err(), "training reads no bars");
    Ok(())
}
