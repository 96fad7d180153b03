//! 128-bit arithmetic: products, quotients, remainders, shifts, and structs that hold them.

use cuda_std::prelude::*;

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn i128_ops(a: &[i128], b: &[i128], out: *mut i128) {
    let gid = thread::index_1d() as usize;
    if gid >= a.len() {
        return;
    }
    let (x, y) = (a[gid], b[gid]);
    let shift = (y & 127) as u32;
    let results = [
        x.wrapping_add(y),
        x.wrapping_sub(y),
        x.wrapping_mul(y),
        if y == 0 { 0 } else { x.wrapping_div(y) },
        if y == 0 { 0 } else { x.wrapping_rem(y) },
        x & y,
        x | y,
        x ^ y,
        x.wrapping_shl(shift),
        x.wrapping_shr(shift),
        ((x as u128).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835) >> 64) as i128,
        i128::from(x < y),
    ];
    for (op, result) in results.iter().enumerate() {
        *out.add(op * a.len() + gid) = *result;
    }
}

#[kernel]
#[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
pub unsafe fn u128_checksum(words: &[u64], out: *mut u128) {
    if thread::first() {
        let sum = words
            .iter()
            .fold(1u128, |sum, &word| sum.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(word.into()));
        assert!(!words.is_empty());
        *out = sum % 1_000_000_007;
    }
}
