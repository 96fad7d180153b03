//! One account in f64, written from the rules: whole prices, one path, every intermediate amount by its name. Nothing of the
//! kernels is used.

use host::data::Bars;

/// What the rules leave open.
#[derive(Clone, Debug)]
pub struct Terms {
    /// Half spread / price, for bars without a measured one.
    pub half_spread: f64,
    pub taker: f64,
    pub maker: f64,
    pub min_hold: [u32; 3],
    pub kelly_cap: f64,
    pub epsilon: f64,
    pub sigma: f64,
    pub lambda_dd: f64,
    pub episode_len: u32,
}

/// The account between two bars.
#[derive(Clone, Debug)]
pub struct Account {
    pub bar: usize,
    pub position: f64,
    pub unrealised: f64,
    pub bars_held: u32,
    pub hold_left: u32,
    pub last_direction: usize,
    pub start_equity: f64,
    pub equity: f64,
    pub peak: f64,
    pub deepest: f64,
    pub log_returns: Vec<f64>,
    pub steps: u32,
    pub length: u32,
}

/// What a bar brought.
#[derive(Clone, Copy, Debug)]
pub struct Bar {
    pub net_return: f64,
    pub turnover: f64,
    pub cost: f64,
    pub stored: [u8; 4],
    pub filled: bool,
    pub reward: f64,
}

impl Account {
    pub fn new(bar: usize, length: u32) -> Self {
        Self {
            bar,
            position: 0.0,
            unrealised: 0.0,
            bars_held: 0,
            hold_left: 0,
            last_direction: 2,
            start_equity: 1.0,
            equity: 1.0,
            peak: 1.0,
            deepest: 0.0,
            log_returns: Vec::new(),
            steps: 0,
            length,
        }
    }

    /// Decides `action` on the present bar and lives through the next.
    pub fn step(&mut self, bars: &Bars, terms: &Terms, action: [u8; 4]) -> Bar {
        let (t, next) = (self.bar, self.bar + 1);
        let mut stored = action;
        let locked = self.hold_left > 0;
        if locked {
            stored[0] = 3;
            self.hold_left -= 1;
        }
        let size = terms.kelly_cap * (stored[1] + 1) as f64 / 3.0;
        let target = match stored[0] {
            0 => -size,
            1 => size,
            2 => 0.0,
            _ => self.position,
        };
        // The kernel compares f32 targets; two targets that are equal by the rules are equal here to rounding.
        let wants_order = (target - self.position).abs() > 1e-12;

        let half = |bar: usize| bars.spread.as_ref().map_or(terms.half_spread, |spread| spread[bar] / 2.0);
        let (last, open, close) = (bars.close[t], bars.open[next], bars.close[next]);
        let fill = wants_order
            .then(|| {
                let buys = target > self.position;
                let side = if buys { 1.0 } else { -1.0 };
                if stored[2] == 0 {
                    return Some((open * (1.0 + side * half(next)), terms.taker, half(next)));
                }
                let limit = if stored[2] == 1 { last } else { last * (1.0 + side * half(t) / 2.0) };
                let spread = last * half(next);
                let reached = if buys { bars.low[next] <= limit - spread } else { bars.high[next] >= limit + spread };
                reached.then_some((if buys { limit.min(open) } else { limit.max(open) }, terms.maker, 0.0))
            })
            .flatten();

        let before = self.equity;
        let (mut turnover, mut cost) = (0.0, 0.0);
        if let Some((price, fee, spread)) = fill {
            let gap = self.position * (price / last - 1.0);
            turnover = (target - self.position).abs();
            cost = turnover * (fee + spread);
            let rest = target * (close / price - 1.0);
            self.equity *= (1.0 + gap) * (1.0 - turnover * fee) * (1.0 + rest);
            if self.position * target > 0.0 {
                let kept = (target / self.position).min(1.0);
                self.unrealised = (self.unrealised + gap) * kept + rest;
                self.bars_held += 1;
            } else {
                self.unrealised = rest;
                self.bars_held = (target != 0.0) as u32;
            }
            self.position = target;
            self.hold_left = terms.min_hold[stored[3] as usize] - 1;
        } else {
            let move_all = self.position * (close / last - 1.0);
            self.equity *= 1.0 + move_all;
            self.unrealised += move_all;
            self.bars_held += (self.position != 0.0) as u32;
        }
        self.last_direction = stored[0] as usize;
        self.bar = next;
        self.steps += 1;

        let log_return = (self.equity / before).ln();
        self.log_returns.push(log_return);
        self.peak = self.peak.max(self.equity);
        let deepest = self.deepest.max((self.peak / self.equity).ln());
        let reward = (log_return - terms.lambda_dd * (deepest - self.deepest)) / terms.sigma;
        self.deepest = deepest;
        Bar {
            net_return: self.equity / before - 1.0,
            turnover,
            cost,
            stored,
            filled: fill.is_some(),
            reward: reward.clamp(-10.0, 10.0),
        }
    }

    /// ln(equity / start) / (s sqrt(episode_len)).
    pub fn achieved(&self, terms: &Terms) -> f64 {
        (self.equity / self.start_equity).ln() / (terms.sigma * (terms.episode_len as f64).sqrt())
    }

    /// The 15 portfolio features.
    pub fn features(&self, terms: &Terms) -> [f64; 15] {
        let recent = &self.log_returns[self.log_returns.len().saturating_sub(20)..];
        let n = recent.len().max(1) as f64;
        let mean = recent.iter().sum::<f64>() / n;
        let deviation = (recent.iter().map(|r| (r - mean).powi(2)).sum::<f64>() / n).sqrt();
        let s = terms.sigma;
        let mut features = [0.0; 15];
        features[0] = self.position;
        features[1] = self.unrealised / (s * (1.0 + self.bars_held as f64).sqrt());
        features[2] = self.bars_held as f64 / 15.0;
        features[3] = self.hold_left as f64 / 15.0;
        features[4] = self.achieved(terms);
        features[5] = (self.peak / self.equity).ln() / (s * (terms.episode_len as f64).sqrt());
        features[6] = recent.iter().sum::<f64>() / (s * 20f64.sqrt());
        features[7] = deviation / s;
        features[8 + self.last_direction] = 1.0;
        features[12] = terms.kelly_cap;
        features[13] = terms.epsilon;
        features[14] = self.steps as f64 / self.length as f64;
        features.map(|feature| feature.clamp(-5.0, 5.0))
    }
}
