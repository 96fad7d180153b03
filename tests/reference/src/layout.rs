//! Layout of the flat parameters: which tensors there are, in which order, where each begins.
//!
//! The flat vector holds the groups one after another, so that what a part of the step works on is one range:
//! AdamW and the gradient norm on `Theta`, the target's EMA on `Theta`, `Attention`, `Iqn`, each head's Adam on its own.
//! Every tensor begins at a multiple of 64 elements; the gaps are zero. A matrix is `[outputs, inputs]`, row-major.
//! Tensor i draws its initial values from stream 1000 + i. H = hidden, M = branch_hidden, K = atoms, T = window.
//!
//! | group | tensors in order (shape) |
//! |---|---|
//! | `Theta`, temporal | `temporal.embed.weight` `[64, 24]`, `temporal.embed.bias` `[64]`, `temporal.in_proj.weight` `[292, 64]` (rows z 128, x 128, B 16, C 16, dt 4), `temporal.conv.weight` `[160, 4]`, `temporal.conv.bias` `[160]`, `temporal.dt_bias` `[4]`, `temporal.a_log` `[4]`, `temporal.d` `[4]`, `temporal.norm.gain` `[128]`, `temporal.out_proj.weight` `[64, 128]` |
//! | `Theta`, trunk | `trunk.in.weight` `[H, 200]`, `trunk.in.bias` `[H]`, `trunk.in.gain` `[H]`; of block l = 0, 1: `trunk.block{l}.gain` `[H]`, `trunk.block{l}.w1` `[H, H]`, `trunk.block{l}.b1` `[H]`, `trunk.block{l}.w2` `[H, H]`, `trunk.block{l}.b2` `[H]` |
//! | `Theta`, FiLM | `film.weight` `[2H, 12]` (rows g, then s) |
//! | `Theta`, branches | b = direction, size, order, hold: `branch.gate.{b}.weight` `[8, H]`; `branch.value.hidden.weight` `[M, H]`, `branch.{b}.hidden.weight` `[M, H]`; `branch.value.hidden.bias` `[M]`, `branch.{b}.hidden.bias` `[M]`; `branch.value.out.weight` `[4K, M]`, `branch.{b}.out.weight` `[n_b K, M]`; `branch.value.out.bias` `[4K]`, `branch.{b}.out.bias` `[n_b K]` |
//! | `Attention` | `attention.embed.weight` `[64, 24]`, `attention.embed.bias` `[64]`, `attention.bars.{wq, wk, wv, wo}` `[64, 64]`, `attention.bars.gain` `[64]`, `attention.channels.{wq, wk, wv, wo}` `[T, T]`, `attention.channels.gain` `[T]` |
//! | `Iqn` | `iqn.phi.weight` `[H, 64]`, `iqn.phi.bias` `[H]`, `iqn.hidden.weight` `[M, H]`, `iqn.hidden.bias` `[M]`, `iqn.out.weight` `[13, M]`, `iqn.out.bias` `[13]` |
//! | `IqlHigh` | `iql_high.hidden.weight` `[128, H]`, `iql_high.hidden.bias` `[128]`, `iql_high.out.weight` `[1, 128]`, `iql_high.out.bias` `[1]` |
//! | `IqlLow` | the same as `iql_low` |
//! | `Selectivity` | `select.weight` `[1, H]`, `select.bias` `[1]` |
//! | `Denoise` | `denoise.encoder.weight` `[32, 24]`, `denoise.encoder.bias` `[32]`, `denoise.decoder.weight` `[24, 32]`, `denoise.decoder.bias` `[24]` |

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use crate::config::{BRANCH_NAMES, BRANCH_SIZES, N_ACTIONS, N_BRANCHES, N_FILM_INPUTS, Sizes};
use crate::matrix::Matrix;

/// Alignment of a tensor in elements.
pub const ALIGNMENT: usize = 64;

/// Parameters that share a learner, a clip and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Group {
    /// Temporal block, trunk, W_isv, branches: AdamW, `adam_t`.
    Theta,
    /// Attention: `attn_t`.
    Attention,
    /// IQN's head: `iqn_t`.
    Iqn,
    /// V_high: `iql_t`.
    IqlHigh,
    /// V_low: `iql_low_t`.
    IqlLow,
    /// Selectivity: `sel_t`.
    Selectivity,
    /// Denoise: `denoise_t`.
    Denoise,
}

/// How a tensor starts (section 6.4).
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// All zeros.
    Zero,
    /// All ones.
    One,
    /// Normal with variance 1 / fan-in, times the factor.
    Normal(f64),
    /// Uniform in [-1/2, 1/2).
    Conv,
    /// exp of the value is uniform in [1, 16).
    ALog,
    /// softplus of the value is log-uniform in [0.001, 0.1).
    DtBias,
}

/// One tensor of the layout.
#[derive(Clone, Debug, PartialEq)]
pub struct TensorSpec {
    /// Name, unique.
    pub name: String,
    /// Owner.
    pub group: Group,
    /// Shape; one or two dimensions.
    pub shape: Vec<usize>,
    /// First element in the flat vector.
    pub offset: usize,
    /// Initial values.
    pub init: Init,
    /// Weight decay applies: matrices but the convolution.
    pub decays: bool,
    /// Pruning may take weights away: W_in, W1, W2 and the matrices of V and A_b.
    pub prunable: bool,
}

impl TensorSpec {
    /// Number of elements.
    pub fn len(&self) -> usize {
        self.shape.iter().product()
    }

    /// Whether it has no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inputs of one output: the last dimension.
    pub fn fan_in(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Its elements in the flat vector.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.len()
    }
}

/// All tensors in order.
#[derive(Clone, Debug, PartialEq)]
pub struct Layout {
    /// Tensors; the position is the number that chooses the stream of initial values.
    pub tensors: Vec<TensorSpec>,
    by_name: HashMap<String, usize>,
}

/// Names of the trunk's matrices, which carry a spectral norm.
pub fn trunk_matrices(sizes: &Sizes) -> Vec<String> {
    let blocks = (0..sizes.blocks).flat_map(|l| [format!("trunk.block{l}.w1"), format!("trunk.block{l}.w2")]);
    std::iter::once("trunk.in.weight".to_owned()).chain(blocks).collect()
}

impl Layout {
    /// Layout of a network of these sizes.
    pub fn new(sizes: &Sizes) -> Self {
        let mut layout = Self { tensors: Vec::new(), by_name: HashMap::new() };
        layout.push_temporal(sizes);
        layout.push_trunk(sizes);
        layout.push_branches(sizes);
        layout.push_attention(sizes);
        layout.push_heads(sizes);
        layout
    }

    fn push(&mut self, group: Group, name: &str, shape: &[usize], init: Init) -> &mut TensorSpec {
        let end = self.tensors.last().map_or(0, |last| last.range().end);
        let spec = TensorSpec {
            name: name.to_owned(),
            group,
            shape: shape.to_vec(),
            offset: end.div_ceil(ALIGNMENT) * ALIGNMENT,
            init,
            decays: shape.len() == 2 && init != Init::Conv,
            prunable: false,
        };
        assert!(self.by_name.insert(name.to_owned(), self.tensors.len()).is_none(), "{name} twice");
        self.tensors.push(spec);
        self.tensors.last_mut().expect("just pushed")
    }

    fn push_temporal(&mut self, s: &Sizes) {
        use Group::Theta;
        self.push(Theta, "temporal.embed.weight", &[s.temporal, s.features], Init::Normal(1.0));
        self.push(Theta, "temporal.embed.bias", &[s.temporal], Init::Zero);
        self.push(Theta, "temporal.in_proj.weight", &[s.scan_projection(), s.temporal], Init::Normal(1.0));
        self.push(Theta, "temporal.conv.weight", &[s.conv_channels(), s.conv_taps], Init::Conv);
        self.push(Theta, "temporal.conv.bias", &[s.conv_channels()], Init::Conv);
        self.push(Theta, "temporal.dt_bias", &[s.scan_heads], Init::DtBias);
        self.push(Theta, "temporal.a_log", &[s.scan_heads], Init::ALog);
        self.push(Theta, "temporal.d", &[s.scan_heads], Init::One);
        self.push(Theta, "temporal.norm.gain", &[s.scan_inner()], Init::One);
        self.push(Theta, "temporal.out_proj.weight", &[s.temporal, s.scan_inner()], Init::Normal(1.0));
    }

    fn push_trunk(&mut self, s: &Sizes) {
        use Group::Theta;
        let h = s.hidden;
        self.push(Theta, "trunk.in.weight", &[h, s.input().width], Init::Normal(1.0)).prunable = true;
        self.push(Theta, "trunk.in.bias", &[h], Init::Zero);
        self.push(Theta, "trunk.in.gain", &[h], Init::One);
        for l in 0..s.blocks {
            self.push(Theta, &format!("trunk.block{l}.gain"), &[h], Init::One);
            for i in 1..=2 {
                self.push(Theta, &format!("trunk.block{l}.w{i}"), &[h, h], Init::Normal(1.0)).prunable = true;
                self.push(Theta, &format!("trunk.block{l}.b{i}"), &[h], Init::Zero);
            }
        }
        self.push(Theta, "film.weight", &[2 * h, N_FILM_INPUTS], Init::Zero);
    }

    fn push_branches(&mut self, s: &Sizes) {
        use Group::Theta;
        let (h, m) = (s.hidden, s.branch_hidden);
        for name in BRANCH_NAMES {
            self.push(Theta, &format!("branch.gate.{name}.weight"), &[s.groups, h], Init::Zero);
        }
        let heads: Vec<(&str, usize)> = std::iter::once(("value", N_BRANCHES * s.atoms))
            .chain(BRANCH_NAMES.into_iter().zip(BRANCH_SIZES.map(|n| n * s.atoms)))
            .collect();
        for (name, _) in &heads {
            self.push(Theta, &format!("branch.{name}.hidden.weight"), &[m, h], Init::Normal(1.0)).prunable = true;
        }
        for (name, _) in &heads {
            self.push(Theta, &format!("branch.{name}.hidden.bias"), &[m], Init::Zero);
        }
        for (name, n_out) in &heads {
            self.push(Theta, &format!("branch.{name}.out.weight"), &[*n_out, m], Init::Normal(0.01)).prunable = true;
        }
        for (name, n_out) in &heads {
            self.push(Theta, &format!("branch.{name}.out.bias"), &[*n_out], Init::Zero);
        }
    }

    fn push_attention(&mut self, s: &Sizes) {
        use Group::Attention;
        self.push(Attention, "attention.embed.weight", &[s.attention, s.features], Init::Normal(1.0));
        self.push(Attention, "attention.embed.bias", &[s.attention], Init::Zero);
        for (block, width) in [("bars", s.attention), ("channels", s.window)] {
            for matrix in ["wq", "wk", "wv", "wo"] {
                self.push(Attention, &format!("attention.{block}.{matrix}"), &[width, width], Init::Normal(1.0));
            }
            self.push(Attention, &format!("attention.{block}.gain"), &[width], Init::One);
        }
    }

    fn push_heads(&mut self, s: &Sizes) {
        let (h, m) = (s.hidden, s.branch_hidden);
        self.push(Group::Iqn, "iqn.phi.weight", &[h, s.cosines], Init::Normal(1.0));
        self.push(Group::Iqn, "iqn.phi.bias", &[h], Init::Zero);
        self.push(Group::Iqn, "iqn.hidden.weight", &[m, h], Init::Normal(1.0));
        self.push(Group::Iqn, "iqn.hidden.bias", &[m], Init::Zero);
        self.push(Group::Iqn, "iqn.out.weight", &[N_ACTIONS, m], Init::Normal(0.01));
        self.push(Group::Iqn, "iqn.out.bias", &[N_ACTIONS], Init::Zero);
        for (group, name) in [(Group::IqlHigh, "iql_high"), (Group::IqlLow, "iql_low")] {
            self.push(group, &format!("{name}.hidden.weight"), &[s.iql_hidden, h], Init::Normal(1.0));
            self.push(group, &format!("{name}.hidden.bias"), &[s.iql_hidden], Init::Zero);
            self.push(group, &format!("{name}.out.weight"), &[1, s.iql_hidden], Init::Normal(1.0));
            self.push(group, &format!("{name}.out.bias"), &[1], Init::Zero);
        }
        self.push(Group::Selectivity, "select.weight", &[1, h], Init::Normal(1.0));
        self.push(Group::Selectivity, "select.bias", &[1], Init::Zero);
        self.push(Group::Denoise, "denoise.encoder.weight", &[s.bottleneck, s.features], Init::Normal(1.0));
        self.push(Group::Denoise, "denoise.encoder.bias", &[s.bottleneck], Init::Zero);
        self.push(Group::Denoise, "denoise.decoder.weight", &[s.features, s.bottleneck], Init::Normal(1.0));
        self.push(Group::Denoise, "denoise.decoder.bias", &[s.features], Init::Zero);
    }

    /// The tensor of that name; panics when there is none.
    pub fn tensor(&self, name: &str) -> &TensorSpec {
        &self.tensors[*self.by_name.get(name).unwrap_or_else(|| panic!("no tensor {name}"))]
    }

    /// Elements of the flat vector, the last gap included.
    pub fn len(&self) -> usize {
        self.tensors.last().map_or(0, |last| last.range().end.div_ceil(ALIGNMENT) * ALIGNMENT)
    }

    /// Whether it holds no tensor.
    pub fn is_empty(&self) -> bool {
        self.tensors.is_empty()
    }

    /// Tensors of a group.
    pub fn of(&self, group: Group) -> impl Iterator<Item = &TensorSpec> {
        self.tensors.iter().filter(move |tensor| tensor.group == group)
    }

    /// From a group's first element to the next group's: gaps are zero and so count for nothing in a norm.
    pub fn range(&self, group: Group) -> Range<usize> {
        let (first, last) = (self.of(group).next(), self.of(group).last());
        let (first, last) = (first.expect("every group has tensors"), last.expect("every group has tensors"));
        first.offset..last.range().end.div_ceil(ALIGNMENT) * ALIGNMENT
    }

    /// What the target network holds: theta, attention, IQN's head.
    pub fn target_range(&self) -> Range<usize> {
        0..self.range(Group::Iqn).end
    }
}

/// A value for each element of a layout: parameters, gradients, moments, masks.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensors {
    /// Where each tensor lies.
    pub layout: Arc<Layout>,
    /// All elements.
    pub flat: Vec<f64>,
}

impl Tensors {
    /// All elements `value`, gaps 0.
    pub fn filled(layout: &Arc<Layout>, value: f64) -> Self {
        let mut flat = vec![0.0; layout.len()];
        for tensor in &layout.tensors {
            flat[tensor.range()].fill(value);
        }
        Self { layout: Arc::clone(layout), flat }
    }

    /// All zeros.
    pub fn zeros(layout: &Arc<Layout>) -> Self {
        Self::filled(layout, 0.0)
    }

    /// Elements of a tensor.
    pub fn slice(&self, name: &str) -> &[f64] {
        &self.flat[self.layout.tensor(name).range()]
    }

    /// Elements of a tensor, writable.
    pub fn slice_mut(&mut self, name: &str) -> &mut [f64] {
        let range = self.layout.tensor(name).range();
        &mut self.flat[range]
    }

    /// A two-dimensional tensor.
    pub fn matrix(&self, name: &str) -> Matrix {
        let shape = &self.layout.tensor(name).shape;
        assert_eq!(shape.len(), 2, "{name} is no matrix");
        Matrix::from_values(shape[0], shape[1], self.slice(name).to_vec())
    }

    /// Adds to a tensor.
    pub fn add(&mut self, name: &str, values: &[f64]) {
        let slice = self.slice_mut(name);
        assert_eq!(slice.len(), values.len(), "elements of {name}");
        for (x, y) in slice.iter_mut().zip(values) {
            *x += y;
        }
    }

    /// Elements of a group.
    pub fn group(&self, group: Group) -> &[f64] {
        &self.flat[self.layout.range(group)]
    }
}
