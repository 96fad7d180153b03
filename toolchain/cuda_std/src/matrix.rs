//! Loads and stores of 8x8 matrices of 16-bit elements by a whole warp (`ldmatrix`, `stmatrix`), in the layout that
//! [`crate::mma`] takes.
//!
//! Lane 8 m + r gives the address of row r of matrix m: 16 bytes in shared memory, aligned to 16. Lane l then holds, in
//! register m, elements 2 (l mod 4) and 2 (l mod 4) + 1 of row l / 4 of matrix m, or with `_trans` of its transpose.
//! Addresses of lanes beyond the last matrix are not used.

use crate::target::target;

macro_rules! load {
    ($name:ident, $n:literal, $instruction:literal, $transposed:literal, [$($register:ident),*]) => {
        #[doc = concat!("Loads ", $n, " matrices (", $instruction, ").")]
        ///
        /// # Safety
        /// All 32 lanes of the warp make the same call; the addresses that are used are valid, in shared memory and aligned to
        /// 16 bytes.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub unsafe fn $name<T>(row: *const T) -> [u32; $n] {
            target!(gpu {
                $(let $register: u32;)*
                // SAFETY: the caller's promise. Not `nomem`: it reads memory.
                unsafe {
                    core::arch::asm!(
                        concat!($instruction, " {{", load!(@list $($register)*), "}}, [{address}];"),
                        $($register = out(reg32) $register,)*
                        address = in(reg32) crate::ptr::shared_address(row),
                        options(readonly, nostack, preserves_flags)
                    );
                }
                [$($register),*]
            } cpu {
                crate::cpu::warp_collective(stringify!($name), crate::warp::FULL_MASK, row.cast::<u16>(), |rows| {
                    // SAFETY: the caller of every lane promises that its row is valid.
                    unsafe { emulation::load(rows, $transposed) }
                })
            })
        }
    };
    (@list $first:ident $($rest:ident)*) => { concat!("{", stringify!($first), "}" $(, ", {", stringify!($rest), "}")*) };
}

load!(load_x1, 1, "ldmatrix.sync.aligned.m8n8.x1.shared.b16", false, [d0]);
load!(load_x2, 2, "ldmatrix.sync.aligned.m8n8.x2.shared.b16", false, [d0, d1]);
load!(load_x4, 4, "ldmatrix.sync.aligned.m8n8.x4.shared.b16", false, [d0, d1, d2, d3]);
load!(load_x1_trans, 1, "ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16", true, [d0]);
load!(load_x2_trans, 2, "ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16", true, [d0, d1]);
load!(load_x4_trans, 4, "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16", true, [d0, d1, d2, d3]);

macro_rules! store {
    ($name:ident, $n:literal, $instruction:literal, $transposed:literal, [$($register:ident $index:tt),*]) => {
        #[doc = concat!("Stores ", $n, " matrices (", $instruction, " on sm_90 and later, else by shuffles and plain stores).")]
        ///
        /// # Safety
        /// All 32 lanes of the warp make the same call; the addresses that are used are valid, in shared memory, aligned to 16
        /// bytes and 16 bytes apart.
        #[inline(always)]
        #[cfg_attr(not(target_os = "cuda"), track_caller)]
        pub unsafe fn $name<T>(row: *mut T, values: [u32; $n]) {
            target!(gpu {
                #[cfg(target_feature = "sm_90")]
                // SAFETY: the caller's promise.
                unsafe {
                    core::arch::asm!(
                        concat!($instruction, " [{address}], {{", load!(@list $($register)*), "}};"),
                        $($register = in(reg32) values[$index],)*
                        address = in(reg32) crate::ptr::shared_address(row.cast_const()),
                        options(nostack, preserves_flags)
                    );
                }
                #[cfg(not(target_feature = "sm_90"))]
                // SAFETY: the caller's promise, which is this function's own `# Safety`.
                unsafe { store_by_shuffles(row.cast(), values, $transposed) }
            } cpu {
                crate::cpu::warp_collective(
                    stringify!($name),
                    crate::warp::FULL_MASK,
                    (row.cast::<u16>(), values),
                    |lanes| {
                        // SAFETY: the caller of every lane promises that its row is valid.
                        unsafe { emulation::store(lanes, $transposed) }
                    },
                )
            })
        }
    };
}

store!(store_x1, 1, "stmatrix.sync.aligned.m8n8.x1.shared.b16", false, [d0 0]);
store!(store_x2, 2, "stmatrix.sync.aligned.m8n8.x2.shared.b16", false, [d0 0, d1 1]);
store!(store_x4, 4, "stmatrix.sync.aligned.m8n8.x4.shared.b16", false, [d0 0, d1 1, d2 2, d3 3]);
store!(store_x1_trans, 1, "stmatrix.sync.aligned.m8n8.x1.trans.shared.b16", true, [d0 0]);
store!(store_x2_trans, 2, "stmatrix.sync.aligned.m8n8.x2.trans.shared.b16", true, [d0 0, d1 1]);
store!(store_x4_trans, 4, "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16", true, [d0 0, d1 1, d2 2, d3 3]);

/// Where the two elements of register `matrix` of `lane` stand: (lane that gives the row, element) each.
#[cfg(not(all(target_os = "cuda", target_feature = "sm_90")))]
const fn places(lane: usize, matrix: usize, transposed: bool) -> [(usize, usize); 2] {
    let (major, minor) = (lane / 4, 2 * (lane % 4));
    if transposed {
        [(8 * matrix + minor, major), (8 * matrix + minor + 1, major)]
    } else {
        [(8 * matrix + major, minor), (8 * matrix + major, minor + 1)]
    }
}

#[cfg(all(target_os = "cuda", not(target_feature = "sm_90")))]
#[inline(always)]
unsafe fn store_by_shuffles<const N: usize>(row: *mut u16, values: [u32; N], transposed: bool) {
    let lane = crate::warp::lane_id() as usize;
    for (matrix, value) in values.into_iter().enumerate() {
        for (half, (source, element)) in places(lane, matrix, transposed).into_iter().enumerate() {
            // SAFETY: the caller promises that the whole warp is here and that the row is valid.
            unsafe {
                let (row, _) = crate::warp::warp_shuffle_idx(crate::warp::FULL_MASK, row as u64, source as u32, 32);
                let row = crate::ptr::assume_shared(row as *mut u16);
                row.add(element).write((value >> (16 * half)) as u16);
            }
        }
    }
    // SAFETY: as above. The instruction, too, orders memory among the lanes.
    unsafe { crate::warp::sync_warp(crate::warp::FULL_MASK) }
}

#[cfg(not(target_os = "cuda"))]
mod emulation {
    use super::places;

    fn row<P: Copy>(rows: &[Option<P>; 32], lane: usize) -> P {
        rows[lane].unwrap_or_else(|| {
            crate::cpu::fault(format_args!("a matrix load or store needs the row of lane {lane}, which has returned"))
        })
    }

    /// # Safety
    /// The rows of the first 8 N lanes are valid.
    pub unsafe fn load<const N: usize>(rows: &[Option<*const u16>; 32], transposed: bool) -> [[u32; N]; 32] {
        crate::warp::each_lane(|lane| {
            core::array::from_fn(|matrix| {
                let [low, high] = places(lane, matrix, transposed).map(|(source, element)| {
                    // SAFETY: an element of a valid row.
                    u32::from(unsafe { row(rows, source).add(element).read() })
                });
                low | high << 16
            })
        })
    }

    /// # Safety
    /// The rows of the first 8 N lanes are valid.
    pub unsafe fn store<const N: usize>(lanes: &[Option<(*mut u16, [u32; N])>; 32], transposed: bool) -> [(); 32] {
        for (lane, (_, values)) in lanes.iter().enumerate().filter_map(|(lane, slot)| slot.map(|slot| (lane, slot))) {
            for (matrix, value) in values.into_iter().enumerate() {
                for (half, (source, element)) in places(lane, matrix, transposed).into_iter().enumerate() {
                    // SAFETY: an element of a valid row.
                    unsafe { row(lanes, source).0.add(element).write((value >> (16 * half)) as u16) };
                }
            }
        }
        [(); 32]
    }
}

#[cfg(test)]
mod tests {
    use super::emulation::{load, store};

    #[test]
    fn a_store_undoes_a_load_and_trans_transposes() {
        let source: [[u16; 8]; 32] =
            core::array::from_fn(|row| core::array::from_fn(|column| (row * 8 + column) as u16));
        let rows = core::array::from_fn(|lane| Some(source[lane].as_ptr()));
        // SAFETY: each lane's row is one of `source`.
        let plain: [[u32; 4]; 32] = unsafe { load(&rows, false) };
        // Lane 5 holds elements 2 and 3 of row 1 of each matrix.
        assert_eq!(plain[5], [0, 1, 2, 3].map(|m| (64 * m + 8 + 2) | (64 * m + 8 + 3) << 16));
        let mut copy = [[0u16; 8]; 32];
        let copy_rows: [*mut u16; 32] = core::array::from_fn(|row| copy[row].as_mut_ptr());
        let lanes = core::array::from_fn(|lane| Some((copy_rows[lane], plain[lane])));
        // SAFETY: each lane's row is one of `copy`.
        unsafe { store(&lanes, true) };
        for (row, column) in (0..32).flat_map(|row| (0..8).map(move |column| (row, column))) {
            assert_eq!(copy[row][column], source[row / 8 * 8 + column][row % 8], "row {row}, column {column}");
        }
    }
}
