//! Approximate mathematics: one instruction of the GPU's special function unit each.
//!
//! The bounds are the PTX ISA's. On the CPU target each function is the precise one, so the two targets differ by no more
//! than these bounds. Subnormal arguments and results are kept unless a bound says otherwise.

#[cfg(target_os = "cuda")]
use core::arch::asm;

macro_rules! approximations {
    ($($(#[$doc:meta])* $name:ident: $type:ident in $reg:ident, $instruction:literal, |$x:ident| $precise:expr;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub fn $name($x: $type) -> $type {
            crate::target::target!(gpu {
                let y: $type;
                // SAFETY: arithmetic on registers.
                unsafe {
                    asm!(
                        concat!($instruction, " {y}, {x};"),
                        y = out($reg) y,
                        x = in($reg) $x,
                        options(pure, nomem, nostack, preserves_flags)
                    );
                }
                y
            } cpu { $precise })
        }
    )*};
}

approximations! {
    /// 2^x, relative error at most 2^-22.5.
    exp2: f32 in reg32, "ex2.approx.f32", |x| f32::exp2(x);
    /// 2^x as [`exp2`], but a subnormal argument or result becomes 0: one instruction instead of four.
    exp2_flushed: f32 in reg32, "ex2.approx.ftz.f32", |x| {
        let power = f32::exp2(x);
        if power < f32::MIN_POSITIVE { 0.0 } else { power }
    };
    /// log2 x, absolute error at most 2^-22 for x in (0.5, 2), else relative 2^-22.
    log2: f32 in reg32, "lg2.approx.f32", |x| f32::log2(x);
    /// 1 / sqrt(x), relative error at most 2^-22.9.
    rsqrt: f32 in reg32, "rsqrt.approx.f32", |x| 1.0 / f32::sqrt(x);
    /// 1 / x, relative error at most 1 ulp.
    rcp: f32 in reg32, "rcp.approx.f32", |x| 1.0 / x;
    /// sqrt(x), relative error at most 2^-23.
    sqrt: f32 in reg32, "sqrt.approx.f32", |x| f32::sqrt(x);
    /// tanh x, relative error at most 2^-11.
    tanh: f32 in reg32, "tanh.approx.f32", |x| f32::tanh(x);
    /// sin x, absolute error at most 2^-20.9 for x in [-pi, pi]; poor far outside.
    sin: f32 in reg32, "sin.approx.f32", |x| f32::sin(x);
    /// cos x, absolute error at most 2^-20.9 for x in [-pi, pi]; poor far outside.
    cos: f32 in reg32, "cos.approx.f32", |x| f32::cos(x);
}

/// x / y: `div.approx`, at most 2 ulp for |y| in [2^-126, 2^126].
#[inline(always)]
pub fn div(x: f32, y: f32) -> f32 {
    crate::target::target!(gpu {
        let quotient: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!(
                "div.approx.f32 {q}, {x}, {y};",
                q = out(reg32) quotient,
                x = in(reg32) x,
                y = in(reg32) y,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        quotient
    } cpu { x / y })
}

/// e^x, as 2^(x log2 e): the product's rounding adds a relative error of |x| 2^-24 to that of [`exp2`].
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    crate::target::target!(gpu { exp2(x * core::f32::consts::LOG2_E) } cpu { x.exp() })
}

/// ln x, as ln 2 log2 x: one rounding more than [`log2`].
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    crate::target::target!(gpu { log2(x) * core::f32::consts::LN_2 } cpu { x.ln() })
}

/// 1 / (1 + e^-x), as (1 + tanh(x / 2)) / 2: absolute error at most 2^-12, one special instruction.
#[inline(always)]
pub fn sigmoid(x: f32) -> f32 {
    crate::target::target!(gpu { 0.5 * tanh(0.5 * x) + 0.5 } cpu { 1.0 / (1.0 + (-x).exp()) })
}

/// Two floats rounded to the nearest bf16 (ties to even), `low` in the low half: one `cvt.rn.bf16x2.f32`.
#[inline(always)]
pub fn pack_bf16x2(low: f32, high: f32) -> u32 {
    crate::target::target!(gpu {
        let packed: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!(
                "cvt.rn.bf16x2.f32 {p}, {high}, {low};",
                p = out(reg32) packed,
                high = in(reg32) high,
                low = in(reg32) low,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        packed
    } cpu { pack(half::bf16::from_f32(low).to_bits(), half::bf16::from_f32(high).to_bits()) })
}

/// Two floats rounded to the nearest f16 (ties to even), `low` in the low half: one `cvt.rn.f16x2.f32`.
#[inline(always)]
pub fn pack_f16x2(low: f32, high: f32) -> u32 {
    crate::target::target!(gpu {
        let packed: u32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!(
                "cvt.rn.f16x2.f32 {p}, {high}, {low};",
                p = out(reg32) packed,
                high = in(reg32) high,
                low = in(reg32) low,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        packed
    } cpu { pack(half::f16::from_f32(low).to_bits(), half::f16::from_f32(high).to_bits()) })
}

/// The two bf16 of a word as floats, low half first: a shift and a mask.
#[inline(always)]
pub fn unpack_bf16x2(packed: u32) -> (f32, f32) {
    (f32::from_bits(packed << 16), f32::from_bits(packed & 0xffff_0000))
}

/// A float rounded to 10 bits of mantissa (tf32), nearest with ties away from zero: `cvt.rna.tf32.f32`.
#[inline(always)]
pub fn round_tf32(x: f32) -> f32 {
    crate::target::target!(gpu {
        let rounded: f32;
        // SAFETY: arithmetic on registers.
        unsafe {
            asm!(
                "cvt.rna.tf32.f32 {y}, {x};",
                y = out(reg32) rounded,
                x = in(reg32) x,
                options(pure, nomem, nostack, preserves_flags)
            );
        }
        rounded
    } cpu {
        if x.is_finite() { f32::from_bits((x.to_bits() + 0x1000) & 0xffff_e000) } else { x }
    })
}

#[cfg(not(target_os = "cuda"))]
fn pack(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packed_halves_stand_in_their_places_and_round_to_even() {
        assert_eq!(pack_bf16x2(1.0, -2.0), 0xc000_3f80);
        assert_eq!(pack_f16x2(1.0, -2.0), 0xc000_3c00);
        // 1 + 2^-8 lies between two bf16: the even one is 1.
        assert_eq!(pack_bf16x2(1.0 + 1.0 / 256.0, 1.0 + 3.0 / 256.0), 0x3f82_3f80);
        assert_eq!(unpack_bf16x2(0xc000_3f80), (1.0, -2.0));
    }

    #[test]
    fn tf32_keeps_ten_bits_and_rounds_ties_away() {
        let step = 2f32.powi(-10);
        assert_eq!(round_tf32(1.0 + 0.5 * step), 1.0 + step);
        assert_eq!(round_tf32(-(1.0 + 0.49 * step)), -1.0);
        assert_eq!(round_tf32(f32::INFINITY), f32::INFINITY);
    }
}
