//! `print!` and `print_line!`: a Rust format string taken apart at compile time.

use proc_macro2::{Span, TokenStream};
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::punctuated::Punctuated;
use syn::{Error, Expr, Ident, LitStr, Result, Token};

/// A format string and its arguments, as written.
struct Call {
    format: LitStr,
    arguments: Vec<Argument>,
}

struct Argument {
    name: Option<Ident>,
    value: Expr,
}

impl Parse for Argument {
    fn parse(input: ParseStream) -> Result<Self> {
        let name = if input.peek(Ident) && input.peek2(Token![=]) && !input.peek2(Token![==]) {
            let name = input.parse()?;
            input.parse::<Token![=]>()?;
            Some(name)
        } else {
            None
        };
        Ok(Self { name, value: input.parse()? })
    }
}

impl Parse for Call {
    fn parse(input: ParseStream) -> Result<Self> {
        if input.is_empty() {
            return Ok(Self { format: LitStr::new("", Span::call_site()), arguments: Vec::new() });
        }
        let format = input.parse().map_err(|error| {
            Error::new(
                error.span(),
                "a kernel prints a format string that is a literal: its C form is made at compile time",
            )
        })?;
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
        let arguments = Punctuated::<Argument, Token![,]>::parse_terminated(input)?;
        Ok(Self { format, arguments: arguments.into_iter().collect() })
    }
}

/// How an argument is printed; the fields of `cuda_std::io::Spec`.
#[derive(Debug, Default, PartialEq)]
struct Spec {
    left: bool,
    right: bool,
    plus: bool,
    alternate: bool,
    zeros: bool,
    width: Option<u16>,
    precision: Option<u16>,
    conversion: u8,
}

#[derive(Debug, PartialEq)]
enum Target {
    Next,
    Position(usize),
    Name(String),
}

#[derive(Debug, PartialEq)]
enum Piece {
    Text(String),
    Argument(Target, Spec),
}

/// Takes a format string apart; an error says what is not understood.
fn pieces(format: &str) -> std::result::Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    let mut text = String::new();
    let mut chars = format.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '{' | '}' if chars.peek() == Some(&c) => {
                chars.next();
                text.push(c);
            }
            '{' => {
                let inside: String = chars.by_ref().take_while(|&c| c != '}').collect();
                if !text.is_empty() {
                    pieces.push(Piece::Text(std::mem::take(&mut text)));
                }
                pieces.push(argument(&inside)?);
            }
            '}' => return Err("a `}` stands alone; write `}}` for the sign itself".into()),
            '\0' => return Err("a NUL would end the text on the GPU".into()),
            other => text.push(other),
        }
    }
    if !text.is_empty() {
        pieces.push(Piece::Text(text));
    }
    Ok(pieces)
}

fn argument(inside: &str) -> std::result::Result<Piece, String> {
    let (target, spec) = inside.split_once(':').unwrap_or((inside, ""));
    let target = match target.trim() {
        "" => Target::Next,
        number if number.starts_with(|c: char| c.is_ascii_digit()) => {
            Target::Position(number.parse().map_err(|_| format!("`{number}` is neither a position nor a name"))?)
        }
        name => Target::Name(name.into()),
    };
    Ok(Piece::Argument(target, parse_spec(spec.trim_end())?))
}

fn parse_spec(text: &str) -> std::result::Result<Spec, String> {
    let mut spec = Spec::default();
    let mut rest = text;
    let take = |rest: &mut &str, c: char| rest.strip_prefix(c).map(|after| *rest = after).is_some();
    // A blank may stand before the alignment: it is the only fill that `vprintf` knows.
    if rest.starts_with(" <") || rest.starts_with(" >") {
        rest = &rest[1..];
    }
    spec.left = take(&mut rest, '<');
    spec.right = !spec.left && take(&mut rest, '>');
    spec.plus = take(&mut rest, '+');
    spec.alternate = take(&mut rest, '#');
    spec.zeros = take(&mut rest, '0');
    spec.width = number(&mut rest)?;
    if take(&mut rest, '.') {
        spec.precision = Some(number(&mut rest)?.ok_or_else(|| unknown(text))?);
    }
    spec.conversion = match rest {
        "" => 0,
        "?" | "x" | "X" | "o" | "e" | "E" => rest.as_bytes()[0],
        _ => return Err(unknown(text)),
    };
    Ok(spec)
}

fn unknown(text: &str) -> String {
    format!(
        "`:{text}` cannot be printed by a kernel; known are `<` or `>`, `+`, `#`, `0`, a width, `.` and a precision, then \
         `?`, `x`, `X`, `o`, `e` or `E`"
    )
}

fn number(rest: &mut &str) -> std::result::Result<Option<u16>, String> {
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (digits, after) = rest.split_at(end);
    *rest = after;
    if digits.is_empty() {
        return Ok(None);
    }
    digits.parse().map(Some).map_err(|_| format!("`{digits}` is too large for a width or a precision"))
}

/// The macro's expansion. Positions are settled here, so that both targets see the same order of arguments.
pub(crate) fn expand(input: TokenStream, line: bool) -> Result<TokenStream> {
    let Call { format, mut arguments } = syn::parse2(input)?;
    let text = format.value() + if line { "\n" } else { "" };
    let pieces = pieces(&text).map_err(|message| Error::new(format.span(), message))?;
    let n_written = arguments.len();
    let mut used = vec![false; n_written];
    let (mut next, mut capacity) = (0, 1);
    let (mut device, mut host) = (Vec::new(), String::new());
    for piece in &pieces {
        match piece {
            Piece::Text(text) => {
                capacity += text.len() + text.matches('%').count();
                host += &text.replace('{', "{{").replace('}', "}}");
                device.push(quote!(::cuda_std::io::Piece::Text(#text)));
            }
            Piece::Argument(target, spec) => {
                let index = match target {
                    Target::Next => {
                        next += 1;
                        next - 1
                    }
                    Target::Position(position) => *position,
                    Target::Name(name) => named(name, &format, &mut arguments)?,
                };
                if index >= arguments.len() || (!matches!(target, Target::Name(_)) && index >= n_written) {
                    let message = format!("there is no argument {index}; {n_written} are given");
                    return Err(Error::new(format.span(), message));
                }
                if let Some(used) = used.get_mut(index) {
                    *used = true;
                }
                capacity += 24;
                host += &format!("{{{index}:{}}}", host_spec(spec));
                device.push(device_piece(index, spec));
            }
        }
    }
    if let Some(unused) = used.iter().position(|used| !used) {
        return Err(Error::new_spanned(&arguments[unused].value, "the format string does not use this argument"));
    }
    if arguments.len() > 12 {
        return Err(Error::new(format.span(), "a kernel prints at most 12 arguments at once"));
    }
    let values: Vec<_> = arguments.iter().map(|argument| &argument.value).collect();
    let indices = (0..values.len()).map(syn::Index::from);
    Ok(quote! {
        match (#(&#values,)*) {
            arguments => {
                #[cfg(target_os = "cuda")]
                {
                    struct Place;
                    impl ::cuda_std::io::Pieces for Place {
                        const PIECES: &'static [::cuda_std::io::Piece] = &[#(#device),*];
                    }
                    ::cuda_std::io::print_args::<Place, _, #capacity>(arguments)
                }
                #[cfg(not(target_os = "cuda"))]
                ::cuda_std::io::print_host(&arguments, ::core::format_args!(#host #(, arguments.#indices)*))
            }
        }
    })
}

/// The position of a named argument; one that is not given is a variable of the place.
fn named(name: &str, format: &LitStr, arguments: &mut Vec<Argument>) -> Result<usize> {
    let known = arguments.iter().position(|argument| argument.name.as_ref().is_some_and(|given| given == name));
    if let Some(known) = known {
        return Ok(known);
    }
    let ident: Ident = syn::parse_str(name).map_err(|_| {
        Error::new(format.span(), format!("`{name}` is not a name; between braces stand a position or a variable"))
    })?;
    let ident = Ident::new(&ident.to_string(), format.span());
    arguments.push(Argument { name: Some(ident.clone()), value: syn::parse_quote!(#ident) });
    Ok(arguments.len() - 1)
}

fn device_piece(index: usize, spec: &Spec) -> TokenStream {
    let Spec { left, right, plus, alternate, zeros, width, precision, conversion } = spec;
    let option = |number: &Option<u16>| match number {
        Some(number) => quote!(::core::option::Option::Some(#number)),
        None => quote!(::core::option::Option::None),
    };
    let (width, precision) = (option(width), option(precision));
    quote! {
        ::cuda_std::io::Piece::Argument(#index, ::cuda_std::io::Spec {
            left: #left,
            right: #right,
            plus: #plus,
            alternate: #alternate,
            zeros: #zeros,
            width: #width,
            precision: #precision,
            conversion: #conversion,
        })
    }
}

/// The specification in Rust's own form.
fn host_spec(spec: &Spec) -> String {
    let sign = |set: bool, sign: &'static str| if set { sign } else { "" };
    let number = |number: Option<u16>| number.map(|number| number.to_string()).unwrap_or_default();
    let conversion = if spec.conversion == 0 { String::new() } else { char::from(spec.conversion).to_string() };
    [
        sign(spec.left, "<"),
        sign(spec.right, ">"),
        sign(spec.plus, "+"),
        sign(spec.alternate, "#"),
        sign(spec.zeros, "0"),
        &number(spec.width),
        sign(spec.precision.is_some(), "."),
        &number(spec.precision),
        &conversion,
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_format_string_comes_apart() {
        let parts = pieces("a{{b}} {} {1:>+#012.3e}{name:?}").unwrap();
        assert_eq!(parts[0], Piece::Text("a{b} ".into()));
        assert_eq!(parts[1], Piece::Argument(Target::Next, Spec::default()));
        let full = Spec {
            right: true,
            plus: true,
            alternate: true,
            zeros: true,
            width: Some(12),
            precision: Some(3),
            conversion: b'e',
            ..Spec::default()
        };
        assert_eq!(host_spec(&full), ">+#012.3e");
        assert_eq!(parts[3], Piece::Argument(Target::Position(1), full));
        assert_eq!(
            parts[4],
            Piece::Argument(Target::Name("name".into()), Spec { conversion: b'?', ..Spec::default() })
        );
    }

    #[test]
    fn what_the_gpu_cannot_print_is_refused() {
        for bad in ["{:^8}", "{:b}", "{:*<8}", "{:1$}", "{:.}", "}", "{:99999}", "\0"] {
            assert!(pieces(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn arguments_are_counted() {
        let message = |tokens: TokenStream| expand(tokens, false).unwrap_err().to_string();
        assert_eq!(message(quote!("{} {}", 1)), "there is no argument 1; 1 are given");
        assert_eq!(message(quote!("{}", 1, 2)), "the format string does not use this argument");
        assert!(message(quote!(text)).starts_with("a kernel prints a format string that is a literal"));
        assert!(expand(quote!("{x} {0} {y}", 1, y = 2), true).is_ok());
    }
}
