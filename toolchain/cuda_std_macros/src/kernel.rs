//! `#[kernel]`.

use proc_macro2::TokenStream;
use quote::{format_ident, quote};
use syn::parse::{Parse, ParseStream};
use syn::{Error, FnArg, Ident, ItemFn, LitInt, Pat, Result, ReturnType, Token, Type};

/// What stands in the attribute's parentheses.
#[derive(Default)]
struct Options {
    cooperative: bool,
    conditional: bool,
    max_threads: Option<u32>,
    min_blocks: Option<u32>,
    max_registers: Option<u32>,
    max_cluster: Option<u32>,
}

impl Parse for Options {
    fn parse(input: ParseStream) -> Result<Self> {
        let mut options = Self::default();
        let mut seen: Vec<Ident> = Vec::new();
        while !input.is_empty() {
            let key: Ident = input.parse()?;
            if seen.contains(&key) {
                return Err(Error::new(key.span(), format!("`{key}` is given twice")));
            }
            match key.to_string().as_str() {
                "cooperative" => options.cooperative = true,
                "conditional" => options.conditional = true,
                "max_threads" => options.max_threads = Some(bound(input, &key, 1024)?),
                "min_blocks" => options.min_blocks = Some(bound(input, &key, 32)?),
                "max_registers" => options.max_registers = Some(bound(input, &key, 255)?),
                "max_cluster" => options.max_cluster = Some(bound(input, &key, 16)?),
                other => {
                    return Err(Error::new(
                        key.span(),
                        format!(
                            "unknown option `{other}`; known are `cooperative`, `conditional`, `max_threads = N`, \
                             `min_blocks = N`, `max_registers = N`, `max_cluster = N`"
                        ),
                    ));
                }
            }
            seen.push(key);
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(options)
    }
}

/// The number after an option's `=`; `most` is what every GPU so far allows.
fn bound(input: ParseStream, key: &Ident, most: u32) -> Result<u32> {
    input.parse::<Token![=]>()?;
    let literal = input.parse::<LitInt>()?;
    match literal.base10_parse::<u32>()? {
        value if (1..=most).contains(&value) => Ok(value),
        value => Err(Error::new(literal.span(), format!("`{key}` is 1 to {most}, not {value}"))),
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
    if let Some(abi) = &signature.abi {
        return Err(Error::new_spanned(abi, "`#[kernel]` gives the function its ABI; write none"));
    }
    if let Some(asyncness) = &signature.asyncness {
        return Err(Error::new_spanned(asyncness, "a kernel runs to its end and cannot be `async`"));
    }
    if let Some(attribute) = function.attrs.iter().find(|attribute| attribute.path().is_ident("no_mangle")) {
        return Err(Error::new_spanned(
            attribute,
            "`#[kernel]` keeps the function's name in the PTX; leave `no_mangle` out",
        ));
    }
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
    if let Type::ImplTrait(_) = &written {
        return Err(Error::new_spanned(
            written,
            "a kernel is an entry point by name and cannot be generic; name the type",
        ));
    }
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
            (Type::Path(path), _) if path.path.is_ident("str") => {
                return Err(Error::new_spanned(path, "device memory holds no `str`; take `&[u8]`"));
            }
            (Type::TraitObject(object), _) => {
                return Err(Error::new_spanned(object, "a trait object's functions are the host's; name the type"));
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
    let (condition, returns) = if options.conditional {
        let returns = quote! {
            // SAFETY: null, or a word that the launch keeps alive and that nothing writes while the kernel runs.
            if !condition.is_null() && unsafe { *condition } == 0 {
                return;
            }
        };
        (quote!(condition: *const u32), returns)
    } else {
        Default::default()
    };
    quote! {
        #[cfg(target_os = "cuda")]
        #(#attrs)*
        #[unsafe(no_mangle)]
        #[allow(
            improper_ctypes_definitions,
            clippy::missing_safety_doc,
            reason = "Rust packs and unpacks the parameters; the one caller is the driver"
        )]
        #vis unsafe extern "ptx-kernel" fn #name(#(#abi,)* #condition) {
            #returns
            #[inline(always)]
            #[allow(unused_unsafe, clippy::too_many_arguments, reason = "the kernel as its author wrote it")]
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
    let condition = options.conditional.then(|| quote!(binder.condition();));
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
    plain.attrs.push(
        syn::parse_quote!(#[allow(clippy::too_many_arguments, reason = "a kernel's parameters are its buffers")]),
    );
    quote! {
        #plain

        #[cfg(not(target_os = "cuda"))]
        #[doc = #module_doc]
        #vis mod #name {
            #[allow(unused_imports, reason = "a kernel of plain numbers names no type from outside")]
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
            #[allow(
                clippy::too_many_arguments,
                clippy::missing_safety_doc,
                reason = "the parameters and the contract are the kernel's"
            )]
            pub #unsafety fn launch(#(#names: <#params as ::cuda_std::param::KernelParam>::Host<'_>),*) -> ::cuda_std::launch::Launch {
                let mut binder = ::cuda_std::launch::Binder::new();
                #(let #names = <#params as ::cuda_std::param::KernelParam>::bind(#names, #strings, &mut binder);)*
                #condition
                ::cuda_std::launch::Launch::new(&INFO, binder, move |block: &::cuda_std::cpu::Block<'_>| {
                    block.run(|| {
                        #[allow(unused_unsafe, reason = "a kernel without parameters may be a safe function")]
                        // SAFETY: `Launch` keeps the memory behind the bound arguments alive; the kernel's own
                        // obligations are the caller's, who met them when calling `launch`.
                        unsafe { super::#name(#(<#params as ::cuda_std::param::KernelParam>::materialize(&#names)),*) }
                    })
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(attributes: TokenStream, item: TokenStream) -> String {
        expand(attributes, item).unwrap_err().to_string()
    }

    #[test]
    fn what_cannot_be_a_kernel_is_refused_with_its_reason() {
        for (item, reason) in [
            (
                quote!(
                    fn k<T>(x: T) {}
                ),
                "cannot be generic",
            ),
            (
                quote!(
                    fn k(x: impl Copy) {}
                ),
                "cannot be generic",
            ),
            (
                quote!(
                    fn k() -> u32 {
                        1
                    }
                ),
                "returns nothing",
            ),
            (
                quote!(
                    fn k(&self) {}
                ),
                "takes no `self`",
            ),
            (
                quote!(
                    fn k((a, b): (u32, u32)) {}
                ),
                "a plain name",
            ),
            (
                quote!(
                    extern "C" fn k() {}
                ),
                "gives the function its ABI",
            ),
            (
                quote!(
                    async fn k() {}
                ),
                "cannot be `async`",
            ),
            (
                quote!(
                    #[no_mangle]
                    fn k() {}
                ),
                "leave `no_mangle` out",
            ),
            (
                quote!(
                    fn k(text: &str) {}
                ),
                "holds no `str`",
            ),
            (
                quote!(
                    fn k(f: &dyn Fn()) {}
                ),
                "trait object",
            ),
        ] {
            let message = error(quote!(), item.clone());
            assert!(message.contains(reason), "{item}: {message}");
        }
    }

    #[test]
    fn options_are_checked() {
        let item = || {
            quote!(
                fn k() {}
            )
        };
        assert!(error(quote!(max_thread = 4), item()).contains("unknown option `max_thread`"));
        assert_eq!(error(quote!(max_threads = 2048), item()), "`max_threads` is 1 to 1024, not 2048");
        assert_eq!(error(quote!(cooperative, cooperative), item()), "`cooperative` is given twice");
    }

    #[test]
    fn slices_are_split_and_bounds_are_noted() {
        let item = quote!(
            unsafe fn k(a: &[f32], n: u32, out: *mut f32) {}
        );
        let expanded = expand(quote!(max_threads = 256, min_blocks = 2), item).unwrap().to_string();
        for part in ["RefSlice < f32 >", "RawMut < f32 >", "// cuda_builder: k .maxntid 256 .minnctapersm 2", "mod k"] {
            assert!(expanded.contains(part), "{part} in {expanded}");
        }
    }
}
