//! The attribute macros of `cuda_std`, and its `print!`.
//!
//! | macro | on the GPU target | on the CPU target |
//! |---|---|---|
//! | `#[kernel]` | an `extern "ptx-kernel"` entry whose slices are split into pointer and length | the function itself, and a module of its name with the typed `launch` |
//! | `#[gpu_only]` | the function | a function that panics |
//! | `#[externally_visible]` | the function, kept in the PTX by its name | the function |
//! | `#[address_space(shared)]` | a handle of a variable in shared memory | the same, in the block's memory |
//! | `print!`, `print_line!` | `vprintf` with a C format string made at compile time | the executor's print |

mod items;
mod kernel;
mod print;

use proc_macro::TokenStream;

fn finish(result: syn::Result<proc_macro2::TokenStream>) -> TokenStream {
    result.unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Marks a function as a kernel.
///
/// `#[kernel(cooperative)]` marks one that uses barriers, shared memory or warp operations.
/// `#[kernel(conditional)]` gives it a last parameter of its own, the condition: `Launch::only_if` names a word, and where that is 0
/// when the launch comes to run, it does nothing. Bounds that the PTX states:
/// `max_threads = N` a block, `min_blocks = N` on a multiprocessor, `max_registers = N` a thread, `max_cluster = N` blocks.
#[proc_macro_attribute]
pub fn kernel(attributes: TokenStream, item: TokenStream) -> TokenStream {
    finish(kernel::expand(attributes.into(), item.into()))
}

/// Marks a function that only a GPU can run. On the CPU target it exists, so that code type-checks, and panics when called.
#[proc_macro_attribute]
pub fn gpu_only(attributes: TokenStream, item: TokenStream) -> TokenStream {
    finish(items::gpu_only(attributes.into(), item.into()))
}

/// Keeps a `#[no_mangle]` function in the PTX under its name, though no kernel calls it, for linking with other PTX.
#[proc_macro_attribute]
pub fn externally_visible(attributes: TokenStream, item: TokenStream) -> TokenStream {
    finish(items::externally_visible(attributes.into(), item.into()))
}

/// Places a `static` in a state space: `global`, where statics are anyway, or `shared`.
///
/// A shared static has no initial value: the initialiser is not run, and may be `MaybeUninit::uninit()`. The static becomes a
/// handle of size zero that dereferences to the variable in the block's memory; `addr_of_mut!` of it gives the handle's
/// address, so take the address through a method (`TILE.as_mut_ptr()`) or `TILE.get()`.
#[proc_macro_attribute]
pub fn address_space(attributes: TokenStream, item: TokenStream) -> TokenStream {
    finish(items::address_space(attributes.into(), item.into()))
}

/// Prints from a kernel; see `cuda_std::io`.
#[proc_macro]
pub fn print(input: TokenStream) -> TokenStream {
    finish(print::expand(input.into(), false))
}

/// Prints a line from a kernel; `println!` is written in its terms.
#[proc_macro]
pub fn print_line(input: TokenStream) -> TokenStream {
    finish(print::expand(input.into(), true))
}
