//! The flat parameters: which tensors there are, in which order, where each begins.
//!
//! Parts of the step work on ranges of the flat vector, so a learner's tensors lie together. Every tensor begins at a
//! multiple of [`ALIGNMENT`] elements; the gaps are zero and stay so. A matrix is `[outputs, inputs]`, row-major. Tensor
//! number i draws its initial values from stream 1000 + i. H = hidden, M = branch_hidden, K = atoms, T = window.
//!
//! | group | tensors in order |
//! |---|---|
//! | [`Group::Theta`] | `temporal.{embed.weight [64, 24], embed.bias [64], in_proj.weight [292, 64], conv.weight [160, 4], conv.bias [160], dt_bias [4], a_log [4], d [4], norm.gain [128], out_proj.weight [64, 128]}`; `trunk.in.{weight [H, 200], bias [H], gain [H]}`; `trunk.block{0, 1}.{gain [H], w1 [H, H], b1 [H], w2 [H, H], b2 [H]}`; `film.weight [2H, 12]`; `branch.gate.{direction, size, order, hold}.weight [8, H]`; of `branch.{value, direction, size, order, hold}` first all `hidden.weight [M, H]`, then `hidden.bias [M]`, `out.weight [4K or n_b K, M]`, `out.bias` |
//! | [`Group::Attention`] | `attention.{embed.weight [64, 24], embed.bias [64]}`, `attention.bars.{wq, wk, wv, wo [64, 64], gain [64]}`, `attention.channels.{wq, wk, wv, wo [T, T], gain [T]}` |
//! | [`Group::Iqn`] | `iqn.{phi.weight [H, 64], phi.bias [H], hidden.weight [M, H], hidden.bias [M], out.weight [13, M], out.bias [13]}` |
//! | [`Group::IqlHigh`], [`Group::IqlLow`] | `{iql_high, iql_low}.{hidden.weight [128, H], hidden.bias [128], out.weight [1, 128], out.bias [1]}` |
//! | [`Group::Selectivity`] | `select.{weight [1, H], bias [1]}` |
//! | [`Group::Denoise`] | `denoise.{encoder.weight [32, 24], encoder.bias [32], decoder.weight [24, 32], decoder.bias [24]}` |

use std::collections::HashMap;
use std::ops::Range;

use shared_types::market::{BRANCH_SIZES, N_FEATURES};

use super::{Sizes, width};

/// A tensor begins at a multiple of so many elements.
pub const ALIGNMENT: usize = 64;
/// Residual blocks of the trunk.
pub const N_BLOCKS: usize = shared_types::N_DEPTH_BLOCKS;
/// Heads over the trunk: V, then the advantages of each branch.
pub const HEAD_NAMES: [&str; 5] = ["value", "direction", "size", "order", "hold"];

/// Parameters that share a learner, a clip and a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Group {
    /// Temporal block, trunk, W_isv, branches.
    Theta,
    /// The attention.
    Attention,
    /// IQN's head.
    Iqn,
    /// V_high.
    IqlHigh,
    /// V_low.
    IqlLow,
    /// Selectivity.
    Selectivity,
    /// Denoise.
    Denoise,
}

/// How a tensor starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Init {
    /// Zeros.
    Zero,
    /// Ones.
    One,
    /// Normal of variance 1 / inputs, times the factor.
    Normal(f32),
    /// Uniform in [-1/2, 1/2).
    Conv,
    /// exp of it is uniform in [1, 16).
    ALog,
    /// softplus of it is log-uniform in [0.001, 0.1).
    DtBias,
}

/// One tensor.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Name, unique.
    pub name: String,
    /// Whose it is.
    pub group: Group,
    /// One or two dimensions.
    pub shape: Vec<usize>,
    /// First element in the flat vector.
    pub offset: usize,
    /// Initial values.
    pub init: Init,
    /// Whether weight decay applies: matrices but the convolution's.
    pub decays: bool,
    /// Whether its operands carry a spectral norm and are written by `spectral`: W_in, W1, W2.
    pub spectral: bool,
    /// Whether pruning may take weights away: W_in, W1, W2 and the matrices of V and A_b.
    pub prunable: bool,
}

impl Tensor {
    /// Elements.
    pub fn n_elements(&self) -> usize {
        self.shape.iter().product()
    }

    /// Inputs of one output.
    pub fn fan_in(&self) -> usize {
        self.shape[self.shape.len() - 1]
    }

    /// Whether a product takes it, rounded: a matrix, but for a row of one output, which is taken in f32.
    pub fn has_operand(&self) -> bool {
        self.shape.len() == 2 && self.shape[0] > 1
    }

    /// Where it lies in the flat vector.
    pub fn range(&self) -> Range<usize> {
        self.offset..self.offset + self.n_elements()
    }
}

/// All tensors in order.
#[derive(Clone, Debug)]
pub struct Layout {
    tensors: Vec<Tensor>,
    by_name: HashMap<String, usize>,
}

impl Layout {
    /// The layout of a network.
    pub fn new(sizes: &Sizes) -> Self {
        let mut layout = Self { tensors: Vec::new(), by_name: HashMap::new() };
        layout.add_temporal();
        layout.add_trunk(sizes.hidden);
        layout.add_branches(sizes);
        layout.add_attention(sizes.window);
        layout.add_learners(sizes);
        layout
    }

    /// The tensors; a position is the number behind its stream of initial values.
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }

    /// The tensor of that name.
    ///
    /// # Panics
    /// If there is none.
    pub fn tensor(&self, name: &str) -> &Tensor {
        &self.tensors[*self.by_name.get(name).unwrap_or_else(|| panic!("no tensor is named {name}"))]
    }

    /// Where the tensor of that name lies.
    pub fn range(&self, name: &str) -> Range<usize> {
        self.tensor(name).range()
    }

    /// Elements of the flat vector, a multiple of [`ALIGNMENT`].
    pub fn n_elements(&self) -> usize {
        self.tensors.last().map_or(0, |last| last.range().end.next_multiple_of(ALIGNMENT))
    }

    /// From a group's first element to the next group's.
    pub fn group(&self, group: Group) -> Range<usize> {
        let mut of_group = self.tensors.iter().filter(|tensor| tensor.group == group);
        let first = of_group.next().expect("every group has tensors");
        first.offset..of_group.next_back().unwrap_or(first).range().end.next_multiple_of(ALIGNMENT)
    }

    /// What the target network holds: theta, the attention, IQN's head.
    pub fn target(&self) -> Range<usize> {
        0..self.group(Group::Iqn).end
    }

    fn add(&mut self, group: Group, name: impl Into<String>, shape: &[usize], init: Init) -> &mut Tensor {
        let (name, offset) = (name.into(), self.n_elements());
        self.by_name.insert(name.clone(), self.tensors.len());
        let decays = shape.len() == 2 && init != Init::Conv;
        let shape = shape.to_vec();
        self.tensors.push(Tensor { name, group, shape, offset, init, decays, spectral: false, prunable: false });
        self.tensors.last_mut().expect("just added")
    }

    fn add_temporal(&mut self) {
        let channels = width::SCAN_INNER + 2 * width::SCAN_STATE;
        let projected = width::SCAN_INNER + channels + width::SCAN_HEADS;
        let parts: [(&str, &[usize], Init); 10] = [
            ("embed.weight", &[width::TEMPORAL, N_FEATURES], Init::Normal(1.0)),
            ("embed.bias", &[width::TEMPORAL], Init::Zero),
            ("in_proj.weight", &[projected, width::TEMPORAL], Init::Normal(1.0)),
            ("conv.weight", &[channels, width::CONV_TAPS], Init::Conv),
            ("conv.bias", &[channels], Init::Conv),
            ("dt_bias", &[width::SCAN_HEADS], Init::DtBias),
            ("a_log", &[width::SCAN_HEADS], Init::ALog),
            ("d", &[width::SCAN_HEADS], Init::One),
            ("norm.gain", &[width::SCAN_INNER], Init::One),
            ("out_proj.weight", &[width::TEMPORAL, width::SCAN_INNER], Init::Normal(1.0)),
        ];
        for (part, shape, init) in parts {
            self.add(Group::Theta, format!("temporal.{part}"), shape, init);
        }
    }

    fn add_trunk(&mut self, h: usize) {
        let spectral = |tensor: &mut Tensor| (tensor.spectral, tensor.prunable) = (true, true);
        spectral(self.add(Group::Theta, "trunk.in.weight", &[h, width::INPUT], Init::Normal(1.0)));
        self.add(Group::Theta, "trunk.in.bias", &[h], Init::Zero);
        self.add(Group::Theta, "trunk.in.gain", &[h], Init::One);
        for block in 0..N_BLOCKS {
            self.add(Group::Theta, format!("trunk.block{block}.gain"), &[h], Init::One);
            for layer in 1..=2 {
                spectral(self.add(Group::Theta, format!("trunk.block{block}.w{layer}"), &[h, h], Init::Normal(1.0)));
                self.add(Group::Theta, format!("trunk.block{block}.b{layer}"), &[h], Init::Zero);
            }
        }
        self.add(Group::Theta, "film.weight", &[2 * h, width::FILM_INPUTS], Init::Zero);
    }

    fn add_branches(&mut self, sizes: &Sizes) {
        let (h, m, k) = (sizes.hidden, sizes.branch_hidden, sizes.atoms);
        for branch in &HEAD_NAMES[1..] {
            self.add(Group::Theta, format!("branch.gate.{branch}.weight"), &[width::GROUPS, h], Init::Zero);
        }
        let n_outputs = |head: usize| if head == 0 { BRANCH_SIZES.len() * k } else { BRANCH_SIZES[head - 1] * k };
        for head in HEAD_NAMES {
            let name = format!("branch.{head}.hidden.weight");
            self.add(Group::Theta, name, &[m, h], Init::Normal(1.0)).prunable = true;
        }
        for head in HEAD_NAMES {
            self.add(Group::Theta, format!("branch.{head}.hidden.bias"), &[m], Init::Zero);
        }
        for (number, head) in HEAD_NAMES.into_iter().enumerate() {
            let (name, shape) = (format!("branch.{head}.out.weight"), [n_outputs(number), m]);
            self.add(Group::Theta, name, &shape, Init::Normal(0.01)).prunable = true;
        }
        for (number, head) in HEAD_NAMES.into_iter().enumerate() {
            self.add(Group::Theta, format!("branch.{head}.out.bias"), &[n_outputs(number)], Init::Zero);
        }
    }

    fn add_attention(&mut self, window: usize) {
        let group = Group::Attention;
        self.add(group, "attention.embed.weight", &[width::ATTENTION, N_FEATURES], Init::Normal(1.0));
        self.add(group, "attention.embed.bias", &[width::ATTENTION], Init::Zero);
        for (over, n) in [("bars", width::ATTENTION), ("channels", window)] {
            for matrix in ["wq", "wk", "wv", "wo"] {
                self.add(group, format!("attention.{over}.{matrix}"), &[n, n], Init::Normal(1.0));
            }
            self.add(group, format!("attention.{over}.gain"), &[n], Init::One);
        }
    }

    fn add_learners(&mut self, sizes: &Sizes) {
        let (h, m) = (sizes.hidden, sizes.branch_hidden);
        self.add_layer(Group::Iqn, "iqn.phi", [h, width::COSINES], 1.0);
        self.add_layer(Group::Iqn, "iqn.hidden", [m, h], 1.0);
        self.add_layer(Group::Iqn, "iqn.out", [width::ACTIONS, m], 0.01);
        for (group, name) in [(Group::IqlHigh, "iql_high"), (Group::IqlLow, "iql_low")] {
            self.add_layer(group, &format!("{name}.hidden"), [width::IQL_HIDDEN, h], 1.0);
            self.add_layer(group, &format!("{name}.out"), [1, width::IQL_HIDDEN], 1.0);
        }
        self.add_layer(Group::Selectivity, "select", [1, h], 1.0);
        self.add_layer(Group::Denoise, "denoise.encoder", [width::BOTTLENECK, N_FEATURES], 1.0);
        self.add_layer(Group::Denoise, "denoise.decoder", [N_FEATURES, width::BOTTLENECK], 1.0);
    }

    fn add_layer(&mut self, group: Group, name: &str, shape: [usize; 2], factor: f32) {
        self.add(group, format!("{name}.weight"), &shape, Init::Normal(factor));
        self.add(group, format!("{name}.bias"), &shape[..1], Init::Zero);
    }
}
