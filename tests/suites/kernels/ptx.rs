//! What the compiler made of the kernels: accesses of 16 bytes where memory is the limit, and no local memory.

use host::images::KERNELS;
use onegraph_tests::{Case, Outcome, host_case};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("ptx::the_checks_catch_what_they_are_for", the_checks_catch_what_they_are_for),
        host_case("ptx::memory_bound_kernels_access_16_bytes", memory_bound_kernels_access_16_bytes),
        host_case(
            "ptx::the_control_page_is_read_as_memory_that_changes",
            the_control_page_is_read_as_memory_that_changes,
        ),
        host_case("ptx::the_mirrors_are_written_between_the_stamps", the_mirrors_are_written_between_the_stamps),
        host_case("ptx::no_kernel_uses_local_memory", no_kernel_uses_local_memory),
    ]
}

const IMAGES: [(&str, &str); 2] = [("sm_80", KERNELS.sm_80), ("sm_90a", KERNELS.sm_90a)];

/// The text of each kernel of an image, with its name.
fn kernels(image: &str) -> impl Iterator<Item = (&str, &str)> {
    image.split(".entry ").skip(1).map(|text| {
        let name = text.split(['(', '\n', ' ']).next().unwrap_or_default();
        (name, text.split("\n}").next().unwrap_or(text))
    })
}

/// Loads or stores of global memory that take 16 bytes.
fn n_wide(kernel: &str, instruction: &str) -> usize {
    let wide = |line: &str| {
        line.trim_start().starts_with(instruction)
            && [".v2.b64", ".v2.u64", ".v2.f64", ".v4."].iter().any(|v| line.contains(v))
    };
    kernel.lines().filter(|line| wide(line)).count()
}

fn the_checks_catch_what_they_are_for() -> Outcome {
    let image = ".visible .entry a(\n)\n{\n\tld.global.nc.v2.b64 \t{%rd1, %rd2}, [%rd3];\n\tld.global.b32 %r1, [%rd3];\n}\n\
                 .visible .entry b(\n)\n{\n\t.local .align 8 .b8 \t__local_depot1[88];\n}\n";
    let found: Vec<_> = kernels(image).collect();
    assert_eq!(found.iter().map(|(name, _)| *name).collect::<Vec<_>>(), ["a", "b"]);
    assert_eq!((n_wide(found[0].1, "ld.global"), n_wide(found[0].1, "st.global")), (1, 0));
    assert!(!found[0].1.contains(".local") && found[1].1.contains(".local"));
    Ok(())
}

fn memory_bound_kernels_access_16_bytes() -> Outcome {
    let expected = [
        ("copy_vectors", 4, 4),
        ("gather_f32_rows_padded", 4, 4),
        ("seg_tree_sample", 2, 0),
        ("seg_tree_build", 1, 1),
        ("seg_tree_update_groups", 1, 1),
        ("seg_tree_top", 1, 1),
        ("scan_block_sums", 1, 0),
        ("scan_prefix", 1, 2),
        ("reduce_sum_partials", 1, 0),
        ("reduce_max_partials", 1, 0),
        ("adamw", 5, 4),
        ("gradient_norm", 1, 0),
        ("flag_non_finite", 1, 0),
        ("spectral_columns", 1, 1),
        ("spectral_rows", 2, 0),
        ("spectral_scale", 1, 0),
        ("trunk_input", 4, 0),
        ("trunk_entry", 8, 4),
        ("residual_norm", 8, 4),
        ("residual_out", 2, 1),
        ("residual_backward", 8, 1),
        ("norm_backward", 12, 4),
        ("norm_gain_partials", 16, 1),
        ("entry_backward", 8, 0),
        ("entry_partials", 16, 4),
        ("branch_select", 4, 0),
        ("branch_select_backward", 24, 4),
        ("column_partials_f32", 8, 1),
        ("iqn_product", 9, 0),
        ("iqn_product_backward", 17, 9),
        ("column_partials_scaled", 8, 1),
        ("iql_hidden_gradient", 8, 2),
        ("trade_probability", 2, 0),
        ("matmul_nt", 8, 12),
        ("matmul_nn", 8, 12),
        ("matmul_tn", 8, 12),
        ("matmul_f32", 8, 20),
    ];
    // Loads where C is added to or taken for SiLU's slope, stores of C otherwise: of four rows each.
    let of_hopper = [
        ("matmul_nt_wgmma_128", 8, 12),
        ("matmul_nt_wgmma_256", 8, 12),
        ("matmul_nn_wgmma_128", 8, 12),
        ("matmul_nn_wgmma_256", 8, 12),
        ("matmul_tn_wgmma_128", 8, 12),
        ("matmul_tn_wgmma_256", 8, 12),
    ];
    for (arch, image) in IMAGES {
        let of_image: &[_] = if arch == "sm_90a" { &of_hopper } else { &[] };
        for (name, n_loads, n_stores) in expected.iter().chain(of_image).copied() {
            let (_, text) =
                kernels(image).find(|(kernel, _)| *kernel == name).ok_or(format!("{arch}: no kernel {name}"))?;
            let found = (n_wide(text, "ld.global"), n_wide(text, "st.global"));
            assert!(found.0 >= n_loads && found.1 >= n_stores, "{arch} {name}: {found:?} wide loads and stores");
        }
    }
    Ok(())
}

/// The kernel's other buffers are read by plain loads too, so no `.nc` load is left for the page.
fn the_control_page_is_read_as_memory_that_changes() -> Outcome {
    for (arch, image) in IMAGES {
        let name = "increment_step_counters";
        let (_, text) =
            kernels(image).find(|(kernel, _)| *kernel == name).ok_or(format!("{arch}: no kernel {name}"))?;
        assert!(!text.contains("ld.global.nc"), "{arch}: {name} has a load that takes memory for constant\n{text}");
        let n_loads = text.lines().filter(|line| line.contains("ld.relaxed.sys")).count();
        assert_eq!(n_loads, 4, "{arch}: {name} reads four fields of the page\n{text}");
    }
    Ok(())
}

/// `stamp_begin`, a fence, the mirrors, a fence, and `stamp_end` with release order: all of system scope, and nothing else is.
fn the_mirrors_are_written_between_the_stamps() -> Outcome {
    for (arch, image) in IMAGES {
        let (_, text) = kernels(image).find(|(kernel, _)| *kernel == "publish").ok_or(format!("{arch}: no publish"))?;
        let order: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                ["st.relaxed.sys", "fence.acq_rel.sys", "st.release.sys"].into_iter().find(|word| line.contains(word))
            })
            .collect();
        let mut expected = vec!["st.relaxed.sys", "fence.acq_rel.sys"];
        expected.extend(vec!["st.relaxed.sys"; order.len().saturating_sub(4)]);
        expected.extend(["fence.acq_rel.sys", "st.release.sys"]);
        assert!(order == expected && order.len() > 6, "{arch}: {order:?}");
    }
    Ok(())
}

/// Kernels that use `libm`'s `expm1` or `log1p`, which for tiny and huge arguments read a value back to raise a flag of the
/// floating-point unit: one word of the stack, on a path that is hardly ever taken.
const OF_LIBM: [&str; 4] = ["bar_terms", "baseline_path", "environment_step", "evaluation_step"];

/// The temporal block: its small arrays are still indexed at run time.
const TO_BE_TUNED: [&str; 4] =
    ["temporal_forward", "temporal_backward", "temporal_forward_tensor", "temporal_backward_tensor"];

fn no_kernel_uses_local_memory() -> Outcome {
    for (arch, image) in IMAGES {
        for (name, text) in kernels(image) {
            let known = OF_LIBM.contains(&name) || TO_BE_TUNED.contains(&name);
            assert!(known || !text.contains(".local"), "{arch}: {name} keeps data in local memory");
        }
    }
    Ok(())
}
