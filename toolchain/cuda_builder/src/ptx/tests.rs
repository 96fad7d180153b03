//! Launch bounds and undefined symbols, on PTX texts.

use proptest::prelude::*;

use super::{entries, place_bounds, undefined_symbols};
use crate::NvvmArch;

const TWO_KERNELS: &str = "\
.version 7.0
.target sm_80
// cuda_builder: second .maxntid 64 .maxnreg 40
.visible .entry first(
\t.param .u64 first_param_0
)
{
\tret;
}
.visible .entry second()
{
\t{
\t// begin inline asm
\t}
\tret;
}
";

#[test]
fn bounds_go_to_their_own_kernel() {
    let placed = place_bounds(TWO_KERNELS, NvvmArch::Compute80).unwrap();
    assert_eq!(
        placed,
        TWO_KERNELS
            .replace("// cuda_builder: second .maxntid 64 .maxnreg 40\n", "")
            .replace("second()\n{", "second()\n.maxntid 64\n.maxnreg 40\n{")
    );
    assert_eq!(entries(&placed).collect::<Vec<_>>(), ["first", "second"]);
}

#[test]
fn bad_markers_are_refused() {
    for (marker, want) in [
        ("third .maxntid 64", "launch bounds are given for `third`, but the PTX has no such kernel"),
        ("first .maxntid", "launch bounds cannot be read: `first .maxntid`"),
        ("first .maxntid many", "launch bounds cannot be read: `first .maxntid many`"),
        ("first .pragma 1", "launch bounds cannot be read: `first .pragma 1`"),
        ("second .maxntid 32", "kernel `second` has two sets of launch bounds"),
    ] {
        let ptx = format!("{TWO_KERNELS}// cuda_builder: {marker}\n");
        assert_eq!(place_bounds(&ptx, NvvmArch::Compute80).unwrap_err(), want);
    }
}

#[test]
fn undefined_symbols_are_named_as_in_rust() {
    let ptx = "\
.extern .func  (.param .b32 func_retval0) vprintf
(
\t.param .b64 vprintf_param_0
)
;
.extern .func (.param .b64 func_retval0) malloc(.param .b64 malloc_param_0);
.extern .func  (.param .b32 func_retval0) llvm_$_nvvm_$_nothing
(
.extern .func nothing_returned
(
.extern .func nothing_taken();
.extern .shared .align 16 .b8 dynamic_shared[];
.extern .global .align 4 .u32 host_counter;
.extern .const .align 4 .b8 host_table[16];
// .extern .func commented_out
.visible .func defined()
";
    assert_eq!(
        undefined_symbols(ptx),
        ["llvm.nvvm.nothing", "nothing_returned", "nothing_taken", "host_counter", "host_table"]
    );
}

/// A kernel's body line: anything that is no marker and opens no kernel, braces and near-misses among them.
fn body_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("\t{".to_owned()),
        Just("\t}".to_owned()),
        Just("// cuda_builder".to_owned()),
        Just("\t.entry".to_owned()),
        "\t[a-z0-9.%,;\\[\\] ]{0,20}",
    ]
}

fn kernel() -> impl Strategy<Value = (Vec<String>, Option<u32>, bool)> {
    (proptest::collection::vec(body_line(), 0..6), proptest::option::of(1_u32..1025), any::<bool>())
}

proptest! {
    /// Without the directive lines, the result is the input without the marker lines, byte for byte; and each
    /// directive stands right before the brace that opens its kernel.
    #[test]
    fn nothing_else_changes(kernels in proptest::collection::vec(kernel(), 0..5), final_newline in any::<bool>()) {
        let (mut with_markers, mut without_markers, mut wanted) = (String::new(), String::new(), String::new());
        for (number, (body, bound, has_parameters)) in kernels.iter().enumerate() {
            let head = if *has_parameters {
                format!(".visible .entry k{number}(\n\t.param .u64 k{number}_param_0\n)\n")
            } else {
                format!(".visible .entry k{number}()\n")
            };
            let tail = format!("{{\n{}\n}}\n", body.join("\n"));
            if let Some(threads) = bound {
                with_markers += &format!("// cuda_builder: k{number} .maxntid {threads}\n");
            }
            with_markers += &format!("{head}{tail}");
            without_markers += &format!("{head}{tail}");
            let directive = bound.map(|threads| format!(".maxntid {threads}\n")).unwrap_or_default();
            wanted += &format!("{head}{directive}{tail}");
        }
        if !final_newline {
            with_markers.pop();
            wanted.pop();
            without_markers.pop();
        }
        prop_assert_eq!(place_bounds(&with_markers, NvvmArch::Compute80).unwrap(), wanted);
        prop_assert_eq!(place_bounds(&without_markers, NvvmArch::Compute80).unwrap(), without_markers);
    }
}
