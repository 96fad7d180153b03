//! A forward pass of the network over R rows: state -> u -> trunk -> branches.

use gpu_kernels::branches::branch_select;
use gpu_kernels::heads::HeadColumns;
use gpu_kernels::lanes::row_shape;
use gpu_kernels::trunk::film::{film_vector, film_vector_shape};
use gpu_kernels::trunk::forward::{residual_norm, residual_out, residual_out_shape, trunk_entry};
use gpu_kernels::trunk::input::{TEMPORAL_COLUMN, trunk_input, trunk_input_shape};
use shared_types::{Precision, Product, ProductForm, StepScalars};

use super::layout::{HEAD_NAMES, Layout, N_BLOCKS};
use super::parameters::Weights;
use super::{AttentionForward, Learners, Parameters, Sizes, TemporalForward, denoise, width};
use crate::device::{Buffer, Device, Matmul, Output};
use crate::error::DeviceError;
use crate::market::Step;

/// Buffers of a pass and its products. What the backward pass needs stays in them.
pub struct Pass {
    /// The temporal block, unless off.
    pub temporal: Option<TemporalForward>,
    /// The attention, unless off.
    pub attention: Option<AttentionForward>,
    /// Trunk's input, operand \[R, 200\].
    pub u: Buffer<u16>,
    /// W_in u + b, \[R, H\].
    pub pre_in: Buffer<f32>,
    /// FiLM's g and s, \[2H\].
    pub film: Buffer<f32>,
    /// FiLM's inputs, \[12\].
    pub film_inputs: Buffer<f32>,
    /// The stream after FiLM and after each block, \[R, H\].
    pub h: [Buffer<f32>; N_BLOCKS + 1],
    /// What each block's W1 takes, operand \[R, H\].
    pub normed: [Buffer<u16>; N_BLOCKS],
    /// W1 n + b1 of each block, \[R, H\].
    pub pre: [Buffer<f32>; N_BLOCKS],
    /// SiLU of it, operand \[R, H\].
    pub hidden: [Buffer<u16>; N_BLOCKS],
    /// W2 s + b2 of the block at work, \[R, H\].
    pub added: Buffer<f32>,
    /// h and the h_b, operand \[5, R, H\].
    pub branch_in: Buffer<u16>,
    /// W_g h, \[R, 32\].
    pub gate_logits: Buffer<f32>,
    /// Gates of each branch, \[R, 32\].
    pub gates: Buffer<f32>,
    /// Hidden layers of the heads before SiLU, \[5, R, M\].
    pub head_pre: Buffer<f32>,
    /// And after it, operand \[5, R, M\].
    pub head_hidden: Buffer<u16>,
    /// Outputs of the heads, \[R, head stride\].
    pub heads: Buffer<f32>,
    products: Products,
    n_rows: usize,
    lanes: u32,
    sizes: Sizes,
    precision: Precision,
    film_on: bool,
    selection_on: bool,
    denoise_on: bool,
    layout: std::sync::Arc<Layout>,
    none: Buffer<f32>,
}

/// The pass's matrix products.
struct Products {
    entry: Matmul,
    first: [Matmul; N_BLOCKS],
    second: [Matmul; N_BLOCKS],
    gates: Matmul,
    hidden: Matmul,
    out: Matmul,
}

/// y = x W^T for weights at `weight` and a bias at `bias` of the flat parameters.
pub(super) fn linear(n_rows: usize, shape: [usize; 2], weight: usize, bias: usize) -> Product {
    let [n, k] = shape.map(|extent| extent as u32);
    Product {
        m: n_rows as u32,
        n,
        k,
        a_stride: k,
        b: weight as u32,
        b_stride: k,
        c_stride: n,
        d_stride: n,
        bias: bias as u32,
        ..Product::default()
    }
}

impl Products {
    fn new(device: &Device, parameters: &Parameters, n_rows: usize) -> Result<Self, DeviceError> {
        let (layout, sizes) = (&parameters.layout, &parameters.sizes);
        let (h, m, columns) = (sizes.hidden, sizes.branch_hidden, HeadColumns::new(sizes.atoms));
        let at = |name: &str| layout.tensor(name).offset;
        let forward = |list| Matmul::new(device, ProductForm::Nt, parameters.precision, list);
        let of_block = |block: usize, layer: usize| {
            let (weight, bias) =
                (at(&format!("trunk.block{block}.w{layer}")), at(&format!("trunk.block{block}.b{layer}")));
            forward(vec![linear(n_rows, [h, h], weight, bias)])
        };
        let mut hidden = Vec::new();
        let mut out = Vec::new();
        for (head, name) in HEAD_NAMES.into_iter().enumerate() {
            let tensor = |part: &str| layout.tensor(&format!("branch.{name}.{part}"));
            let into = (head * n_rows * m) as u32;
            hidden.push(Product {
                a: (head * n_rows * h) as u32,
                c: into,
                d: into,
                ..linear(n_rows, [m, h], tensor("hidden.weight").offset, tensor("hidden.bias").offset)
            });
            let n_outputs = tensor("out.bias").n_elements();
            out.push(Product {
                a: into,
                c: columns.start[head],
                c_stride: columns.stride,
                ..linear(n_rows, [n_outputs, m], tensor("out.weight").offset, tensor("out.bias").offset)
            });
        }
        // The gates' matrices lie one behind the other, and have no bias.
        let gates = linear(n_rows, [4 * width::GROUPS, h], at("branch.gate.direction.weight"), 0);
        Ok(Self {
            entry: forward(vec![linear(n_rows, [h, width::INPUT], at("trunk.in.weight"), at("trunk.in.bias"))])?,
            first: [of_block(0, 1)?, of_block(1, 1)?],
            second: [of_block(0, 2)?, of_block(1, 2)?],
            gates: forward(vec![gates])?,
            hidden: forward(hidden)?,
            out: forward(out)?,
        })
    }
}

impl Pass {
    /// Buffers for passes over `n_rows` rows.
    pub fn new(
        device: &Device,
        parameters: &Parameters,
        n_rows: usize,
        learners: &Learners,
    ) -> Result<Self, DeviceError> {
        let sizes = parameters.sizes;
        let (h, m, precision) = (sizes.hidden, sizes.branch_hidden, parameters.precision);
        let floats = |width: usize| device.alloc_zeroed::<f32>(n_rows * width);
        let operands = |width: usize| device.alloc_zeroed::<u16>(n_rows * width * precision.words());
        let heads = HEAD_NAMES.len();
        let temporal = learners.temporal.then(|| TemporalForward::new(device, parameters, n_rows));
        let attention = learners.attention.then(|| AttentionForward::new(device, parameters, n_rows));
        Ok(Self {
            temporal: temporal.transpose()?,
            attention: attention.transpose()?,
            u: operands(width::INPUT)?,
            pre_in: floats(h)?,
            film: device.alloc_zeroed(2 * h)?,
            film_inputs: device.alloc_zeroed(width::FILM_INPUTS)?,
            h: [floats(h)?, floats(h)?, floats(h)?],
            normed: [operands(h)?, operands(h)?],
            pre: [floats(h)?, floats(h)?],
            hidden: [operands(h)?, operands(h)?],
            added: floats(h)?,
            branch_in: operands(heads * h)?,
            gate_logits: floats(4 * width::GROUPS)?,
            gates: floats(4 * width::GROUPS)?,
            head_pre: floats(heads * m)?,
            head_hidden: operands(heads * m)?,
            heads: floats(HeadColumns::new(sizes.atoms).stride as usize)?,
            products: Products::new(device, parameters, n_rows)?,
            n_rows,
            lanes: device.row_lanes(),
            sizes,
            precision,
            film_on: learners.film,
            selection_on: learners.selection,
            denoise_on: learners.denoise,
            layout: parameters.layout.clone(),
            none: device.alloc(0)?,
        })
    }

    /// R.
    pub fn n_rows(&self) -> usize {
        self.n_rows
    }

    /// The launches of a pass over `rows` `[R, stride]` with `weights`. Both networks share the denoise bottleneck of the `online`
    /// flat parameters. `scalars` hold the depth masks (or keep probabilities); `bus` is the internal state vector.
    pub fn forward(
        &self,
        rows: &Buffer<f32>,
        weights: &Weights,
        online: &Buffer<f32>,
        scalars: &Buffer<StepScalars>,
        bus: &Buffer<f32>,
    ) -> Vec<Step> {
        let film = film_vector::launch(
            weights.flat.slice(self.layout.range("film.weight")).view(),
            bus.view(),
            self.film.view_mut(),
            self.film_inputs.view_mut(),
            self.film_on.into(),
        );
        let film = (film_vector_shape(self.sizes.hidden), film);
        let mut steps = self.trunk(rows, weights, online, scalars, (&self.film, Some(film)));
        steps.extend(self.branches(weights));
        steps
    }

    /// The same with FiLM's vector of `twin`, whose pass with the same weights and the same bus has been: it hangs on no row.
    pub fn forward_as(
        &self,
        twin: &Self,
        rows: &Buffer<f32>,
        weights: &Weights,
        online: &Buffer<f32>,
        scalars: &Buffer<StepScalars>,
    ) -> Vec<Step> {
        let mut steps = self.trunk(rows, weights, online, scalars, (&twin.film, None));
        steps.extend(self.branches(weights));
        steps
    }

    fn trunk(
        &self,
        rows: &Buffer<f32>,
        weights: &Weights,
        online: &Buffer<f32>,
        scalars: &Buffer<StepScalars>,
        (film, film_launch): (&Buffer<f32>, Option<Step>),
    ) -> Vec<Step> {
        let (flat, shadow, products) = (&weights.flat, weights.shadow.all(), &self.products);
        let tensor = |name: &str| flat.slice(self.layout.range(name)).view();
        let row_wise = row_shape(self.n_rows, self.lanes);
        let none = &self.none;
        let (temporal, attention) = (self.temporal.as_ref(), self.attention.as_ref());
        let input = trunk_input::launch(
            rows.view(),
            temporal.map_or(none, |block| &block.output).view(),
            attention.map_or(none, |attention| &attention.output).view(),
            if self.denoise_on { denoise::encoder(online, &self.layout).view() } else { none.view() },
            self.u.view_mut(),
            self.sizes.window as u32,
            self.precision,
        );
        // The last bar and what follows it.
        let input = input.moves("rows", size_of::<f32>() * self.n_rows * TEMPORAL_COLUMN);
        let entry_bias = Some(flat.all());
        let entry = trunk_entry::launch(
            self.pre_in.view(),
            tensor("trunk.in.gain"),
            film.view(),
            tensor("trunk.block0.gain"),
            self.h[0].view_mut(),
            self.normed[0].view_mut(),
            self.precision,
        );
        let mut steps: Vec<Step> = temporal.map(|block| block.launch(rows, weights)).into_iter().collect();
        steps.extend(attention.map(|attention| attention.launch(rows, weights)));
        steps.push((trunk_input_shape(self.n_rows), input));
        steps.extend(film_launch);
        steps.extend([
            products.entry.launch(self.u.all(), shadow, Output::Store(self.pre_in.all(), entry_bias)),
            (row_wise, entry),
        ]);
        for block in 0..N_BLOCKS {
            let silu = Output::Silu { c: self.pre[block].all(), d: self.hidden[block].all(), bias: flat.all() };
            steps.push(products.first[block].launch(self.normed[block].all(), weights.shadow.all(), silu));
            let store = Output::Store(self.added.all(), Some(flat.all()));
            steps.push(products.second[block].launch(self.hidden[block].all(), weights.shadow.all(), store));
            let (h, added, scalars) = (self.h[block].view(), self.added.view(), scalars.view());
            let next = self.h[block + 1].view_mut();
            let step = if block + 1 < N_BLOCKS {
                let gain = tensor(&format!("trunk.block{}.gain", block + 1));
                let normed = self.normed[block + 1].view_mut();
                (row_wise, residual_norm::launch(h, added, scalars, gain, next, normed, block as u32, self.precision))
            } else {
                let out = self.branch_in_slots(0..1).view_mut();
                let launch = residual_out::launch(h, added, scalars, next, out, block as u32, self.precision);
                (residual_out_shape(self.n_rows, self.sizes.hidden), launch)
            };
            steps.push(step);
        }
        steps
    }

    fn branches(&self, weights: &Weights) -> Vec<Step> {
        let (flat, products, shadow) = (&weights.flat, &self.products, || weights.shadow.all());
        let select = branch_select::launch(
            self.h[N_BLOCKS].view(),
            self.gate_logits.view(),
            self.gates.view_mut(),
            self.branch_in.view_mut(),
            self.selection_on.into(),
            self.precision,
        );
        let silu = Output::Silu { c: self.head_pre.all(), d: self.head_hidden.all(), bias: flat.all() };
        let gates = Output::Store(self.gate_logits.all(), None);
        let heads = Output::Store(self.heads.all(), Some(flat.all()));
        vec![
            products.gates.launch(self.branch_in_slots(0..1), shadow(), gates),
            (row_shape(self.n_rows, self.lanes), select),
            products.hidden.launch(self.branch_in.all(), shadow(), silu),
            products.out.launch(self.head_hidden.all(), shadow(), heads),
        ]
    }

    /// Slots of [`branch_in`](Self::branch_in): 0 is h, 1 to 4 the h_b.
    pub fn branch_in_slots(&self, slots: std::ops::Range<usize>) -> crate::device::Part<'_, u16> {
        let slot = self.n_rows * self.sizes.hidden * self.precision.words();
        self.branch_in.slice(slots.start * slot..slots.end * slot)
    }
}
