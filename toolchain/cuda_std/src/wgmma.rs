//! Products by four warps at once from shared memory (`wgmma`, sm_90a alone): D += A B with A 64x16 and B 16xN, bf16, accumulated
//! in f32.
//!
//! The 128 threads of a warpgroup (four warps, the first a multiple of four) call together: [`fence`] before the first product
//! and whenever the accumulators were touched otherwise, products, [`commit_group`], [`wait_group`]; in between the
//! accumulators belong to the tensor cores. Keep them in an array that is indexed by constants alone.
//!
//! Operands lie in shared memory as a [`Descriptor`] says. A K-major one is stored in rows along k, one for each row of A or
//! column of B; an MN-major one (transposed, as the instruction has it) in rows along M or N, one for each k.
//! Element i of thread t's accumulators, w = t / 32, g = t mod 32 / 4, q = t mod 4, stands at row 16 w + g + 8 (i / 2 mod 2),
//! column 8 (i / 4) + 2 q + i mod 2 of D ([`place`]; source: PTX ISA, register fragments for `wgmma.m64nNk16`).
//!
//! On the CPU target the last thread of the group to arrive reads both operands through the descriptors' layout, swizzle
//! included, and computes the product at once, summing over k in ascending order in f32.

use crate::target::target;

/// How rows of an operand are folded to spread over the memory's banks. The tile's address is aligned to eight such rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Swizzle {
    /// Rows of 16 bytes, not folded.
    None = 0,
    /// Rows of 128 bytes, 16-byte units exclusive-ored with the row's number mod 8.
    Bytes128 = 1,
    /// Rows of 64 bytes.
    Bytes64 = 2,
    /// Rows of 32 bytes.
    Bytes32 = 3,
}

/// An operand in shared memory; `MN_MAJOR` says which way its stored rows run.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<const MN_MAJOR: bool> {
    #[cfg(target_os = "cuda")]
    bits: u64,
    #[cfg(not(target_os = "cuda"))]
    layout: emulation::Layout,
}

impl<const MN_MAJOR: bool> Descriptor<MN_MAJOR> {
    /// Describes an operand at `start`. Stored rows are as wide as the swizzle says and come in groups of eight,
    /// `group_stride` bytes apart.
    ///
    /// K-major: without swizzle the next 16 bytes of k lie `leading_stride` bytes on; with swizzle it is not used. MN-major,
    /// with swizzle alone: eight successive k make a group, and where a row ends, M or N goes on `leading_stride` bytes from
    /// its begin. Source: PTX ISA, strides of `wgmma`'s shared memory layout; canonical layouts of CUTLASS's `make_gmma_desc`.
    ///
    /// # Safety
    /// `start` points into shared memory, aligned to 16 bytes (with swizzle, the tile it lies in to eight rows), and the
    /// operand is valid wherever it is used. Strides are multiples of 16 under 2^18.
    #[inline(always)]
    #[cfg_attr(not(target_os = "cuda"), track_caller)]
    pub unsafe fn new<T>(start: *const T, leading_stride: u32, group_stride: u32, swizzle: Swizzle) -> Self {
        target!(gpu {
            // SAFETY: the caller's promise.
            let start = unsafe { crate::ptr::shared_address(start) };
            let field = |bytes: u32| u64::from(bytes >> 4 & 0x3fff);
            Self {
                bits: field(start) | field(leading_stride) << 16 | field(group_stride) << 32 | (swizzle as u64) << 62,
            }
        } cpu {
            if MN_MAJOR && swizzle == Swizzle::None {
                crate::cpu::fault(format_args!("an MN-major operand without swizzle is not described by these strides"));
            }
            let start = start.cast();
            Self { layout: emulation::Layout { start, leading_stride, group_stride, swizzle, mn_major: MN_MAJOR } }
        })
    }

    /// The same operand, `bytes` further: along k by 16 elements, 32 bytes of a K-major one (within a swizzled row too) and two
    /// groups of an MN-major one.
    #[inline(always)]
    pub fn advanced(self, bytes: u32) -> Self {
        target!(gpu { Self { bits: self.bits + u64::from(bytes >> 4) } } cpu {
            let layout = self.layout;
            Self { layout: emulation::Layout { start: layout.start.wrapping_add(bytes as usize), ..layout } }
        })
    }
}

/// Where element `i` of a thread's accumulators stands in D, (row, column); `thread` counts in the warpgroup.
pub const fn place(thread: u32, i: u32) -> (u32, u32) {
    (16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2), 8 * (i / 4) + 2 * (thread % 4) + i % 2)
}

/// Orders the threads' accesses to accumulators, and to shared memory through [`crate::bulk::fence_shared`], before the next
/// product.
///
/// # Safety
/// All threads of the warpgroup make the same call.
#[inline(always)]
pub unsafe fn fence() {
    #[cfg(target_os = "cuda")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("wgmma.fence.sync.aligned;", options(nostack))
    }
}

/// Closes the products since the last call into a group.
///
/// # Safety
/// All threads of the warpgroup make the same call.
#[inline(always)]
pub unsafe fn commit_group() {
    #[cfg(target_os = "cuda")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("wgmma.commit_group.sync.aligned;", options(nostack))
    }
}

/// Waits until at most the newest `N` groups are under way.
///
/// # Safety
/// All threads of the warpgroup make the same call.
#[inline(always)]
pub unsafe fn wait_group<const N: usize>() {
    #[cfg(target_os = "cuda")]
    // SAFETY: the caller's promise.
    unsafe {
        core::arch::asm!("wgmma.wait_group.sync.aligned {n};", n = const N, options(nostack))
    }
}

macro_rules! product {
    ($name:ident, $n:literal, $registers:literal, $shape:literal, [$first:literal $($i:literal)*]) => {
        #[doc = concat!("D (64x", $n, ") = A B, plus D if `accumulate`; ", $registers, " accumulators a thread.")]
        ///
        /// # Safety
        /// All threads of the warpgroup make the same call; the operands are valid; until [`wait_group`] says so nobody touches
        /// the accumulators or writes the operands.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub unsafe fn $name<const A_MN_MAJOR: bool, const B_MN_MAJOR: bool>(
            d: &mut [f32; $registers],
            a: Descriptor<A_MN_MAJOR>,
            b: Descriptor<B_MN_MAJOR>,
            accumulate: bool,
        ) {
            target!(gpu {
                // SAFETY: the caller's promise.
                unsafe {
                    core::arch::asm!(
                        "{{ .reg .pred %accumulate; setp.ne.b32 %accumulate, {accumulate}, 0;",
                        concat!(
                            "wgmma.mma_async.sync.aligned.", $shape, ".f32.bf16.bf16 {{",
                            "{", $first, "}" $(, ", {", $i, "}")*,
                            "}}, {a}, {b}, %accumulate, 1, 1, {transpose_a}, {transpose_b}; }}"
                        ),
                        inout(reg32) d[$first],
                        $(inout(reg32) d[$i],)*
                        a = in(reg64) a.bits,
                        b = in(reg64) b.bits,
                        accumulate = in(reg32) accumulate as u32,
                        transpose_a = const A_MN_MAJOR as u32,
                        transpose_b = const B_MN_MAJOR as u32,
                        options(nostack)
                    )
                }
            } cpu {
                let request = emulation::Request { a: a.layout, b: b.layout, accumulate, d: *d };
                *d = crate::cpu::group_collective(stringify!($name), 128, request, |threads| {
                    // SAFETY: the caller of every thread promises that the operands are valid.
                    unsafe { emulation::multiply::<$n, $registers>(threads) }
                })
            })
        }
    };
}

product!(m64n64k16_bf16, 64, 32, "m64n64k16", [
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
]);
product!(m64n128k16_bf16, 128, 64, "m64n128k16", [
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
]);
product!(m64n256k16_bf16, 256, 128, "m64n256k16", [
    0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
    32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63
    64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90 91 92 93 94 95
    96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114 115 116 117 118 119 120 121 122 123 124 125 126 127
]);

#[cfg(not(target_os = "cuda"))]
mod emulation {
    use super::{Swizzle, place};

    #[derive(Clone, Copy, Debug)]
    pub struct Layout {
        pub start: *const u8,
        pub leading_stride: u32,
        pub group_stride: u32,
        pub swizzle: Swizzle,
        pub mn_major: bool,
    }

    impl Layout {
        /// The address of element `mn` (row of A, column of B) of `k`.
        pub fn address(&self, mn: u32, k: u32) -> *const u8 {
            let (width, rows) = match self.swizzle {
                Swizzle::None => (16, 0),
                Swizzle::Bytes32 => (32, 1),
                Swizzle::Bytes64 => (64, 3),
                Swizzle::Bytes128 => (128, 7),
            };
            let (row, byte) = if self.mn_major { (k, 2 * mn) } else { (mn, 2 * k) };
            let column = byte / width * self.leading_stride + byte % width;
            let linear = self.start.wrapping_add((row / 8 * self.group_stride + row % 8 * width + column) as usize);
            // Bits 7 and up of the address, which number its 128-byte line, fold into the 16-byte unit within the line.
            linear.map_addr(|address| address ^ (address >> 7 & rows) << 4)
        }

        /// # Safety
        /// The operand is valid.
        unsafe fn element(&self, mn: u32, k: u32) -> f32 {
            // SAFETY: the caller's promise, which is this function's own `# Safety`; elements are aligned since strides and the start are.
            half::bf16::from_bits(unsafe { self.address(mn, k).cast::<u16>().read() }).to_f32()
        }
    }

    #[derive(Clone, Copy)]
    pub struct Request<const R: usize> {
        pub a: Layout,
        pub b: Layout,
        pub accumulate: bool,
        pub d: [f32; R],
    }

    /// # Safety
    /// The first thread's operands are valid.
    pub unsafe fn multiply<const N: usize, const R: usize>(threads: &[Request<R>]) -> Vec<[f32; R]> {
        let Request { a, b, accumulate, .. } = threads[0];
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        let a: [[f32; 16]; 64] =
            core::array::from_fn(|row| core::array::from_fn(|k| unsafe { a.element(row as u32, k as u32) }));
        // SAFETY: the caller's promise, which is this function's own `# Safety`.
        let b: [[f32; 16]; N] =
            core::array::from_fn(|column| core::array::from_fn(|k| unsafe { b.element(column as u32, k as u32) }));
        (0..)
            .zip(threads)
            .map(|(thread, request)| {
                core::array::from_fn(|i| {
                    let (row, column) = place(thread, i as u32);
                    let start = if accumulate { request.d[i] } else { 0.0 };
                    (0..16).fold(start, |sum, k| sum + a[row as usize][k] * b[column as usize][k])
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accumulators_tile_the_result() {
        let mut places: Vec<_> = (0..128).flat_map(|thread| (0..64).map(move |i| place(thread, i))).collect();
        places.sort_unstable();
        let all: Vec<_> = (0..64).flat_map(|row| (0..128).map(move |column| (row, column))).collect();
        assert_eq!(places, all);
    }

    #[test]
    fn the_widest_swizzle_moves_units_by_the_rows_number() {
        #[repr(align(1024))]
        struct Tile([u8; 2048]);
        let tile = Tile([0; 2048]);
        let start = tile.0.as_ptr();
        let layout = emulation::Layout {
            start,
            leading_stride: 0,
            group_stride: 1024,
            swizzle: Swizzle::Bytes128,
            mn_major: false,
        };
        let offset = |row, k| layout.address(row, k).addr() - start.addr();
        assert_eq!(offset(0, 5), 10);
        assert_eq!(offset(3, 0), 3 * 128 + 3 * 16);
        assert_eq!(offset(9, 8), 1024 + 128, "row 1 of the second group: unit 1 goes to unit 0");
        let mut seen: Vec<_> =
            (0..16).flat_map(|row| (0..64).map(move |k| (row, k))).map(|(row, k)| offset(row, k)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..1024).map(|element| 2 * element).collect::<Vec<_>>(), "every place once");
    }
    /// 128 of N by 16 of k: two panels of 64, in each two groups of eight rows.
    #[test]
    fn an_mn_major_operand_goes_on_in_the_next_panel() {
        #[repr(align(1024))]
        struct Tile([u8; 4096]);
        let tile = Tile([0; 4096]);
        let start = tile.0.as_ptr();
        let layout = emulation::Layout {
            start,
            leading_stride: 2048,
            group_stride: 1024,
            swizzle: Swizzle::Bytes128,
            mn_major: true,
        };
        let offset = |n, k| layout.address(n, k).addr() - start.addr();
        assert_eq!(offset(5, 0), 10, "row 0 of a group is not folded");
        assert_eq!(offset(0, 3), 3 * 128 + 3 * 16);
        assert_eq!(offset(64, 0), 2048);
        assert_eq!(offset(64 + 8, 9), 2048 + 1024 + 128, "row 1 of the second group: unit 1 goes to unit 0");
        let mut seen: Vec<_> = (0..128).flat_map(|n| (0..16).map(move |k| (n, k))).map(|(n, k)| offset(n, k)).collect();
        seen.sort_unstable();
        assert_eq!(seen, (0..2048).map(|element| 2 * element).collect::<Vec<_>>(), "every place once");
    }
}
