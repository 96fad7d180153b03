//! Text of others (file names, symbols, environment variables) as a terminal may be shown it.

use std::borrow::Cow;
use std::path::Path;

/// The text with each character that a terminal would obey, or show nothing of, written as in Rust source: `\u{1b}`, `\n`.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    if !text.contains(obeyed) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        if obeyed(c) {
            out.extend(c.escape_debug());
        } else {
            out.push(c);
        }
    }
    Cow::Owned(out)
}

/// A path, as [`shown`].
pub(crate) fn shown_path(path: &Path) -> String {
    shown(&path.to_string_lossy()).into_owned()
}

/// A message of several lines, each as [`shown`].
pub(crate) fn shown_lines(text: &str) -> String {
    text.split('\n').map(shown).collect::<Vec<_>>().join("\n")
}

/// Control characters, and those that change the order or the width of what stands beside them.
fn obeyed(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_written_out_and_the_rest_stays() {
        for (text, want) in [
            ("plain, \"quoted\", back\\slash, 'tick'", "plain, \"quoted\", back\\slash, 'tick'"),
            ("naïve Übung e\u{301} 相場 🦀", "naïve Übung e\u{301} 相場 🦀"),
            ("\u{1b}[31mred\u{1b}[0m", "\\u{1b}[31mred\\u{1b}[0m"),
            ("a\nb\rc\td\u{7}\u{8}\u{7f}", "a\\nb\\rc\\td\\u{7}\\u{8}\\u{7f}"),
            ("C1 \u{9b}31m", "C1 \\u{9b}31m"),
            ("exe.\u{202e}vsc", "exe.\\u{202e}vsc"),
            ("zero\u{200b}width\u{feff}", "zero\\u{200b}width\\u{feff}"),
        ] {
            assert_eq!(shown(text), want);
            assert_eq!(shown(&shown(text)), want, "showing twice changes nothing");
        }
        assert_eq!(shown_lines("one\ntwo\u{1b}\n"), "one\ntwo\\u{1b}\n");
    }
}
