//! `publish`, and the host's side of its pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use gpu_kernels::counters::{increment_step_counters, increment_step_counters_shape};
use gpu_kernels::publish::{publish, publish_shape};
use host::device::{Buffer, Device};
use host::error::DeviceError;
use host::step::{ControlPage, Pages, Published, ReadbackReader};
use onegraph_tests::lab::{Lab, bits};
use onegraph_tests::{Case, Failed, Outcome, case, ensure};
use shared_types::learner::N_LEARNERS;
use shared_types::{Counters, LossTotals, Readback, Schedule, StepScalars, UpdateScalars, due, isv};

pub fn cases() -> Vec<Case> {
    vec![
        case("publish::the_host_reads_what_the_step_left", the_host_reads_what_the_step_left),
        case("publish::statistics_change_when_they_are_due", statistics_change_when_they_are_due),
        case("publish::no_read_mixes_two_steps", no_read_mixes_two_steps),
        case("publish::no_read_mixes_two_steps_of_a_fast_writer", no_read_mixes_two_steps_of_a_fast_writer),
        case("publish::a_page_left_half_written_is_not_read", a_page_left_half_written_is_not_read),
        case("publish::the_step_reads_what_the_host_sets", the_step_reads_what_the_host_sets),
    ]
}

const STATS_EVERY: u32 = 50;

/// What `publish` reads on the device, and the pages.
struct World<'a> {
    lab: &'a Lab<'a>,
    totals: Buffer<LossTotals>,
    scalars: Buffer<UpdateScalars>,
    counters: Buffer<Counters>,
    bus: Buffer<f32>,
    flags: Buffer<u32>,
    readback: Buffer<Readback>,
    pages: Arc<Pages>,
}

impl<'a> World<'a> {
    fn new(lab: &'a Lab<'a>, device: &Device) -> Result<Self, DeviceError> {
        Ok(Self {
            lab,
            totals: lab.zeroed(1)?,
            scalars: lab.zeroed(N_LEARNERS)?,
            counters: lab.zeroed(1)?,
            bus: lab.zeroed(isv::LEN)?,
            flags: lab.zeroed(7)?,
            readback: lab.zeroed(1)?,
            pages: Pages::new(device)?,
        })
    }

    fn publish(&self, stats_every: u32) -> Result<(), DeviceError> {
        // SAFETY: one element each; the host writes nothing but fields of `control` that are its inputs, and launches of this
        // stream run one after the other.
        let launch = unsafe {
            publish::launch(
                self.totals.view(),
                self.scalars.view(),
                self.counters.view(),
                self.bus.view(),
                self.flags.view_mut(),
                self.readback.view_mut(),
                self.pages.control.ptr_mut(),
                self.pages.counters.ptr_mut(),
                self.pages.isv.ptr_mut(),
                self.pages.readback.ptr_mut(),
                stats_every,
            )
        };
        self.lab.run(publish_shape(), launch)
    }

    /// Everything that step `n` would leave, each number `n`.
    fn fill(&self, n: i32) -> Result<(), DeviceError> {
        let x = n as f32;
        self.totals.write(&[bytemuck::cast([x; 16])])?;
        self.scalars.write(&[UpdateScalars { squared_norm: x, ..UpdateScalars::default() }; N_LEARNERS])?;
        self.counters.write(&[bytemuck::cast::<_, Counters>([n; 8])])?;
        self.bus.write(&[x; isv::LEN])?;
        self.flags.write(&[n as u32; 7])?;
        self.readback.write(&[Readback { causal_mean_sens: x, ..Readback::default() }])
    }
}

/// Whether every number is that of one step.
fn whole(published: &Published) -> Result<u32, Failed> {
    let n = published.step;
    let counters: [i32; 8] = bytemuck::cast(published.counters);
    let readback: [u32; 16] = bytemuck::cast(published.readback);
    let x = n as f32;
    ensure!(counters == [n as i32; 8], "step {n} with the counters {counters:?}");
    ensure!(published.isv.entries == [x; isv::LEN], "step {n} with the vector {:?}", published.isv.entries);
    ensure!(readback[..9].iter().all(|word| *word == x.to_bits()), "step {n} with {:?}", published.readback);
    ensure!(readback[9..].iter().all(|word| *word == n), "step {n} with {:?}", published.readback);
    Ok(n)
}

fn the_host_reads_what_the_step_left(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab, device)?;
    let reader = ReadbackReader::new(world.pages.clone());
    assert_eq!(reader.read(), None, "no step has finished");
    let totals: [f32; 16] = std::array::from_fn(|i| 1.0 + i as f32);
    let totals: LossTotals = bytemuck::cast(totals);
    // Bits travel as they are: NaNs too.
    let bus: Vec<f32> = (0..isv::LEN as u32).map(|i| f32::from_bits(0x7fc0_0001 + 1024 * i)).collect();
    let counters: Counters = bytemuck::cast([1, 2, 3, 4, 5, 6, 7, 100]);
    world.totals.write(&[totals])?;
    world.scalars.write(&[UpdateScalars { squared_norm: 9.0, ..UpdateScalars::default() }; N_LEARNERS])?;
    world.counters.write(&[counters])?;
    world.bus.write(&bus)?;
    world.flags.write(&[1, 2, 3, 4, 5, 6, 7])?;
    world.readback.write(&[Readback { causal_mean_sens: 0.25, ..Readback::default() }])?;
    world.publish(STATS_EVERY)?;
    let want = Readback {
        total_loss: totals.objective,
        mse_loss: totals.mse,
        grad_norm_sq: 9.0,
        q_mean: totals.q_mean,
        q_min: totals.q_min,
        q_max: totals.q_max,
        q_variance: totals.q_variance,
        avg_max_q: totals.avg_max_q,
        causal_mean_sens: 0.25,
        nan_flags: [1, 2, 3, 4, 5, 6, 7],
    };
    // Read on the device's side first: a GPU has run when this returns.
    assert_eq!(world.readback.read()?, [want]);
    let got = reader.read().expect("a step has finished");
    assert_eq!((got.step, got.counters, got.readback), (100, counters, want));
    assert_eq!(bits(&got.isv.entries), bits(&bus));
    assert_eq!(world.flags.read()?, [0; 7], "the next step begins without flags");
    Ok(())
}

/// And never where nothing takes them.
fn statistics_change_when_they_are_due(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for stats_every in [STATS_EVERY, 0] {
        statistics_change(&lab, device, stats_every)?;
    }
    Ok(())
}

fn statistics_change(lab: &Lab<'_>, device: &Device, stats_every: u32) -> Outcome {
    let world = World::new(lab, device)?;
    let reader = ReadbackReader::new(world.pages.clone());
    let mut since = 0.0;
    for step in 1..=101 {
        let x = step as f32;
        world.totals.write(&[bytemuck::cast([x; 16])])?;
        world.counters.write(&[Counters { rng_step: step, ..Counters::default() }])?;
        world.publish(stats_every)?;
        if stats_every != 0 && step % 50 == 0 {
            since = x;
        }
        world.flags.read()?;
        let got = reader.read().expect("a step has finished").readback;
        assert_eq!([got.total_loss, got.mse_loss], [x; 2]);
        assert_eq!([got.q_mean, got.q_min, got.q_max, got.q_variance, got.avg_max_q], [since; 5], "step {step}");
    }
    Ok(())
}

/// Reads until the writer is done, counting different steps in `n_seen`.
fn read_beside(reader: &ReadbackReader, done: &AtomicBool, n_seen: &AtomicUsize) -> Result<(), Failed> {
    let mut last = 0;
    while !done.load(Ordering::Acquire) {
        if let Some(published) = reader.read() {
            let n = whole(&published)?;
            ensure!(n >= last, "step {n} after step {last}");
            n_seen.fetch_add(usize::from(n != last), Ordering::Relaxed);
            last = n;
        }
    }
    Ok(())
}

/// Steps run until the reader has seen enough of them; it sees all but a few on an idle machine, and few on a busy one.
fn no_read_mixes_two_steps(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let world = World::new(&lab, device)?;
    let reader = ReadbackReader::new(world.pages.clone());
    let (done, n_seen) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut n_steps = 0;
    std::thread::scope(|scope| {
        let reading = scope.spawn(|| read_beside(&reader, &done, &n_seen));
        let mut written = Ok(());
        while written.is_ok() && !reading.is_finished() && n_seen.load(Ordering::Relaxed) < 50 {
            n_steps += 1;
            written = world.fill(n_steps).and_then(|()| world.publish(1));
        }
        let finished = written.and_then(|()| world.flags.read());
        done.store(true, Ordering::Release);
        finished?;
        reading.join().expect("the reader ended")
    })?;
    assert_eq!(whole(&reader.read().expect("a step has finished"))?, n_steps as u32);
    println!("{} of {n_steps} steps seen", n_seen.into_inner());
    Ok(())
}

/// The protocol of the kernel, written by a thread as fast as it can: reads that mix steps would be frequent, as copies that ignore
/// the stamps show.
fn no_read_mixes_two_steps_of_a_fast_writer(device: &Device) -> Outcome {
    let pages = Pages::new(device)?;
    let (reader, done) = (ReadbackReader::new(pages.clone()), AtomicBool::new(false));
    let (n_seen, n_mixed) = std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0u32;
            while !done.load(Ordering::Relaxed) {
                n += 1;
                write_as_the_kernel(&pages, n);
                // Were it always between its stamps, no copy would come out whole.
                (0..200).for_each(|_| std::hint::spin_loop());
            }
        });
        let (mut n_seen, mut n_mixed, mut last) = (0, 0, 0);
        let mut result = Ok(());
        while result.is_ok() && (n_seen < 1000 || n_mixed < 10) {
            if let Some(published) = reader.read() {
                n_seen += usize::from(published.step != last);
                last = published.step;
                result = whole(&published).map(|_| ());
            }
            let first = pages.counters.load_word(0, 0, Ordering::Relaxed);
            n_mixed += usize::from(pages.readback.load_word(0, 15, Ordering::Relaxed) != first);
        }
        done.store(true, Ordering::Relaxed);
        result.map(|()| (n_seen, n_mixed))
    })?;
    println!("{n_seen} steps seen whole; {n_mixed} copies without the stamps mixed two");
    Ok(())
}

fn write_as_the_kernel(pages: &Pages, n: u32) {
    let (x, relaxed) = ((n as f32).to_bits(), Ordering::Relaxed);
    pages.control.store_word(0, 4, n, relaxed);
    std::sync::atomic::fence(Ordering::Release);
    (0..8).for_each(|word| pages.counters.store_word(0, word, n, relaxed));
    (0..isv::LEN).for_each(|word| pages.isv.store_word(0, word, x, relaxed));
    (0..16).for_each(|word| pages.readback.store_word(0, word, if word < 9 { x } else { n }, relaxed));
    pages.control.store_word(0, 5, n, Ordering::Release);
}

fn a_page_left_half_written_is_not_read(device: &Device) -> Outcome {
    let pages = Pages::new(device)?;
    let reader = ReadbackReader::new(pages.clone());
    write_as_the_kernel(&pages, 7);
    assert_eq!(reader.read().map(|published| published.step), Some(7));
    // A device that stopped between the stamps: a reader does not wait for it for ever.
    pages.control.store_word(0, 4, 8, Ordering::Relaxed);
    assert_eq!(reader.read(), None);
    Ok(())
}

fn the_step_reads_what_the_host_sets(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    let pages = Pages::new(device)?;
    let control = ControlPage::new(pages.clone());
    let (counters, bus) = (lab.zeroed::<Counters>(1)?, lab.zeroed::<f32>(isv::LEN)?);
    let (scalars, due) = (lab.zeroed::<StepScalars>(1)?, lab.zeroed(due::N)?);
    let schedule = Schedule {
        tau_init: 0.05,
        tau_final: 0.01,
        anneal_steps: 100,
        total_steps: 1000,
        seed: [1, 2],
        depth_keep_last: 0.9,
        every: [0; due::N],
    };
    for (lr, clip, beta0) in [(1e-3, 10.0, 1.0), (2e-4, 5.0, 1.0)] {
        control.set_lr(lr);
        control.set_clip(clip);
        control.set_beta0(beta0);
        // SAFETY: `control` holds one `Control`, which the host writes by whole fields.
        let launch = unsafe {
            increment_step_counters::launch(
                pages.control.ptr(),
                counters.view_mut(),
                scalars.view_mut(),
                bus.view_mut(),
                due.view_mut(),
                schedule,
            )
        };
        lab.run(increment_step_counters_shape(), launch)?;
        let scalars = scalars.read()?[0];
        assert_eq!((scalars.lr, scalars.clip, scalars.beta), (lr, clip, 1.0));
    }
    Ok(())
}
