//! What kernels can print.

use super::format::{Kind, Piece};

/// A value that a kernel can print.
#[diagnostic::on_unimplemented(
    message = "a kernel cannot print `{Self}`",
    note = "kernels print integers of up to 64 bits, floats, bool, char, strings and pointers; print the parts of anything else"
)]
pub trait PrintArg {
    /// Its conversion.
    const KIND: Kind;

    /// The eight bytes that `vprintf` reads: the value itself, or the address of a copy in `scratch`. `radix`: the value is
    /// printed by its bits, so a negative number is not to be extended.
    fn slot(&self, scratch: &mut Scratch, radix: bool) -> u64;
}

/// Room for a string with its NUL.
pub struct Scratch([u8; 96]);

impl Scratch {
    /// Copies what fits and returns the copy's address.
    fn copy(&mut self, text: &[u8]) -> u64 {
        let n = text.len().min(self.0.len() - 1);
        self.0[..n].copy_from_slice(&text[..n]);
        self.0[n] = 0;
        self.0.as_ptr().addr() as u64
    }
}

macro_rules! print_arg {
    ($($type:ty => $kind:ident, |$value:ident, $radix:ident| $slot:expr;)*) => {$(
        impl PrintArg for $type {
            const KIND: Kind = Kind::$kind;

            #[inline(always)]
            fn slot(&self, _: &mut Scratch, $radix: bool) -> u64 {
                let $value = *self;
                $slot
            }
        }
    )*};
}

print_arg! {
    i8 => Signed, |value, radix| if radix { value as u8 as u64 } else { value as i64 as u64 };
    i16 => Signed, |value, radix| if radix { value as u16 as u64 } else { value as i64 as u64 };
    i32 => Signed, |value, radix| if radix { value as u32 as u64 } else { value as i64 as u64 };
    i64 => Signed, |value, _radix| value as u64;
    isize => Signed, |value, _radix| value as u64;
    u8 => Unsigned, |value, _radix| value.into();
    u16 => Unsigned, |value, _radix| value.into();
    u32 => Unsigned, |value, _radix| value.into();
    u64 => Unsigned, |value, _radix| value;
    usize => Unsigned, |value, _radix| value as u64;
    f32 => Single, |value, _radix| f64::from(value).to_bits();
    f64 => Double, |value, _radix| value.to_bits();
    half::f16 => Single, |value, _radix| f64::from(value.to_f32()).to_bits();
    half::bf16 => Single, |value, _radix| f64::from(value.to_f32()).to_bits();
    char => Character, |value, _radix| if value.is_ascii() { value as u64 } else { b'?'.into() };
    bool => Text, |value, _radix| {
        (if value { c"true" } else { c"false" }).as_ptr().addr() as u64
    };
}

impl PrintArg for str {
    const KIND: Kind = Kind::Text;

    #[inline(always)]
    fn slot(&self, scratch: &mut Scratch, _: bool) -> u64 {
        scratch.copy(self.as_bytes())
    }
}

impl PrintArg for alloc::string::String {
    const KIND: Kind = Kind::Text;

    #[inline(always)]
    fn slot(&self, scratch: &mut Scratch, _: bool) -> u64 {
        scratch.copy(self.as_bytes())
    }
}

impl PrintArg for core::ffi::CStr {
    const KIND: Kind = Kind::Text;

    #[inline(always)]
    fn slot(&self, _: &mut Scratch, _: bool) -> u64 {
        self.as_ptr().addr() as u64
    }
}

impl<T> PrintArg for *const T {
    const KIND: Kind = Kind::Pointer;

    #[inline(always)]
    fn slot(&self, _: &mut Scratch, _: bool) -> u64 {
        self.addr() as u64
    }
}

impl<T> PrintArg for *mut T {
    const KIND: Kind = Kind::Pointer;

    #[inline(always)]
    fn slot(&self, _: &mut Scratch, _: bool) -> u64 {
        self.addr() as u64
    }
}

impl<T: PrintArg + ?Sized> PrintArg for &T {
    const KIND: Kind = T::KIND;

    #[inline(always)]
    fn slot(&self, scratch: &mut Scratch, radix: bool) -> u64 {
        T::slot(self, scratch, radix)
    }
}

impl<T: PrintArg + ?Sized> PrintArg for &mut T {
    const KIND: Kind = T::KIND;

    #[inline(always)]
    fn slot(&self, scratch: &mut Scratch, radix: bool) -> u64 {
        T::slot(self, scratch, radix)
    }
}

/// The arguments of one print, a tuple of references.
pub trait PrintArgs {
    /// Their kinds.
    const KINDS: &'static [Kind];

    /// Calls `print` with the arguments' slots.
    fn with_slots(&self, pieces: &'static [Piece], print: impl FnOnce(&[u64]));
}

/// Whether argument `index` is printed by its bits.
#[inline(always)]
const fn is_radix(pieces: &[Piece], index: usize) -> bool {
    let mut at = 0;
    while at < pieces.len() {
        if let Piece::Argument(argument, spec) = &pieces[at]
            && *argument == index
            && spec.is_radix()
        {
            return true;
        }
        at += 1;
    }
    false
}

macro_rules! count {
    ($($name:ident)*) => { { const NAMES: &[&str] = &[$(stringify!($name)),*]; NAMES.len() } };
}

macro_rules! print_args {
    ($($name:ident $index:tt)*) => {
        impl<$($name: PrintArg),*> PrintArgs for ($($name,)*) {
            const KINDS: &'static [Kind] = &[$($name::KIND),*];

            #[inline(always)]
            fn with_slots(&self, pieces: &'static [Piece], print: impl FnOnce(&[u64])) {
                let mut scratch: [Scratch; count!($($name)*)] = [const { Scratch([0; 96]) }; count!($($name)*)];
                let _ = (&pieces, &mut scratch);
                print(&[$(self.$index.slot(&mut scratch[$index], is_radix(pieces, $index))),*]);
            }
        }
    };
}

print_args!();
print_args!(A 0);
print_args!(A 0 B 1);
print_args!(A 0 B 1 C 2);
print_args!(A 0 B 1 C 2 D 3);
print_args!(A 0 B 1 C 2 D 3 E 4);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10);
print_args!(A 0 B 1 C 2 D 3 E 4 F 5 G 6 H 7 I 8 J 9 K 10 L 11);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::Spec;

    fn slots<A: PrintArgs>(arguments: A, pieces: &'static [Piece]) -> Vec<u64> {
        let mut slots = Vec::new();
        arguments.with_slots(pieces, |given| slots.extend_from_slice(given));
        slots
    }

    const HEX_FIRST: &[Piece] = &[Piece::Argument(0, Spec { conversion: b'x', ..Spec::DISPLAY })];

    #[test]
    fn integers_are_extended_by_their_sign_unless_printed_by_their_bits() {
        assert_eq!(slots((&-1i8, &-1i16), HEX_FIRST), [0xff, u64::MAX]);
        assert_eq!(slots((&-1i8, &255u8), &[]), [u64::MAX, 255]);
    }

    #[test]
    fn short_floats_become_doubles() {
        assert_eq!(slots((&1.5f32, &half::bf16::from_f32(-2.0)), &[]), [1.5f64.to_bits(), (-2f64).to_bits()]);
    }

    #[test]
    fn a_long_string_is_cut_and_still_ends() {
        let long = "x".repeat(200);
        (&long.as_str(),).with_slots(&[], |slots| {
            // SAFETY: the slot holds the address of a NUL-terminated copy that lives during this call.
            let copy = unsafe { core::ffi::CStr::from_ptr(slots[0] as usize as *const core::ffi::c_char) };
            assert_eq!(copy.to_bytes(), "x".repeat(95).as_bytes());
        });
    }
}
