//! The published `sha2` crate, unchanged, in a kernel.

use cuda_std::prelude::*;
use sha2::{Digest, Sha256, Sha512};

/// Hashes one message of `len` bytes a thread.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn hash_256(messages: &[u8], len: usize, digests: *mut [u8; 32]) {
    let idx = thread::index_1d() as usize;
    if idx < messages.len() / len {
        let digest = Sha256::digest(&messages[len * idx..len * (idx + 1)]);
        *digests.add(idx) = digest.into();
    }
}

/// Hashes the whole input in one thread, 512 bits.
#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn hash_512(message: &[u8], digest: *mut u8) {
    if thread::first() {
        let mut hasher = Sha512::new();
        hasher.update(message);
        let bytes = hasher.finalize();
        core::ptr::copy_nonoverlapping(bytes.as_ptr(), digest, bytes.len());
    }
}
