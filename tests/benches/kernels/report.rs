//! The table, and its rows as JSON.

use std::collections::HashMap;
use std::path::Path;

use serde_json::{Value, json};

use crate::Failure;
use crate::timer::Times;

/// Times of the CUDA C++ kernels, the best of each key: name of the variant, graph time, single time.
#[derive(Default)]
pub struct Peers(HashMap<String, (String, f64, f64)>);

impl Peers {
    /// Reads JSON lines with `key`, `variant`, `graph_us`, `single_us`.
    pub fn read(file: &Path) -> Result<Self, Failure> {
        let text = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
        let mut best = HashMap::<String, (String, f64, f64)>::new();
        for (number, line) in text.lines().enumerate() {
            let at = |what: &str| format!("{}, line {}: {what}", file.display(), number + 1);
            let value: Value = serde_json::from_str(line).map_err(|error| at(&error.to_string()))?;
            let word = |key: &str| value[key].as_str().map(str::to_owned).ok_or(at(&format!("no text `{key}`")));
            let time = |key: &str| value[key].as_f64().ok_or(at(&format!("no number `{key}`")));
            let peer = (word("variant")?, time("graph_us")?, time("single_us")?);
            let known = best.entry(word("key")?).or_insert(peer.clone());
            if peer.1 < known.1 {
                *known = peer;
            }
        }
        Ok(Self(best))
    }
}

/// Prints rows as they come.
pub struct Report {
    peers: Peers,
    rows: Vec<Value>,
    /// Bytes a second of the copy, the floor of the other rows.
    copy_rate: Option<f64>,
}

impl Report {
    pub fn new(peers: Peers) -> Self {
        println!(
            "{:<36} {:>10} {:>10} {:>9} {:>8} {:>8} {:>10}  best in CUDA C++",
            "kernel", "graph us", "single us", "GB/s", "of copy", "TFLOP/s", "C++ us"
        );
        Self { peers, rows: Vec::new(), copy_rate: None }
    }

    /// The rate that later rows are compared with.
    pub fn set_copy_rate(&mut self, bytes: f64, us: f64) {
        self.copy_rate = Some(bytes / us);
    }

    /// A row; `bytes` counts each byte once that must be read or written.
    pub fn row(&mut self, key: &str, bytes: f64, times: Times) {
        self.put(key, key, bytes, None, times);
    }

    /// A row of a product of `operations` (a multiplication and an addition are two), made in one of several ways; `key` alone
    /// names its peer.
    pub fn product(&mut self, key: &str, way: &str, bytes: f64, operations: f64, times: Times) {
        self.put(&format!("{key} {way}"), key, bytes, Some(operations), times);
    }

    fn put(&mut self, name: &str, peer: &str, bytes: f64, operations: Option<f64>, times: Times) {
        let Times { graph_us, single_us } = times;
        let rate = bytes / graph_us;
        let share = self.copy_rate.map(|copy| rate / copy);
        let peer = self.peers.0.get(peer);
        println!(
            "{name:<36} {graph_us:>10.2} {single_us:>10.2} {:>9.1} {:>8} {:>8} {:>10}  {}",
            rate * 1e-3,
            share.map_or(String::new(), |share| format!("{:.1}%", 100.0 * share)),
            operations.map_or(String::new(), |operations| format!("{:.0}", operations / graph_us * 1e-6)),
            peer.map_or(String::new(), |(_, us, _)| format!("{us:.2}")),
            peer.map_or(String::new(), |(variant, us, _)| format!("{variant}: {:.2} of its speed", us / graph_us)),
        );
        self.rows.push(json!({
            "key": name, "graph_us": graph_us, "single_us": single_us, "bytes": bytes, "operations": operations,
            "share_of_copy": share,
            "peer": peer.map(|(variant, graph_us, single_us)| {
                json!({ "variant": variant, "graph_us": graph_us, "single_us": single_us })
            }),
        }));
    }

    pub fn write_json(&self, file: &Path) -> Result<(), Failure> {
        let text = serde_json::to_string_pretty(&json!({ "kernels": self.rows }))?;
        std::fs::write(file, text + "\n").map_err(|error| format!("{}: {error}", file.display()).into())
    }
}
