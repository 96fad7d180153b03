//! What the kernels of `test-kernels` must compute, as plain loops: one case for each, run on any backend.
//!
//! A case uploads its inputs, launches its kernel, and compares what comes back; it panics with what differs. Outputs start
//! as a value that no kernel writes.

pub mod atomics;
pub mod copies;
pub mod indices;
pub mod math;
pub mod output;
pub mod reexports;
pub mod shared;
pub mod tensor;
pub mod warp;

use bytemuck::Pod;
use cuda_std::launch::{DevicePtr, DevicePtrMut, DeviceSlice, DeviceSliceMut, Launch};
use cuda_std::shape::LaunchShape;

/// Where kernels run.
pub trait Backend {
    /// Memory of the device.
    type Buffer<T: Pod + Send + Sync>;

    /// Memory that holds `values`.
    fn upload<T: Pod + Send + Sync>(&self, values: &[T]) -> Self::Buffer<T>;

    /// For a parameter that is read.
    fn view<'a, T: Pod + Send + Sync>(&self, buffer: &'a Self::Buffer<T>) -> DeviceSlice<'a, T>;

    /// For a parameter that is written.
    fn view_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Self::Buffer<T>) -> DeviceSliceMut<'a, T>;

    /// For a pointer that is read.
    fn ptr<'a, T: Pod + Send + Sync>(&self, buffer: &'a Self::Buffer<T>) -> DevicePtr<'a, T>;

    /// For a pointer that is written.
    fn ptr_mut<'a, T: Pod + Send + Sync>(&self, buffer: &'a Self::Buffer<T>) -> DevicePtrMut<'a, T>;

    /// The contents, once all launches have ended.
    fn read<T: Pod + Send + Sync>(&self, buffer: &Self::Buffer<T>) -> Vec<T>;

    /// Runs a launch to its end; the error is what it failed with.
    fn run(&self, shape: LaunchShape, launch: Launch) -> Result<(), String>;
}

/// Uploads `n` copies of a value that stands for "not written".
pub fn unwritten<B: Backend, T: Pod + Send + Sync>(backend: &B, n: usize, filler: T) -> B::Buffer<T> {
    backend.upload(&vec![filler; n])
}

/// Random bits that every run repeats (splitmix64).
pub fn random_bits(seed: u64) -> impl Iterator<Item = u64> {
    (1u64..).map(move |i| {
        let mut z = seed.wrapping_add(i.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// `n` random floats, uniform in [low, high).
pub fn random_floats(seed: u64, n: usize, low: f64, high: f64) -> Vec<f64> {
    random_bits(seed).take(n).map(|bits| low + (high - low) * (bits >> 11) as f64 / (1u64 << 53) as f64).collect()
}

/// A case and its name.
pub type NamedCase<B> = (&'static str, fn(&B));

/// Every case that each GPU runs.
pub fn cases<B: Backend>() -> Vec<NamedCase<B>> {
    vec![
        ("indices_and_barriers", indices::thread_indices),
        ("counting_barriers", indices::counting_barriers),
        ("case_v_shuffles", warp::shuffles),
        ("case_v_votes_and_matches", warp::votes_and_matches),
        ("case_v_reductions", warp::reductions),
        ("case_v_divergent_branch", warp::shuffle_after_a_branch),
        ("case_w_shared_stores", shared::stores_of_every_size),
        ("case_w_arrays_of_arrays", shared::arrays_of_arrays),
        ("shared_loop", shared::array_in_a_loop),
        ("shared_static", shared::shared_static),
        ("shared_dynamic", shared::dynamic),
        ("case_w_float_atomics", atomics::float_sum),
        ("atomic_operations", atomics::every_operation),
        ("atomics_shared", atomics::in_shared_memory),
        ("atomics_bytes", atomics::bytes),
        ("atomics_exchange", atomics::exchange),
        ("stamp", atomics::stamp),
        ("float_math", math::float_math),
        ("float_ext", math::float_ext),
        ("fast_math", math::fast_math),
        ("packed_halves", math::packed_halves),
        ("wide_division", math::wide_division),
        ("heap", output::heap),
        ("assertions", output::assertions),
        ("clocks", reexports::clocks),
        ("glam_and_vek", reexports::glam_and_vek),
        ("halves", reexports::halves),
        ("vectors", copies::vectors),
        ("cp_async", copies::asynchronous),
        ("mbarrier", copies::barrier),
        ("mma_16_bits", tensor::mma_16_bits),
        ("mma_tf32", tensor::mma_tf32),
        ("ldmatrix_stmatrix", tensor::transpose),
    ]
}

/// Every case whose kernels use instructions of sm_90.
pub fn cases_of_sm_90<B: Backend>() -> Vec<NamedCase<B>> {
    vec![("bulk", copies::bulk), ("wgmma", tensor::wgmma)]
}
