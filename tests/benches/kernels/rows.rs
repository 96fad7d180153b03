//! What is timed: sizes of preset `full`, and capacities around it.

use gpu_kernels::copy::{copy_vectors, copy_vectors_shape};
use gpu_kernels::counters::{increment_step_counters, increment_step_counters_shape};
use gpu_kernels::gather::{gather_f32_rows_padded, gather_f32_rows_padded_shape};
use gpu_kernels::is_weights::{per_is_weights, per_is_weights_shape};
use gpu_kernels::reduce::{n_partials, reduce_partials_shape, reduce_shape, reduce_sum, reduce_sum_partials};
use gpu_kernels::scan::{
    i64_to_u32, n_scan_blocks, scan_block_sums, scan_offsets, scan_offsets_shape, scan_prefix, scan_sample,
    scan_sample_shape, scan_shape,
};
use gpu_kernels::seg_tree::{TreeMemory, TreeShape, seg_tree_sample, seg_tree_sample_shape};
use half::bf16;
use host::device::Buffer;
use host::error::DeviceError;
use shared_types::{Control, Counters, Schedule, StepScalars, due, isv};

use crate::Failure;
use crate::report::Report;
use crate::timer::{LANES, N_SETS, Timer};

const BATCH: usize = 8192;
const SEED: [u32; 2] = [3, 4];

/// 1 GiB, far past the L2.
pub fn copy(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let n = 1 << 28;
    let (source, target) = (timer.random(n)?, timer.zeroed::<f32>(n)?);
    let times =
        timer.time(|_| vec![(copy_vectors_shape(n), copy_vectors::launch(source.view(), target.view_mut()))])?;
    let bytes = 8.0 * n as f64;
    report.set_copy_rate(bytes, times.graph_us);
    report.row("copy/1GiB", bytes, times);
    Ok(())
}

/// Random rows of 400 into a stride of 448, out of 2^20: a batch, and many times that, where the launch is no matter.
pub fn gather(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let (n_source, width, stride) = (1usize << 20, 400usize, 448usize);
    let source = timer.random(n_source * width)?;
    for n_rows in [BATCH, 8 * BATCH, 16 * BATCH] {
        let indices = timer.upload(&random_indices(n_rows * N_SETS, n_source))?;
        let targets = timer.zeroed::<f32>(n_rows * stride * N_SETS)?;
        let times = timer.time(|set| {
            let (rows, target) = (set * n_rows..(set + 1) * n_rows, set * n_rows * stride..(set + 1) * n_rows * stride);
            let launch = gather_f32_rows_padded::launch(
                source.view(),
                indices.slice(rows).view(),
                targets.slice(target).view_mut(),
                width as u32,
                stride as u32,
            );
            vec![(gather_f32_rows_padded_shape(n_rows), launch)]
        })?;
        report.row(&format!("gather/{n_rows}"), (n_rows * (4 * width + 4 * stride + 4)) as f64, times);
    }
    Ok(())
}

/// Sampling, updating and both, at capacities from 2^16 to 2^26.
pub fn trees(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    for log_capacity in (16..=26).step_by(2) {
        tree(timer, report, log_capacity)?;
    }
    Ok(())
}

fn tree(timer: &Timer, report: &mut Report, log_capacity: usize) -> Result<(), Failure> {
    let shape = TreeShape::for_slots(1 << log_capacity).ok_or("no tree of that capacity")?;
    // Leaves are uniforms; the other nodes are summed before anything is timed.
    let nodes = timer.random(shape.n_nodes())?;
    let (owners, max_priority) = (timer.zeroed::<u64>(shape.owners_len())?, timer.upload(&[1.0f32])?);
    let tree = TreeMemory {
        tree: nodes.view().memory().clone(),
        owners: owners.view().memory().clone(),
        max_priority: max_priority.view().memory().clone(),
        lanes: LANES,
    };
    timer.run(tree.build())?;
    let picks = timer.upload(&random_indices(BATCH * N_SETS, shape.capacity()))?;
    let errors: Vec<bf16> = (0..BATCH * N_SETS).map(|i| bf16::from_f32((i % 997) as f32 / 250.0)).collect();
    let (errors, priorities) = (timer.upload(&errors)?, timer.zeroed::<f32>(BATCH * N_SETS)?);
    // One set of counters a set of draws, so that each draws its own.
    let steps: Vec<Counters> =
        (0..N_SETS).map(|set| Counters { rng_step: set as i32, ..Counters::default() }).collect();
    let (steps, drawn) = (timer.upload(&steps)?, timer.zeroed::<u32>(BATCH * N_SETS)?);
    let rows = |set: usize| set * BATCH..(set + 1) * BATCH;
    let sample = |set: usize| {
        let (indices, priorities) = (drawn.slice(rows(set)), priorities.slice(rows(set)));
        let step = steps.slice(set..set + 1);
        let launch =
            seg_tree_sample::launch(nodes.view(), step.view(), indices.view_mut(), priorities.view_mut(), SEED);
        vec![(seg_tree_sample_shape(BATCH), launch)]
    };
    let update = |set: usize, indices: &Buffer<u32>| {
        tree.update(indices.slice(rows(set)).view().memory(), errors.slice(rows(set)).view().memory(), 0.6)
    };
    let levels = log_capacity as f64;
    // A sample: a sector of 32 bytes for three levels, index and priority out. An update: index and error in, a leaf, and
    // a pair of children and their sum a level.
    let sample_bytes = BATCH as f64 * ((levels / 3.0).ceil() * 32.0 + 8.0);
    let update_bytes = BATCH as f64 * (6.0 + 8.0 + 12.0 * levels);
    report.row(&format!("tree_sample/2^{log_capacity}"), sample_bytes, timer.time(sample)?);
    report.row(&format!("tree_update/2^{log_capacity}"), update_bytes, timer.time(|set| update(set, &picks))?);
    let both = timer.time(|set| sample(set).into_iter().chain(update(set, &drawn)).collect())?;
    report.row(&format!("tree_sample_update/2^{log_capacity}"), sample_bytes + update_bytes, both);
    Ok(())
}

/// The other sampler: running sums of 2^20 priorities, then a batch of searches.
pub fn scan(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let n = 1 << 20;
    let (priorities, max_priority) = (timer.random(n)?, timer.upload(&[1.0f32])?);
    let (block_sums, prefix) = (timer.zeroed::<u64>(n_scan_blocks(n))?, timer.zeroed::<u64>(n)?);
    let sums = || {
        let (most, all) = (max_priority.view(), priorities.view());
        vec![
            (scan_shape(n), scan_block_sums::launch(all, most, block_sums.view_mut())),
            (scan_offsets_shape(), scan_offsets::launch(block_sums.view_mut())),
            (
                scan_shape(n),
                scan_prefix::launch(priorities.view(), max_priority.view(), block_sums.view(), prefix.view_mut()),
            ),
        ]
    };
    report.row("scan_prefix/2^20", 16.0 * n as f64, timer.time(|_| sums())?);
    let counters = timer.zeroed::<Counters>(1)?;
    let (wide, narrow) = (timer.zeroed::<i64>(BATCH)?, timer.zeroed::<u32>(BATCH)?);
    let drawn = timer.zeroed::<f32>(BATCH)?;
    let both = timer.time(|_| {
        let search = scan_sample::launch(
            priorities.view(),
            prefix.view(),
            counters.view(),
            wide.view_mut(),
            drawn.view_mut(),
            SEED,
        );
        let mut pass = sums();
        pass.push((scan_sample_shape(BATCH), search));
        pass.push((scan_sample_shape(BATCH), i64_to_u32::launch(wide.view(), narrow.view_mut())));
        pass
    })?;
    report.row("scan_sample/2^20", 16.0 * n as f64 + BATCH as f64 * (20.0 * 8.0 + 24.0), both);
    Ok(())
}

/// Reductions, importance weights, counters.
pub fn small(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    for log_n in [20, 26] {
        let n = 1 << log_n;
        let (values, partials) = (timer.random(n)?, timer.zeroed::<f32>(n_partials(n))?);
        let result = timer.zeroed::<f32>(1)?;
        let times = timer.time(|_| {
            vec![
                (reduce_partials_shape(n), reduce_sum_partials::launch(values.view(), partials.view_mut())),
                (reduce_shape(), reduce_sum::launch(partials.view(), result.view_mut())),
            ]
        })?;
        report.row(&format!("reduce_sum/2^{log_n}"), 4.0 * n as f64, times);
    }
    weights(timer, report)?;
    counters(timer, report)?;
    Ok(())
}

fn weights(timer: &Timer, report: &mut Report) -> Result<(), DeviceError> {
    let (priorities, weights) = (timer.random(BATCH)?, timer.zeroed::<f32>(BATCH)?);
    let scalars = timer.upload(&[StepScalars { beta: 0.6, ..StepScalars::default() }])?;
    let times = timer.time(|_| {
        let launch = per_is_weights::launch(priorities.view(), scalars.view(), weights.view_mut());
        vec![(per_is_weights_shape(LANES), launch)]
    })?;
    report.row(&format!("is_weights/{BATCH}"), 12.0 * BATCH as f64, times);
    Ok(())
}

fn counters(timer: &Timer, report: &mut Report) -> Result<(), DeviceError> {
    let schedule = Schedule {
        tau_init: 0.01,
        tau_final: 0.001,
        anneal_steps: 35_600,
        total_steps: 35_600,
        seed: SEED,
        depth_keep_last: 0.9,
        every: [0; due::N],
    };
    let (control, counters) = (timer.zeroed::<Control>(1)?, timer.zeroed::<Counters>(1)?);
    let (scalars, bus) = (timer.zeroed::<StepScalars>(1)?, timer.zeroed::<f32>(isv::LEN)?);
    let due = timer.zeroed(due::N)?;
    let times = timer.time(|_| {
        // SAFETY: `control` holds one `Control`, which the host writes by whole fields if at all.
        let launch = unsafe {
            increment_step_counters::launch(
                control.ptr(),
                counters.view_mut(),
                scalars.view_mut(),
                bus.view_mut(),
                due.view_mut(),
                schedule,
            )
        };
        vec![(increment_step_counters_shape(), launch)]
    })?;
    report.row("counters", 16.0 + 64.0 + 64.0, times);
    Ok(())
}

/// Indices under `n`: the finaliser of SplitMix64 over a count.
fn random_indices(len: usize, n: usize) -> Vec<u32> {
    let index = |i: u64| {
        let z = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((z ^ (z >> 31)) % n as u64) as u32
    };
    (1..=len as u64).map(index).collect()
}
