//! Some kernels of an image, with what they reach and nothing else: what a driver compiles and loads in a fraction of the
//! time that the whole image takes.

use std::collections::{HashMap, HashSet};

/// An image's text, taken apart. Everything of it stays where it was written.
pub(super) struct Ptx<'a> {
    /// Version, target and address size.
    head: &'a str,
    items: Vec<Item<'a>>,
}

/// A kernel, a function or a variable, as declared or defined; or what has no name, such as a line of debug information, which
/// any kernel may need.
struct Item<'a> {
    name: Option<&'a str>,
    text: &'a str,
}

impl<'a> Ptx<'a> {
    /// Takes a text apart where braces are closed. What a compiler writes is taken; a text that is no PTX has no items.
    pub(super) fn new(text: &'a str) -> Self {
        let head = text.find(".address_size").map_or(text.len(), |at| {
            let line = &text[at..];
            at + line.find('\n').map_or(line.len(), |end| end + 1)
        });
        let (mut items, mut start, mut depth) = (Vec::new(), head, 0i32);
        let mut end = head;
        for line in text[head..].split_inclusive('\n') {
            end += line.len();
            let code = without_comment(line).trim();
            depth += code.bytes().map(|byte| i32::from(byte == b'{') - i32::from(byte == b'}')).sum::<i32>();
            let complete = code.ends_with([';', '}']) || code.starts_with(".file");
            if depth == 0 && complete {
                items.push(Item::new(&text[start..end]));
                start = end;
            }
        }
        Self { head: &text[..head], items }
    }

    /// The text with these kernels alone, and the functions and variables that they reach.
    ///
    /// # Errors
    /// The first kernel that the text does not have.
    pub(super) fn only<'k>(&self, kernels: &[&'k str]) -> Result<String, &'k str> {
        let mut named: HashMap<&str, Vec<usize>> = HashMap::new();
        for (index, item) in self.items.iter().enumerate() {
            if let Some(name) = item.name {
                named.entry(name).or_default().push(index);
            }
        }
        if let Some(missing) = kernels.iter().find(|&kernel| !self.is_kernel(named.get(kernel))) {
            return Err(missing);
        }
        let mut reached: HashSet<&str> = kernels.iter().copied().collect();
        let mut open: Vec<&str> = reached.iter().copied().collect();
        while let Some(name) = open.pop() {
            let words = named[name].iter().flat_map(|&index| code(self.items[index].text)).flat_map(words);
            open.extend(words.filter(|&word| named.contains_key(word) && reached.insert(word)));
        }
        let taken = self.items.iter().filter(|item| item.name.is_none_or(|name| reached.contains(name)));
        Ok(std::iter::once(self.head).chain(taken.map(|item| item.text)).collect())
    }

    fn is_kernel(&self, items: Option<&Vec<usize>>) -> bool {
        items.is_some_and(|items| items.iter().any(|&index| self.items[index].text.contains(".entry ")))
    }
}

impl<'a> Item<'a> {
    fn new(text: &'a str) -> Self {
        let is_named =
            |code: &str| [".entry ", ".func", ".global ", ".shared ", ".const "].iter().any(|word| code.contains(word));
        let name = code(text).find(|code| is_named(code)).and_then(|code| {
            if let Some((_, rest)) = code.split_once(".entry ") {
                return words(rest).next();
            }
            if let Some((_, rest)) = code.split_once(".func") {
                // What it returns comes first, in parentheses.
                let rest = rest.trim_start();
                let rest = if rest.starts_with('(') { rest.split_once(')').map_or("", |(_, rest)| rest) } else { rest };
                return words(rest).next();
            }
            words(code.split(['[', '=', ';']).next().unwrap_or_default()).last()
        });
        Self { name, text }
    }
}

/// A text's lines without their comments.
fn code(text: &str) -> impl Iterator<Item = &str> {
    text.lines().map(without_comment)
}

fn without_comment(line: &str) -> &str {
    line.split_once("//").map_or(line, |(code, _)| code)
}

/// The identifiers of a piece of code, parts of instructions and numbers among them.
fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '$')).filter(|word| !word.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::KERNELS;

    const TEXT: &str = "\
//
// Generated
//

.version 7.0
.target sm_80
.address_size 64

.file 1 \"kernels.rs\"
\t// .globl\tfirst                 // -- Begin function first
.extern .shared .align 16 .b8 room[];
.global .align 4 .b8 table[8] = {1, 2, 3, 4, 5, 6, 7, 8};
.global .align 8 .u64 pointer = table;
.func  (.param .b64 func_retval0) helper
()
;
.func lone(.param .b64 a)
{
\tret;
}
.visible .entry first(
\t.param .u64 .ptr .align 1 first_param_0
)
.maxntid 32
{
\t{ // callseq 0, 0
\tcall.uni (retval0), helper, ();
\t} // callseq 0
\tret;
}
                                        // -- End function
.func  (.param .b64 func_retval0) helper() // @helper
{
\tmov.u64 %rd1, pointer;
\tret;
}
.visible .entry second()
{
\tmov.u64 %rd1, room;
\tret;
}
";

    #[test]
    fn a_kernel_comes_with_what_it_reaches_and_nothing_else() {
        let ptx = Ptx::new(TEXT);
        let first = ptx.only(&["first"]).expect("it is there");
        for part in [
            ".address_size 64\n",
            ".file 1",
            "entry first(",
            "table[8]",
            "pointer = table",
            "helper\n()\n;",
            "helper() //",
        ] {
            assert!(first.contains(part), "{part} is not in {first}");
        }
        for part in ["second", "room", "lone"] {
            assert!(!first.contains(part), "{part} is in {first}");
        }
        let second = ptx.only(&["second"]).expect("it is there");
        assert!(second.contains("room[]") && !second.contains("table") && !second.contains("first("), "{second}");
        // In the text's order, whatever the caller's: declarations come before uses.
        assert_eq!(ptx.only(&["second", "first"]), ptx.only(&["first", "second"]));
    }

    #[test]
    fn what_is_no_kernel_of_the_text_is_named() {
        assert_eq!(Ptx::new(TEXT).only(&["first", "third"]), Err("third"));
        assert_eq!(Ptx::new(TEXT).only(&["helper"]), Err("helper"), "a function is no kernel");
        assert_eq!(Ptx::new("NOT PTX").only(&["first"]), Err("first"));
        assert_eq!(Ptx::new("").only(&["first"]), Err("first"));
    }

    /// All kernels taken together are the whole text but for what none reaches, and each alone has every item that it names.
    #[test]
    fn the_images_come_apart_and_together_again() {
        for image in [KERNELS.sm_80, KERNELS.sm_90a] {
            let ptx = Ptx::new(image);
            let is_entry = |item: &&Item| item.text.contains(".entry ");
            let kernels: Vec<&str> = ptx.items.iter().filter(is_entry).filter_map(|item| item.name).collect();
            assert_eq!(kernels.len(), image.matches(".entry ").count());
            let items: usize = ptx.items.iter().map(|item| item.text.len()).sum();
            let rest = image[ptx.head.len() + items..]
                .lines()
                .all(|line| line.trim().is_empty() || line.trim().starts_with("//"));
            assert!(rest, "text is left over");
            let names: HashSet<&str> = ptx.items.iter().filter_map(|item| item.name).collect();
            for &kernel in &kernels {
                let text = ptx.only(&[kernel]).expect("it is there");
                let alone = Ptx::new(&text);
                assert_eq!(alone.items.iter().filter(is_entry).count(), 1, "{kernel}");
                let has: HashSet<&str> = alone.items.iter().filter_map(|item| item.name).collect();
                let needs: HashSet<&str> = code(&text).flat_map(words).filter(|word| names.contains(word)).collect();
                assert!(needs.is_subset(&has), "{kernel} lacks {:?}", needs.difference(&has));
            }
        }
    }
}
