//! From a Rust format string to a C format string, at compile time.

/// What an argument is, as far as its conversion goes. On the GPU each takes eight bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A signed integer, sign-extended (`%lld`).
    Signed,
    /// An unsigned integer (`%llu`).
    Unsigned,
    /// An f32 or shorter, as f64.
    Single,
    /// An f64.
    Double,
    /// The address of a NUL-terminated string.
    Text,
    /// A character.
    Character,
    /// An address.
    Pointer,
}

/// How an argument is to be printed.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spec {
    /// `<`
    pub left: bool,
    /// `>`
    pub right: bool,
    /// `+`
    pub plus: bool,
    /// `#`
    pub alternate: bool,
    /// `0`
    pub zeros: bool,
    /// Least number of characters.
    pub width: Option<u16>,
    /// Digits after the point, or most characters of a string.
    pub precision: Option<u16>,
    /// `x`, `X`, `o`, `e`, `E`, `?`, or 0.
    pub conversion: u8,
}

impl Spec {
    /// `{}`.
    pub const DISPLAY: Self = Self {
        left: false,
        right: false,
        plus: false,
        alternate: false,
        zeros: false,
        width: None,
        precision: None,
        conversion: 0,
    };

    /// Whether an integer is printed by its bits.
    pub const fn is_radix(&self) -> bool {
        matches!(self.conversion, b'x' | b'X' | b'o')
    }
}

/// A part of a format string.
#[derive(Clone, Copy, Debug)]
pub enum Piece {
    /// Text as it stands.
    Text(&'static str),
    /// The argument at a position.
    Argument(usize, Spec),
}

/// The format string of one place in the source.
#[doc(hidden)]
pub trait Pieces {
    /// Its parts, in order.
    const PIECES: &'static [Piece];
}

/// A C string under construction.
#[cfg(any(target_os = "cuda", test))]
struct Writer<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

#[cfg(any(target_os = "cuda", test))]
impl<const N: usize> Writer<N> {
    const fn byte(&mut self, byte: u8) {
        assert!(self.len + 1 < N, "the format string passes the room that was set aside for it");
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    const fn text(&mut self, text: &str) {
        let (text, mut at) = (text.as_bytes(), 0);
        while at < text.len() {
            if text[at] == b'%' {
                self.byte(b'%');
            }
            self.byte(text[at]);
            at += 1;
        }
    }

    const fn number(&mut self, number: u16) {
        let mut scale = 10_000;
        while scale > 0 {
            if number >= scale || scale == 1 {
                self.byte(b'0' + (number / scale % 10) as u8);
            }
            scale /= 10;
        }
    }

    const fn argument(&mut self, kind: Kind, spec: &Spec) {
        let quoted = matches!(kind, Kind::Text) && spec.conversion == b'?';
        if quoted {
            self.byte(b'"');
        }
        self.byte(b'%');
        // Rust aligns text to the left and numbers to the right; C everything to the right.
        if spec.left || (spec.width.is_some() && !spec.right && matches!(kind, Kind::Text | Kind::Character)) {
            self.byte(b'-');
        }
        if spec.plus {
            self.byte(b'+');
        }
        if spec.alternate && spec.is_radix() {
            self.byte(b'#');
        }
        if spec.zeros && !spec.left {
            self.byte(b'0');
        }
        if let Some(width) = spec.width {
            self.number(width);
        }
        self.conversion(kind, spec);
        if quoted {
            self.byte(b'"');
        }
    }

    const fn conversion(&mut self, kind: Kind, spec: &Spec) {
        match kind {
            Kind::Signed | Kind::Unsigned => {
                self.byte(b'l');
                self.byte(b'l');
                self.byte(match (spec.conversion, kind) {
                    (b'x' | b'X' | b'o', _) => spec.conversion,
                    (_, Kind::Signed) => b'd',
                    _ => b'u',
                });
            }
            Kind::Single | Kind::Double => {
                let exponent = matches!(spec.conversion, b'e' | b'E');
                self.byte(b'.');
                // Nine and seventeen digits tell neighbours apart; `e` counts those after the first.
                self.number(match (spec.precision, kind) {
                    (Some(precision), _) => precision,
                    (None, Kind::Single) => 9 - exponent as u16,
                    (None, _) => 17 - exponent as u16,
                });
                self.byte(match (exponent, spec.precision) {
                    (true, _) => spec.conversion,
                    (false, Some(_)) => b'f',
                    (false, None) => b'g',
                });
            }
            Kind::Text => {
                if let Some(precision) = spec.precision {
                    self.byte(b'.');
                    self.number(precision);
                }
                self.byte(b's');
            }
            Kind::Character => self.byte(b'c'),
            Kind::Pointer => self.byte(b'p'),
        }
    }
}

/// The C format string, NUL-terminated, of these pieces with arguments of these kinds.
#[cfg(any(target_os = "cuda", test))]
pub const fn c_format<const N: usize>(pieces: &[Piece], kinds: &[Kind]) -> [u8; N] {
    let mut writer = Writer { bytes: [0; N], len: 0 };
    let mut at = 0;
    while at < pieces.len() {
        match &pieces[at] {
            Piece::Text(text) => writer.text(text),
            Piece::Argument(index, spec) => writer.argument(kinds[*index], spec),
        }
        at += 1;
    }
    writer.bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(pieces: &[Piece], kinds: &[Kind]) -> String {
        let bytes = c_format::<128>(pieces, kinds);
        String::from_utf8(bytes.into_iter().take_while(|&byte| byte != 0).collect()).unwrap()
    }

    #[test]
    fn each_kind_has_its_conversion() {
        let display = |kind| format(&[Piece::Argument(0, Spec::DISPLAY)], &[kind]);
        for (kind, want) in [
            (Kind::Signed, "%lld"),
            (Kind::Unsigned, "%llu"),
            (Kind::Single, "%.9g"),
            (Kind::Double, "%.17g"),
            (Kind::Text, "%s"),
            (Kind::Character, "%c"),
            (Kind::Pointer, "%p"),
        ] {
            assert_eq!(display(kind), want, "{kind:?}");
        }
    }

    #[test]
    fn specs_carry_over() {
        let with = |kind, spec| format(&[Piece::Argument(0, spec)], &[kind]);
        let hex = Spec { alternate: true, zeros: true, width: Some(10), conversion: b'x', ..Spec::DISPLAY };
        assert_eq!(with(Kind::Unsigned, hex), "%#010llx");
        assert_eq!(with(Kind::Single, Spec { precision: Some(3), plus: true, ..Spec::DISPLAY }), "%+.3f");
        assert_eq!(with(Kind::Double, Spec { conversion: b'e', ..Spec::DISPLAY }), "%.16e");
        assert_eq!(with(Kind::Text, Spec { width: Some(8), ..Spec::DISPLAY }), "%-8s");
        assert_eq!(with(Kind::Text, Spec { width: Some(8), right: true, ..Spec::DISPLAY }), "%8s");
        assert_eq!(with(Kind::Text, Spec { conversion: b'?', ..Spec::DISPLAY }), "\"%s\"");
        assert_eq!(with(Kind::Signed, Spec { left: true, width: Some(120), ..Spec::DISPLAY }), "%-120lld");
    }

    #[test]
    fn percent_signs_are_doubled_and_arguments_may_repeat() {
        let pieces = [
            Piece::Text("100% "),
            Piece::Argument(1, Spec::DISPLAY),
            Piece::Argument(0, Spec::DISPLAY),
            Piece::Argument(1, Spec::DISPLAY),
        ];
        assert_eq!(format(&pieces, &[Kind::Signed, Kind::Text]), "100%% %s%lld%s");
    }
}
