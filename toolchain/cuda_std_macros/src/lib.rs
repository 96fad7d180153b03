//! The attribute macros of `cuda_std`.
//!
//! | macro | on the GPU target | on the CPU target |
//! |---|---|---|
//! | `#[kernel]` | an `extern "ptx-kernel"` entry whose slices are split into pointer and length | the function itself, and a module of its name with the typed `launch` |

mod kernel;

use proc_macro::TokenStream;

/// Marks a function as a kernel.
///
/// `#[kernel(cooperative)]` marks one that uses barriers, shared memory or warp operations.
#[proc_macro_attribute]
pub fn kernel(attributes: TokenStream, item: TokenStream) -> TokenStream {
    kernel::expand(attributes.into(), item.into()).unwrap_or_else(syn::Error::into_compile_error).into()
}
