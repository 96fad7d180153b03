//! TEMP
#[cfg(target_os = "cuda")]
mod i { unsafe extern "C" {
 #[link_name = "llvm.nvvm.shfl.sync.bfly.f32"] pub fn bfly(m: u32, v: f32, a: u32, b: u32) -> f32;
 #[link_name = "llvm.nvvm.shfl.sync.up.i32"] pub fn up(m: u32, v: u32, a: u32, b: u32) -> u32;
 #[link_name = "llvm.nvvm.barrier.cta.sync.aligned.all"] pub fn bar(n: u32);
} }
/// TEMP
pub fn bar() { #[cfg(target_os = "cuda")] unsafe { i::bar(0) } }
/// TEMP
#[inline(always)]
pub unsafe fn warp_shuffle_xor(_m: u32, v: f32, _lane_mask: u32, _w: u32) -> (f32, bool) {
  #[cfg(target_os = "cuda")] return unsafe { (i::bfly(_m, v, _lane_mask, 31), true) };
  #[cfg(not(target_os = "cuda"))] { (v, true) }
}
/// TEMP
#[inline(always)]
pub unsafe fn warp_shuffle_up(_m: u32, v: u64, _d: u32, _w: u32) -> (u64, bool) {
  #[cfg(target_os = "cuda")] return unsafe { (i::up(_m, v as u32, _d, 0) as u64 | ((i::up(_m, (v>>32) as u32, _d, 0) as u64) << 32), true) };
  #[cfg(not(target_os = "cuda"))] { (v, true) }
}
