//! What the update's sweep does with each chunk of the flat parameters.

use gpu_kernels::adamw::{CHUNK, CHUNK_DECAYS, CHUNK_SHADOW};

use super::memory::LEARNER_GROUPS;
use crate::agent::layout::{ALIGNMENT, Layout, Tensor};

const _: () = assert!(CHUNK == ALIGNMENT);

/// Whether the sweep writes the tensor's operands. The trunk's matrices carry their spectral norm, which `spectral` alone knows; a
/// row of one output is taken in f32.
pub(super) fn has_operands(tensor: &Tensor) -> bool {
    tensor.shape.len() == 2 && tensor.shape[0] > 1 && !tensor.spectral
}

/// A byte for each chunk: the learner, whether weight decay applies, whether the sweep writes operands.
pub(super) fn chunk_bytes(layout: &Layout) -> Vec<u8> {
    let mut bytes = vec![0; layout.n_elements() / CHUNK];
    for tensor in layout.tensors() {
        let learner = LEARNER_GROUPS.iter().position(|group| *group == tensor.group).expect("every group learns");
        let mut byte = learner as u8;
        if tensor.decays {
            byte |= CHUNK_DECAYS;
        }
        if has_operands(tensor) {
            byte |= CHUNK_SHADOW;
        }
        let range = tensor.range();
        bytes[range.start / CHUNK..range.end.div_ceil(CHUNK)].fill(byte);
    }
    bytes
}
