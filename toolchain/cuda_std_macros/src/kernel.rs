//! `#[kernel]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Error, FnArg, Ident, ItemFn, LitInt, Pat, Result, ReturnType, Token, Type};

/// What stands in the attribute's parentheses.
#[derive(Default)]
struct Options {
    cooperative: bool,
    max_threads: Option<u32>,
    min_blocks: Option<u32>,
    max_registers: Option<u32>,
    max_cluster: Option<u32>,
}

impl Parse for Options {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut options = Self::default();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if key == "cooperative" {
                options.cooperative = true;
            } else {
                input.parse::<Token![=]>()?;
                let value = input.parse::<LitInt>()?.base10_parse::<u32>()?;
                match key.to_string().as_str() {
                    "max_threads" => options.max_threads = Some(value),
                    "min_blocks" => options.min_blocks = Some(value),
                    "max_registers" => options.max_registers = Some(value),
                    "max_cluster" => options.max_cluster = Some(value),
                    other => {
                        return Err(Error::new(
                            key.span(),
                            format!(
                                "unknown option `{other}`; known are `cooperative`, `max_threads = N`, \
                                 `min_blocks = N`, `max_registers = N`, `max_cluster = N`"
                            ),
                        ));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// One parameter: its name, its type as written, and the type that implements `KernelParam` for it.
struct Parameter {
    name: Ident,
    written: Type,
    param: TokenStream,
}

pub(crate) fn expand(attributes: TokenStream, item: TokenStream) -> Result<TokenStream> {
    let options: Options = syn::parse2(attributes)?;
    let function: ItemFn = syn::parse2(item)?;
    check(&function)?;
    let parameters = function.sig.inputs.iter().map(parameter).collect::<Result<Vec<_>>>()?;
    let gpu = gpu_entry(&options, &function, &parameters);
    let cpu = cpu_launch(&options, &function, &parameters);
    Ok(quote! { #gpu #cpu })
}

fn check(function: &ItemFn) -> Result<()> {
    let signature = &function.sig;
    if !signature.generics.params.is_empty() {
        return Err(Error::new_spanned(
            &signature.generics,
            "a kernel is an entry point by name and cannot be generic; write a generic helper and one kernel for each type",
        ));
    }
    match &signature.output {
        ReturnType::Default => Ok(()),
        ReturnType::Type(_, ty) => match ty.as_ref() {
            Type::Tuple(tuple) if tuple.elems.is_empty() => Ok(()),
            other => Err(Error::new_spanned(other, "a kernel returns nothing; write its results through a parameter")),
        },
    }
}

fn parameter(argument: &FnArg) -> Result<Parameter> {
    let FnArg::Typed(typed) = argument else {
        return Err(Error::new_spanned(argument, "a kernel is a free function and takes no `self`"));
    };
    let Pat::Ident(name) = typed.pat.as_ref() else {
        return Err(Error::new_spanned(&typed.pat, "a kernel's parameter is a plain name"));
    };
    let written = typed.ty.as_ref().clone();
    let param = match &written {
        Type::Reference(reference) => match (reference.elem.as_ref(), reference.mutability) {
            (Type::Slice(slice), None) => {
                let element = &slice.elem;
                quote!(::cuda_std::param::RefSlice<#element>)
            }
            (Type::Slice(slice), Some(_)) => {
                let element = &slice.elem;
                quote!(::cuda_std::param::RefSliceMut<#element>)
            }
            (element, None) => quote!(::cuda_std::param::RefConst<#element>),
            (element, Some(_)) => quote!(::cuda_std::param::RefMut<#element>),
        },
        Type::Ptr(pointer) => {
            let element = &pointer.elem;
            if pointer.mutability.is_some() {
                quote!(::cuda_std::param::RawMut<#element>)
            } else {
                quote!(::cuda_std::param::RawConst<#element>)
            }
        }
        other => quote!(#other),
    };
    Ok(Parameter { name: name.ident.clone(), written, param })
}

/// The PTX entry. Each parameter is two ABI words: a slice's pointer and length, or a value and nothing.
fn gpu_entry(options: &Options, function: &ItemFn, parameters: &[Parameter]) -> TokenStream {
    let ItemFn { attrs, vis, sig, block } = function;
    let name = &sig.ident;
    let inputs = &sig.inputs;
    let unsafety = &sig.unsafety;
    let abi = parameters.iter().map(|Parameter { name, param, .. }| {
        let (first, second) = (format_ident!("{name}_0"), format_ident!("{name}_1"));
        quote! {
            #first: <#param as ::cuda_std::param::KernelParam>::Abi0,
            #second: <#param as ::cuda_std::param::KernelParam>::Abi1
        }
    });
    let values = parameters.iter().map(|Parameter { name, param, .. }| {
        let (first, second) = (format_ident!("{name}_0"), format_ident!("{name}_1"));
        quote!(<#param as ::cuda_std::param::KernelParam>::from_abi(#first, #second))
    });
    let bounds = bounds_marker(options, name);
    quote! {
        #[cfg(target_os = "cuda")]
        #(#attrs)*
        #[unsafe(no_mangle)]
        #[allow(improper_ctypes_definitions, clippy::missing_safety_doc)]
        #vis unsafe extern "ptx-kernel" fn #name(#(#abi),*) {
            #[inline(always)]
            #[allow(unused_unsafe, clippy::too_many_arguments)]
            #unsafety fn body(#inputs) #block
            // SAFETY: the launch supplies the values that the host's typed `launch` packed for these parameters.
            unsafe { body(#(#values),*) }
        }
        #bounds
    }
}

/// A comment in the PTX that `cuda_builder` turns into the entry's performance directives, which rustc cannot emit.
fn bounds_marker(options: &Options, name: &Ident) -> TokenStream {
    let directives: Vec<String> = [
        (".maxntid", options.max_threads),
        (".minnctapersm", options.min_blocks),
        (".maxnreg", options.max_registers),
        (".maxclusterrank", options.max_cluster),
    ]
    .into_iter()
    .filter_map(|(directive, value)| value.map(|value| format!("{directive} {value}")))
    .collect();
    if directives.is_empty() {
        return TokenStream::new();
    }
    let marker = format!("// cuda_builder: {name} {}", directives.join(" "));
    quote! {
        #[cfg(target_os = "cuda")]
        ::core::arch::global_asm!(#marker);
    }
}

/// The CPU function and its typed launch.
fn cpu_launch(options: &Options, function: &ItemFn, parameters: &[Parameter]) -> TokenStream {
    let ItemFn { vis, sig, .. } = function;
    let name = &sig.ident;
    let name_string = name.to_string();
    let unsafety = &sig.unsafety;
    let cooperative = options.cooperative;
    let max_threads = match options.max_threads {
        Some(threads) => quote!(::core::option::Option::Some(#threads)),
        None => quote!(::core::option::Option::None),
    };
    let names: Vec<_> = parameters.iter().map(|parameter| &parameter.name).collect();
    let strings = names.iter().map(|name| name.to_string());
    let params: Vec<_> = parameters.iter().map(|parameter| &parameter.param).collect();
    let written = parameters.iter().map(|parameter| &parameter.written);
    let doc = format!(
        "Binds the arguments of [`{name}`](fn@super::{name}), in its order: {}.",
        parameters
            .iter()
            .zip(written)
            .map(|(p, w)| format!("`{}: {}`", p.name, quote!(#w)))
            .collect::<Vec<_>>()
            .join(", ")
    );
    let module_doc = format!("The typed launch of the kernel [`{name}`](fn@{name}).");
    let mut plain = function.clone();
    plain.attrs.push(syn::parse_quote!(#[cfg(not(target_os = "cuda"))]));
    plain.attrs.push(syn::parse_quote!(#[allow(clippy::too_many_arguments)]));
    quote! {
        #plain

        #[cfg(not(target_os = "cuda"))]
        #[doc = #module_doc]
        #vis mod #name {
            #[allow(unused_imports)]
            use super::*;

            /// The kernel's name and kind.
            pub const INFO: ::cuda_std::launch::KernelInfo = ::cuda_std::launch::KernelInfo {
                name: #name_string,
                cooperative: #cooperative,
                max_threads: #max_threads,
                file: ::core::file!(),
                line: ::core::line!(),
            };

            #[doc = #doc]
            #[allow(clippy::too_many_arguments, clippy::missing_safety_doc)]
            pub #unsafety fn launch(#(#names: <#params as ::cuda_std::param::KernelParam>::Host<'_>),*) -> ::cuda_std::launch::Launch {
                let mut binder = ::cuda_std::launch::Binder::new();
                #(let #names = <#params as ::cuda_std::param::KernelParam>::bind(#names, #strings, &mut binder);)*
                ::cuda_std::launch::Launch::new(&INFO, binder, move |block: &::cuda_std::cpu::Block<'_>| {
                    block.run(|| {
                        #[allow(unused_unsafe)]
                        // SAFETY: `Launch` keeps the memory behind the bound arguments alive; the kernel's own
                        // obligations are the caller's, who met them when calling `launch`.
                        unsafe { super::#name(#(<#params as ::cuda_std::param::KernelParam>::materialize(&#names)),*) }
                    })
                })
            }
        }
    }
}
