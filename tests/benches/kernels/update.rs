//! The end of a step at the size of preset `full`: 1.64 million parameters, which stay in the L2 as they do in a step.

use gpu_kernels::adamw::{CHUNK, CHUNK_DECAYS, CHUNK_SHADOW, adamw, adamw_shape};
use gpu_kernels::norm::{gradient_norm, gradient_norm_shape, learner_range, n_partial_norms};
use gpu_kernels::spectral::{
    SpectralSizes, spectral_columns, spectral_rows, spectral_scale, spectral_scale_shape, spectral_slabs_shape,
};
use gpu_kernels::vaccine::{snapshot_products, snapshot_products_shape};
use shared_types::{GradientNorm, Precision, SnapshotProducts, SpectralMatrix, UpdateScalars, VaccineScalars};

use crate::Failure;
use crate::report::Report;
use crate::timer::{LANES, Timer};

const N: usize = 25_625 * CHUNK;

/// Gradient norm, sweep, spectral norms.
pub fn update(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let (gradient, params) = (timer.random(N)?, timer.random(N)?);
    let (first, second, target) = (timer.zeroed::<f32>(N)?, timer.zeroed::<f32>(N)?, timer.random(N)?);
    let (shadow, target_shadow) = (timer.zeroed::<u16>(N)?, timer.zeroed::<u16>(N)?);

    // As in the presets: the vaccine on, no pruning.
    let (masks, snapshot, vaccine) = (timer.zeroed::<u32>(0)?, timer.random(N)?, timer.zeroed::<VaccineScalars>(1)?);
    let ranges = [learner_range(0, N, None)];
    let (table, partials) = (timer.upload(&ranges)?, timer.zeroed::<GradientNorm>(n_partial_norms(&ranges))?);
    let times = timer.time(|_| {
        let launch = gradient_norm::launch(gradient.view(), masks.view(), table.view(), partials.view_mut());
        vec![(gradient_norm_shape(&ranges, LANES), launch)]
    })?;
    report.row("gradient_norm/1.64M", 4.0 * N as f64, times);

    let products = timer.zeroed::<SnapshotProducts>(ranges[0].n_partials as usize)?;
    let times = timer.time(|_| {
        let launch = snapshot_products::launch(gradient.view(), snapshot.view(), masks.view(), products.view_mut());
        vec![(snapshot_products_shape(&ranges[0], LANES), launch)]
    })?;
    report.row("snapshot_products/1.64M", 8.0 * N as f64, times);

    let by = UpdateScalars {
        lr: 1e-6,
        gradient_scale: 0.1,
        first_correction: 1.0,
        second_correction: 1.0,
        weight_decay: 1e-4,
        tau: 0.001,
        ..UpdateScalars::default()
    };
    let (scalars, flags) = (timer.upload(&[by])?, timer.zeroed::<u32>(7)?);
    // Parameters, both moments, target and snapshot in and out, gradient in, and two operands: of all of them, or of none.
    for (name, chunk, bytes) in
        [("adamw/1.64M", CHUNK_DECAYS | CHUNK_SHADOW, 48), ("adamw_trunk/1.64M", CHUNK_DECAYS, 44)]
    {
        let chunks = timer.upload(&vec![chunk; N / CHUNK])?;
        let times = timer.time(|_| {
            let launch = adamw::launch(
                gradient.view(),
                chunks.view(),
                scalars.view(),
                vaccine.view(),
                masks.view(),
                snapshot.view_mut(),
                params.view_mut(),
                first.view_mut(),
                second.view_mut(),
                target.view_mut(),
                shadow.view_mut(),
                target_shadow.view_mut(),
                flags.view_mut(),
                Precision::Bf16,
            );
            vec![(adamw_shape(N, LANES), launch)]
        })?;
        report.row(name, (bytes * N) as f64, times);
    }

    spectral(timer, report)
}

/// W_in [512, 200] and four [512, 512], of both networks.
fn spectral(timer: &Timer, report: &mut Report) -> Result<(), Failure> {
    let mut offset = 0;
    let table: Vec<SpectralMatrix> = [200u32, 512, 512, 512, 512]
        .into_iter()
        .enumerate()
        .map(|(k, n_cols)| {
            let matrix = SpectralMatrix { offset, n_rows: 512, n_cols, u_offset: 512 * k as u32 };
            offset += 512 * n_cols;
            matrix
        })
        .collect();
    let (sizes, n) = (SpectralSizes::of(&table, 2), offset as usize);
    let (table, partials) = (timer.upload(&table)?, timer.zeroed::<f32>(sizes.partials_len())?);
    let (online, target, u) = (timer.random(n)?, timer.random(n)?, timer.random(2 * sizes.u_len)?);
    let (products, scales) = (timer.zeroed::<f32>(2 * sizes.u_len)?, timer.zeroed::<f32>(2 * sizes.n_matrices)?);
    let (shadow, target_shadow) = (timer.zeroed::<u16>(n)?, timer.zeroed::<u16>(n)?);
    let times = timer.time(|_| {
        let columns =
            spectral_columns::launch(online.view(), target.view(), table.view(), u.view(), partials.view_mut(), 1);
        let rows =
            spectral_rows::launch(online.view(), target.view(), table.view(), partials.view(), products.view_mut(), 1);
        let scale = spectral_scale::launch(
            online.view(),
            target.view(),
            table.view(),
            products.view(),
            u.view_mut(),
            scales.view_mut(),
            shadow.view_mut(),
            target_shadow.view_mut(),
            3.0,
            1,
            Precision::Bf16,
        );
        vec![
            (spectral_slabs_shape(&sizes, LANES), columns),
            (spectral_slabs_shape(&sizes, LANES), rows),
            (spectral_scale_shape(&sizes, LANES), scale),
        ]
    })?;
    // The weights once in and their operands out: what one pass would move.
    report.row("spectral/10 matrices", 2.0 * 6.0 * n as f64, times);
    Ok(())
}
