//! What `cuda_std`'s device API becomes in PTX: one instruction where one is promised, and its own state space.

use onegraph_tests::TEST_KERNELS;

/// The lines of one entry.
fn entry<'a>(ptx: &'a str, name: &str) -> &'a str {
    let start = ptx.find(&format!(".entry {name}(")).unwrap_or_else(|| panic!("no entry {name}"));
    let end = ptx[start..].find("\n}").expect("an entry ends");
    &ptx[start..start + end]
}

/// How many lines of an entry hold an instruction.
fn count(entry: &str, instruction: &str) -> usize {
    entry.lines().filter(|line| line.contains(instruction)).count()
}

fn check(image: &str, ptx: &str, table: &[(&str, &str, usize)]) {
    for (kernel, instruction, want) in table {
        let entry = entry(ptx, kernel);
        assert_eq!(count(entry, instruction), *want, "{image}: {instruction} in {kernel}\n{entry}");
    }
}

const EVERYWHERE: &[(&str, &str, usize)] = &[
    // A barrier, shuffle or copy that a pass had duplicated would be counted twice.
    ("shuffle_after_a_branch", "shfl.sync", 1),
    ("sum_of_a_warp", "redux.sync.add", 1),
    ("sum_of_a_warp", "shfl.sync", 0),
    ("counting_barriers", "bar.red", 3),
    ("shuffle_u128", "shfl.sync", 16),
    ("match_f64", "match.any.sync.b64", 1),
    ("match_f64", "match.all.sync.b64", 1),
    ("release_a_stamp", "st.release.sys.global.b64", 1),
    ("copy_vectors", "ld.global.nc.v4.f32", 1),
    ("copy_vectors", "st.global.cs.v4.f32", 1),
    ("copy_asynchronously", "cp.async.cg.shared.global", 1),
    ("copy_asynchronously", "cp.async.ca.shared.global", 3),
    ("fast_math", "ex2.approx.f32", 2),
    ("fast_math", "ex2.approx.ftz.f32", 1),
    ("fast_math", "tanh.approx.f32", 2),
    ("packed_halves", "cvt.rn.bf16x2.f32", 1),
    ("packed_halves", "cvt.rn.f16x2.f32", 1),
    ("mma_bf16", "mma.sync.aligned.m16n8k16", 1),
    ("mma_bf16", "ldmatrix.sync.aligned.m8n8.x4", 1),
    ("mma_bf16", "ldmatrix.sync.aligned.m8n8.x2.trans", 1),
    ("mma_tf32", "mma.sync.aligned.m16n8k8", 1),
];

#[test]
fn each_promise_is_one_instruction() {
    check("sm_80", TEST_KERNELS.sm_80, EVERYWHERE);
    check("sm_90a", TEST_KERNELS.sm_90a, EVERYWHERE);
    check(
        "sm_90a",
        TEST_KERNELS.sm_90a,
        &[
            ("wgmma_bf16", "wgmma.mma_async.sync.aligned.m64n128k16", 4),
            ("wgmma_bf16", ", 1, 1, 0, 0; }", 4),
            ("wgmma_bf16_nn", ", 1, 1, 0, 1; }", 4),
            ("wgmma_bf16_tn", ", 1, 1, 1, 1; }", 4),
            ("transpose_matrices", "stmatrix.sync.aligned", 1),
            ("copy_in_bulk", "mbarrier.init", 1),
            ("votes", "elect.sync", 1),
        ],
    );
}

/// In the space that the pointer is in, and with no other atomic beside it.
#[test]
fn case_w_a_float_addition_is_one_instruction() {
    for (image, ptx) in [("sm_80", TEST_KERNELS.sm_80), ("sm_90a", TEST_KERNELS.sm_90a)] {
        check(
            image,
            ptx,
            &[
                ("atomic_add_f32", "atom.relaxed.gpu.global.add.f32", 1),
                ("atomic_add_f32", "atom.", 1),
                ("atomics_in_shared_memory", "atom.relaxed.cta.shared.add.f32", 1),
                ("atomics_in_shared_memory", "atom.relaxed.cta.shared.add.f64", 1),
                ("atomics_in_shared_memory", "atom.", 2),
            ],
        );
    }
}

/// Kernels with arrays of their own in local memory, or on the heap, have generic accesses; these have none of either.
#[test]
fn accesses_name_their_space() {
    for (image, ptx) in [("sm_80", TEST_KERNELS.sm_80), ("sm_90a", TEST_KERNELS.sm_90a)] {
        for kernel in [
            "shared_stores_of_every_size",
            "shared_array_in_a_loop",
            "shared_array_of_arrays",
            "shared_static_rotates",
            "dynamic_shared_rotates",
            "atomics_in_shared_memory",
            "barrier_in_shared_memory",
            "mma_bf16",
            "transpose_matrices",
        ] {
            let entry = entry(ptx, kernel);
            let generic = entry.lines().find(|line| line.contains("\tld.b") || line.contains("\tst.b"));
            assert_eq!(generic, None, "{image}: {kernel}\n{entry}");
        }
    }
}
