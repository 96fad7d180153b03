//! What the step's launches say that they cannot do without: the floors of `bench`.

use cuda_std::launch::{Access, Launch, Work};
use gpu_kernels::attention::{attention_backward_operations, attention_forward_operations};
use gpu_kernels::temporal::{temporal_backward_operations, temporal_forward_operations};
use host::config::{Config, DataSource, Preset};
use host::device::{Device, Matmul, Output};
use onegraph_tests::{Case, Failed, Outcome, case, ensure, host_case};
use shared_types::market::state_dim;
use shared_types::{Precision, Product, ProductForm};

use crate::learner::Learner;

pub fn cases() -> Vec<Case> {
    vec![
        case("work::every_kernel_moves_something_and_no_more_than_it_reaches", every_kernel_moves_something),
        case("work::the_operations_of_forward_are_those_of_its_matrices", operations_of_forward),
        case("work::a_gather_moves_its_rows_and_not_the_ring", a_gather_moves_its_rows),
        case("work::products_count_their_operands_once", products_count_their_operands_once),
        host_case("work::the_blocks_operations_are_those_of_their_equations", operations_of_blocks),
    ]
}

fn learner(device: &Device, everything: bool) -> Result<Learner, Failed> {
    let mut config = Config::preset(Preset::Tiny, DataSource::Simulator);
    let on = &mut config.learners;
    for learner in [
        &mut on.temporal,
        &mut on.attention,
        &mut on.iqn,
        &mut on.iql,
        &mut on.selectivity,
        &mut on.denoise,
        &mut on.risk,
    ] {
        *learner = everything;
    }
    if everything {
        config.prune.final_sparsity = 0.5;
    }
    Learner::new(device, config, &[])
}

fn launches(learner: &Learner, child: &str) -> Vec<Launch> {
    let children = learner.children().into_iter().filter(|(name, _)| *name == child);
    children.flat_map(|(_, launches)| launches).map(|(_, launch)| launch).collect()
}

/// Read and written in place is the most.
fn every_kernel_moves_something(device: &Device) -> Outcome {
    for everything in [false, true] {
        for (child, launches) in learner(device, everything)?.children() {
            for (_, launch) in launches {
                let ways = |access: Access| if access == Access::Write { 2 } else { 1 };
                let most: usize = launch.claims().iter().map(|claim| ways(claim.access) * claim.range.bytes()).sum();
                let (name, Work { bytes, .. }) = (launch.info().name, launch.work());
                ensure!(bytes > 0 && bytes <= most as u64, "{child}, {name}: {bytes} bytes of at most {most}");
            }
        }
    }
    Ok(())
}

/// Each matrix of trunk and branches once forwards, once for its own gradient, and once for that of its input, which W_in's is not
/// asked for: the core agent's u has nothing in front of it that learns.
fn operations_of_forward(device: &Device) -> Outcome {
    let learner = learner(device, false)?;
    let layout = &learner.agent.parameters.layout;
    let of_products = |name: &str| name.starts_with("trunk.") || name.starts_with("branch.");
    let matrices = layout.tensors().iter().filter(|tensor| of_products(&tensor.name) && tensor.shape.len() == 2);
    let all: usize = matrices.map(|tensor| tensor.n_elements()).sum();
    let entry = layout.tensor("trunk.in.weight").n_elements();
    let batch = Config::preset(Preset::Tiny, DataSource::Simulator).batch;
    let found: u64 = launches(&learner, "forward").iter().map(|launch| launch.work().operations).sum();
    ensure!(found == 2 * (batch * (3 * all - entry)) as u64, "{found} operations, {all} weights, {entry} of W_in");
    Ok(())
}

fn a_gather_moves_its_rows(device: &Device) -> Outcome {
    let learner = learner(device, false)?;
    let config = Config::preset(Preset::Tiny, DataSource::Simulator);
    let width = state_dim(config.window as usize);
    // A row is read, and written padded to a multiple of 64; its slot's number is read.
    let want = 4 * config.batch * (width + width.next_multiple_of(64) + 1);
    let gathers = launches(&learner, "per_sample");
    let gathers: Vec<u64> = gathers
        .iter()
        .filter(|launch| launch.info().name == "gather_f32_rows_padded")
        .map(|launch| launch.work().bytes)
        .collect();
    ensure!(gathers == [want as u64; 2], "{gathers:?}, {want} expected twice");
    Ok(())
}

/// Two products of one A: operations 2 m n k each, A once, both B, both C; accumulated results are read as well.
fn products_count_their_operands_once(device: &Device) -> Outcome {
    let (m, n, k) = (24, 16, 40);
    let product = |number: u32| Product {
        m,
        n,
        k,
        a_stride: k,
        b: number * n * k,
        b_stride: k,
        c: number * m * n,
        c_stride: n,
        ..Product::default()
    };
    for precision in [Precision::Bf16, Precision::F32] {
        let matmul = Matmul::new(device, ProductForm::Nt, precision, vec![product(0), product(1)])?;
        let operand = |len: u32| device.alloc_zeroed::<u16>(len as usize * precision.words());
        // More than is touched.
        let (a, b) = (operand(1000 * k)?, operand(1000 * k)?);
        let c = device.alloc_zeroed::<f32>((3 * m * n) as usize)?;
        let operands = 2 * precision.words() as u32 * (m * k + 2 * n * k);
        let table = 2 * size_of::<Product>() as u32;
        for (output, ways) in [(Output::Store(c.all(), None), 1), (Output::Add(c.all()), 2)] {
            let (_, launch) = matmul.launch(a.all(), b.all(), output);
            let want = Work {
                bytes: (operands + table + ways * 4 * 2 * m * n).into(),
                operations: (2 * 2 * m * n * k).into(),
            };
            ensure!(launch.work() == want, "{:?}, {want:?} expected", launch.work());
        }
    }
    Ok(())
}

/// By hand, a row: W_e 64 x 24 and 164 rows of W_in at each of 16 bars, 128 rows of W_in and W_out 64 x 128 at the last.
fn operations_of_blocks() -> Outcome {
    let forward = 2 * (16 * (64 * 24 + 164 * 64) + 128 * 64 + 64 * 128);
    ensure!(temporal_forward_operations(1, 16) == forward, "{} operations", temporal_forward_operations(1, 16));
    // Again, and twice: but for the features there is a gradient by both factors.
    let backward = 3 * forward - 2 * 16 * 64 * 24;
    ensure!(temporal_backward_operations(10, 16) == 10 * backward, "{}", temporal_backward_operations(10, 16));
    // W_e; then 8 tokens of width 64, then 64 of width 8: four matrices each, Q K^T and P V.
    let (over_bars, over_channels) = (4 * 8 * 64 * 64 + 2 * 8 * 8 * 64, 4 * 64 * 8 * 8 + 2 * 64 * 64 * 8);
    let forward = 2 * (8 * 64 * 24 + over_bars + over_channels);
    ensure!(attention_forward_operations(3, 8) == 3 * forward, "{}", attention_forward_operations(3, 8));
    ensure!(attention_backward_operations(1, 8) == 3 * forward - 2 * 8 * 64 * 24, "{forward}");
    Ok(())
}
