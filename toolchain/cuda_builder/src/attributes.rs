//! What a kernel crate already declares about itself, so that the builder supplies the rest and nothing twice: a
//! feature named twice is an error in Rust 1.95.

use std::path::Path;

use syn::punctuated::Punctuated;
use syn::{AttrStyle, Meta, Token};

/// What `#[kernel]` and `cuda_std`'s macros expand to needs in the crate that uses them.
const FEATURES: [&str; 2] = ["abi_ptx", "asm_experimental_arch"];

/// The `-Zcrate-attr` values that make the crate with this root file a kernel crate. A file that cannot be read or
/// parsed gets all of them, and rustc then says what is wrong with it.
pub(crate) fn missing(root: &Path) -> Vec<String> {
    missing_in(&std::fs::read_to_string(root).unwrap_or_default())
}

fn missing_in(source: &str) -> Vec<String> {
    let mut declared = Vec::new();
    if let Ok(file) = syn::parse_file(source) {
        for attribute in file.attrs.iter().filter(|attribute| matches!(attribute.style, AttrStyle::Inner(_))) {
            collect(&attribute.meta, &mut declared);
        }
    }
    let mut missing = Vec::new();
    if !declared.iter().any(|name| name == "no_std") {
        missing.push("no_std".to_owned());
    }
    for feature in FEATURES.iter().filter(|feature| !declared.iter().any(|name| name == *feature)) {
        missing.push(format!("feature({feature})"));
    }
    // A crate need not use everything that is supplied.
    missing.push("allow(unused_features)".to_owned());
    missing
}

/// Notes `no_std` and the names in `feature(...)`, also inside a `cfg_attr` that holds on the GPU.
fn collect(meta: &Meta, declared: &mut Vec<String>) {
    if meta.path().is_ident("no_std") {
        declared.push("no_std".into());
        return;
    }
    let Meta::List(list) = meta else { return };
    let Ok(items) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else { return };
    if list.path.is_ident("feature") {
        declared.extend(items.iter().filter_map(|item| item.path().get_ident()).map(ToString::to_string));
    } else if list.path.is_ident("cfg_attr")
        && let Some(condition) = items.first()
        && holds(condition)
    {
        items.iter().skip(1).for_each(|item| collect(item, declared));
    }
}

/// Whether a `cfg` condition holds on `nvptx64-nvidia-cuda`; one that depends on anything else counts as false.
fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::List(list) => {
            let Ok(items) = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated) else {
                return false;
            };
            if list.path.is_ident("not") {
                !items.iter().any(holds)
            } else if list.path.is_ident("any") {
                items.iter().any(holds)
            } else {
                list.path.is_ident("all") && items.iter().all(holds)
            }
        }
        Meta::NameValue(pair) => {
            let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(value), .. }) = &pair.value else { return false };
            let name = pair.path.get_ident().map(ToString::to_string);
            matches!(
                (name.as_deref(), value.value().as_str()),
                (Some("target_os"), "cuda") | (Some("target_arch"), "nvptx64") | (Some("target_vendor"), "nvidia")
            )
        }
        Meta::Path(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::missing_in;

    /// Each declaration is supplied exactly when the crate does not make it for the GPU.
    #[test]
    fn supplies_what_is_not_declared() {
        const ALL: &str = "no_std feature(abi_ptx) feature(asm_experimental_arch) allow(unused_features)";
        for (source, want) in [
            ("use cuda_std::prelude::*;", ALL),
            ("#![no_std]", "feature(abi_ptx) feature(asm_experimental_arch) allow(unused_features)"),
            ("#![feature(abi_ptx, asm_experimental_arch)]", "no_std allow(unused_features)"),
            (
                "#![cfg_attr(target_os = \"cuda\", no_std, feature(abi_ptx))]",
                "feature(asm_experimental_arch) allow(unused_features)",
            ),
            ("#![cfg_attr(not(target_os = \"cuda\"), no_std)]", ALL),
            (
                "#![cfg_attr(any(windows, target_arch = \"nvptx64\"), no_std)]",
                "feature(abi_ptx) feature(asm_experimental_arch) allow(unused_features)",
            ),
            ("#![cfg_attr(all(target_os = \"cuda\", test), no_std)]", ALL),
            ("//! text\n#![allow(dead_code)]\nmod m { #![feature(abi_ptx)] }", ALL),
            ("this is not Rust", ALL),
        ] {
            assert_eq!(missing_in(source).join(" "), want, "{source}");
        }
    }
}
