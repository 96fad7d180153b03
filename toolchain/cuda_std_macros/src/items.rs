//! The attributes of functions and statics that are not kernels.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::{Attribute, Error, Ident, ItemFn, ItemStatic, Result, StaticMutability};

fn no_arguments(attributes: &TokenStream) -> Result<()> {
    if attributes.is_empty() {
        Ok(())
    } else {
        Err(Error::new_spanned(attributes, "this attribute takes no arguments"))
    }
}

pub(crate) fn gpu_only(attributes: TokenStream, item: TokenStream) -> Result<TokenStream> {
    no_arguments(&attributes)?;
    let ItemFn { attrs, vis, sig, block } = syn::parse2(item)?;
    let mut host = sig.clone();
    host.abi = None;
    let message = format!("`{}` can only run on a GPU", sig.ident);
    Ok(quote! {
        #[cfg(target_os = "cuda")]
        #(#attrs)* #vis #sig #block

        #[cfg(not(target_os = "cuda"))]
        #[allow(unused_variables, clippy::missing_safety_doc, reason = "the body is replaced, the contract stays its author's")]
        #(#attrs)* #vis #host {
            ::core::panic!(#message)
        }
    })
}

/// Whether an attribute is `no_mangle`, in either of its spellings.
fn is_no_mangle(attribute: &Attribute) -> bool {
    attribute.path().is_ident("no_mangle")
        || (attribute.path().is_ident("unsafe")
            && attribute.parse_args::<Ident>().is_ok_and(|inner| inner == "no_mangle"))
}

pub(crate) fn externally_visible(attributes: TokenStream, item: TokenStream) -> Result<TokenStream> {
    no_arguments(&attributes)?;
    let function: ItemFn = syn::parse2(item)?;
    if !function.attrs.iter().any(is_no_mangle) {
        return Err(Error::new_spanned(
            &function.sig,
            "a function that is visible from outside is also `#[no_mangle]`",
        ));
    }
    // rustc keeps `no_mangle` functions through linking, so nothing is left to do.
    Ok(quote!(#function))
}

pub(crate) fn address_space(attributes: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let space: Ident = syn::parse2(attributes)?;
    let ItemStatic { attrs, vis, mutability, ident, ty, expr, .. } = syn::parse2(item)?;
    match space.to_string().as_str() {
        "global" => Ok(quote!(#(#attrs)* #vis static #mutability #ident: #ty = #expr;)),
        "shared" => {
            let place = format_ident!("__Shared_{ident}");
            let mutability = match mutability {
                StaticMutability::Mut(token) => quote!(#token),
                _ => quote!(),
            };
            Ok(quote! {
                #[doc(hidden)]
                #[allow(non_camel_case_types, reason = "named after the static")]
                #[derive(Clone, Copy, Default)]
                #vis struct #place;
                impl ::cuda_std::shared::SharedPlace for #place {
                    #[inline(always)]
                    fn site(&self) -> ::cuda_std::shared::Site {
                        // The initial value is type-checked and not used.
                        let _ = || -> #ty { #expr };
                        ::cuda_std::shared_site!(#ty)
                    }
                }
                #(#attrs)*
                #vis static #mutability #ident: ::cuda_std::shared::Shared<#ty, #place> = ::cuda_std::shared::Shared::new();
            })
        }
        "constant" | "local" => Err(Error::new(
            space.span(),
            format!(
                "rustc cannot place a static in `{space}` memory; pass the values as kernel parameters, which are constant memory"
            ),
        )),
        other => {
            Err(Error::new(space.span(), format!("unknown state space `{other}`; known are `global` and `shared`")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_placed_is_refused_by_name() {
        let item = quote!(
            static X: u32 = 0;
        );
        let message = |space: TokenStream| address_space(space, item.clone()).unwrap_err().to_string();
        assert!(message(quote!(constant)).starts_with("rustc cannot place a static in `constant` memory"));
        assert_eq!(message(quote!(shard)), "unknown state space `shard`; known are `global` and `shared`");
    }

    #[test]
    fn a_visible_function_has_an_unmangled_name() {
        assert!(
            externally_visible(
                quote!(),
                quote!(
                    fn f() {}
                )
            )
            .is_err()
        );
        assert!(
            externally_visible(
                quote!(),
                quote!(
                    #[no_mangle]
                    fn f() {}
                )
            )
            .is_ok()
        );
        assert!(
            externally_visible(
                quote!(),
                quote!(
                    #[unsafe(no_mangle)]
                    fn f() {}
                )
            )
            .is_ok()
        );
    }
}
