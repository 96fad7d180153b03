//! What is done to the PTX after rustc wrote it: launch bounds put in place, undefined symbols refused.

use std::collections::BTreeMap;

use crate::NvvmArch;

/// How `#[kernel]` writes a kernel's launch bounds: `// cuda_builder: NAME .maxntid 256`, through `global_asm!`.
const MARKER: &str = "// cuda_builder: ";

/// The directives that rustc cannot emit, and that the marker may carry, each with one number.
const DIRECTIVES: [&str; 4] = [".maxntid", ".minnctapersm", ".maxnreg", ".maxclusterrank"];

/// What the CUDA driver supplies to every module.
const PROVIDED: [&str; 4] = ["vprintf", "malloc", "free", "__assertfail"];

/// A kernel's directives, in the marker's order.
type Bounds<'a> = BTreeMap<&'a str, Vec<String>>;

/// Moves each launch-bound marker to its entry, as directives between `)` and `{`; every other line stays as it is.
/// A cluster bound is left out for chips without clusters, so that one source serves both images.
///
/// # Errors
/// The text of the problem: a marker that cannot be read, that names no entry, or an entry with two.
pub(crate) fn place_bounds(ptx: &str, arch: NvvmArch) -> Result<String, String> {
    let mut bounds = Bounds::new();
    for line in ptx.lines().filter_map(|line| line.trim().strip_prefix(MARKER)) {
        let (entry, directives) = read_marker(line, arch)?;
        if bounds.insert(entry, directives).is_some() {
            return Err(format!("kernel `{entry}` has two sets of launch bounds"));
        }
    }
    let mut placed = String::with_capacity(ptx.len());
    let mut pending: Vec<String> = Vec::new();
    for line in ptx.split_inclusive('\n') {
        let trimmed = line.trim();
        if trimmed.starts_with(MARKER) {
            continue;
        }
        if let Some(entry) = entry_name(trimmed) {
            pending = bounds.remove(entry).unwrap_or_default();
        } else if trimmed.starts_with('{') {
            for directive in pending.drain(..) {
                placed.push_str(&directive);
                placed.push('\n');
            }
        }
        placed.push_str(line);
    }
    match bounds.keys().next() {
        None => Ok(placed),
        Some(entry) => Err(format!("launch bounds are given for `{entry}`, but the PTX has no such kernel")),
    }
}

/// `NAME .maxntid 256 .minnctapersm 2` as the name and its directives.
fn read_marker(marker: &str, arch: NvvmArch) -> Result<(&str, Vec<String>), String> {
    let unreadable = || format!("launch bounds cannot be read: `{marker}`");
    let mut words = marker.split_whitespace();
    let entry = words.next().ok_or_else(unreadable)?;
    let mut directives = Vec::new();
    while let Some(directive) = words.next() {
        let value: u32 = words.next().and_then(|word| word.parse().ok()).ok_or_else(unreadable)?;
        if !DIRECTIVES.contains(&directive) {
            return Err(unreadable());
        }
        if directive != ".maxclusterrank" || arch.has_clusters() {
            directives.push(format!("{directive} {value}"));
        }
    }
    Ok((entry, directives))
}

/// The kernel that a line opens: `.visible .entry NAME(`.
fn entry_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".visible ").unwrap_or(line).strip_prefix(".entry ")?;
    rest.split('(').next().map(str::trim)
}

/// The names of the kernels in a PTX text, in its order.
pub(crate) fn entries(ptx: &str) -> impl Iterator<Item = &str> {
    ptx.lines().filter_map(|line| entry_name(line.trim()))
}

/// Functions and variables that the PTX declares and nobody defines, as written in Rust.
pub(crate) fn undefined_symbols(ptx: &str) -> Vec<String> {
    ptx.lines()
        .filter_map(|line| extern_name(line.trim()))
        .filter(|name| !PROVIDED.contains(name))
        // LLVM writes the dots of a name as `_$_`.
        .map(|name| name.replace("_$_", "."))
        .collect()
}

/// The symbol of an `.extern .func`, `.extern .global` or `.extern .const` line. `.extern .shared` is dynamic shared
/// memory, which a launch supplies.
fn extern_name(line: &str) -> Option<&str> {
    let rest = line.strip_prefix(".extern ")?;
    if let Some(function) = rest.strip_prefix(".func") {
        let function = function.trim_start();
        // The return value, in parentheses, comes before the name.
        let name = match function.strip_prefix('(') {
            Some(returning) => returning.split_once(')')?.1,
            None => function,
        };
        return name.split(['(', ';']).next().map(str::trim);
    }
    if rest.starts_with(".global") || rest.starts_with(".const") {
        return rest.trim_end_matches(';').split_whitespace().last()?.split('[').next();
    }
    None
}

#[cfg(test)]
mod tests;
