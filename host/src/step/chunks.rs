//! What the update's sweep does with each chunk of the flat parameters.

use gpu_kernels::adamw::{CHUNK, CHUNK_DECAYS, CHUNK_SHADOW};

use super::memory::LEARNER_GROUPS;
use crate::agent::layout::{ALIGNMENT, Layout, Tensor};

const _: () = assert!(CHUNK == ALIGNMENT);

/// Whether the sweep writes the tensor's operands. The trunk's matrices carry their spectral norm, which `spectral` alone knows.
pub(super) fn sweep_writes_operand(tensor: &Tensor) -> bool {
    tensor.has_operand() && !tensor.spectral
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
        if sweep_writes_operand(tensor) {
            byte |= CHUNK_SHADOW;
        }
        let range = tensor.range();
        bytes[range.start / CHUNK..range.end.div_ceil(CHUNK)].fill(byte);
    }
    bytes
}
