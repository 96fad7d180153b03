//! The attention over channels: tokens are columns, a head is a quarter of a row's bars.

use cuda_std::prelude::*;
use cuda_std::view::PanelMut;

use super::axis::{Axis, Place, TILE, Units, inverse_rms, put_rows};
use super::parameters::{Block, Parameters};
use super::{N_HEADS, WIDTH};
use crate::floats::Vector;
use crate::four::Four;
use crate::tile_product::{EACH_ROWS, Matrix, NT_COLUMNS, Rows, blends, dots, outer_sums, wide};

/// Scores `[64, 64]` of a unit; one unit is gone through at a time.
const _: () = assert!(TILE == WIDTH * WIDTH);

pub(super) struct Channels;

/// A row's bars of an array.
#[inline(always)]
fn of_row(from: &SharedSlice<f32>, row: usize, window: usize) -> Rows {
    Rows { from: *from, first: row * window * WIDTH, stride: WIDTH }
}

/// A unit's bars of an array: units follow each other.
#[inline(always)]
fn of_unit(from: &SharedSlice<f32>, unit: usize, window: usize) -> Rows {
    Rows { from: *from, first: unit * (window / N_HEADS) * WIDTH, stride: WIDTH }
}

impl Channels {
    /// The mean over bars of RMSNorm's output, for every channel of every row: `put` gets the row, the first of four channels, and
    /// their means.
    #[inline(always)]
    pub fn mean_of_norm<V: Vector>(
        p: &Parameters<'_>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, usize, Four),
    ) {
        let window = place.tile.window;
        let gain = Block::channels(window).gain();
        each_channels(
            place,
            #[inline(always)]
            |row, channel| {
                let x = of_row(x, row, window);
                let mut sum = Four::ZERO;
                for bar in 0..window {
                    sum = sum.add_product(x.four(bar, channel), Four::splat(p.flat.get(gain + bar)));
                }
                put(row, channel, sum * scales(&x, channel, window) * Four::splat(1.0 / window as f32));
            },
        );
    }
}

/// Runs over four channels of a row at a time.
#[inline(always)]
fn each_channels<V: Vector>(place: Place<V>, run: impl Fn(usize, usize)) {
    const ACROSS: usize = WIDTH / 4;
    for piece in place.team.each(place.tile.n_rows * ACROSS) {
        run(piece / ACROSS, piece % ACROSS * 4);
    }
}

/// 1 / the root mean square of four channels.
#[inline(always)]
fn scales(x: &Rows, channel: usize, window: usize) -> Four {
    let mut squares = Four::ZERO;
    for bar in 0..window {
        let x = x.four(bar, channel);
        squares = squares.add_product(x, x);
    }
    let [a, b, c, d] = squares.lanes();
    let scale = |squares: f32| inverse_rms(squares, window);
    Four::new([scale(a), scale(b), scale(c), scale(d)])
}

impl Axis for Channels {
    #[inline(always)]
    fn block(window: usize) -> Block {
        Block::channels(window)
    }

    #[inline(always)]
    fn n_tokens(_: usize) -> usize {
        WIDTH
    }

    #[inline(always)]
    fn project<V: Vector>(x: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four)) {
        let window = place.tile.window;
        each_piece(
            place,
            #[inline(always)]
            |row, bar, channel| {
                let x = of_row(x, row, window);
                let sums = blends::<V, EACH_ROWS>(w, bar, &x, channel, window);
                put_rows(sums, x.first + bar * WIDTH + channel, &put);
            },
        );
    }

    #[inline(always)]
    fn project_back<V: Vector>(dy: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four)) {
        let window = place.tile.window;
        each_piece(
            place,
            #[inline(always)]
            |row, bar, channel| {
                let dy = of_row(dy, row, window);
                let sums = outer_sums::<V>(w, bar, &dy, channel, window);
                put_rows(sums, dy.first + bar * WIDTH + channel, &put);
            },
        );
    }

    #[inline(always)]
    fn add_weight_gradient<V: Vector>(
        dy: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        to: &GlobalSliceMut<f32>,
        place: Place<V>,
    ) {
        let window = place.tile.window;
        let across = window / NT_COLUMNS;
        for piece in place.team.each(window / EACH_ROWS * across) {
            let (output, input) = (piece / across * EACH_ROWS, piece % across * NT_COLUMNS);
            let mut sums = [[0.0; NT_COLUMNS]; EACH_ROWS];
            for row in 0..place.tile.n_rows {
                let (dy, x) = (of_row(dy, row, window), of_row(x, row, window));
                let of_row = dots::<WIDTH>(&dy, output, &x, [input, input + 1]);
                for (sums, of_row) in sums.iter_mut().zip(&of_row) {
                    *sums = [sums[0] + of_row[0], sums[1] + of_row[1]];
                }
            }
            for (i, [first, second]) in sums.iter().enumerate() {
                let at = (output + i) * window + input;
                let [old_first, old_second] = to.load(at);
                to.store(at, [old_first + first, old_second + second]);
            }
        }
    }

    #[inline(always)]
    fn compare<V: Vector>(
        units: Units,
        x: &SharedSlice<f32>,
        y: &SharedSlice<f32>,
        scores: &SharedSlice<f32>,
        place: Place<V>,
    ) {
        let (window, across) = (place.tile.window, WIDTH / wide::<V>());
        let (x, y) = (of_unit(x, units.first, window), of_unit(y, units.first, window));
        for piece in place.team.each(WIDTH / EACH_ROWS * across) {
            let (row, column) = (piece / across * EACH_ROWS, piece % across * wide::<V>());
            let [a, b, c, d] = outer_sums::<V>(&x, row, &y, column, window / N_HEADS);
            let scores = scores.panel_mut::<4>(row * WIDTH + column, WIDTH, EACH_ROWS, wide::<V>());
            // SAFETY: four rows of two vectors, of the block's shared memory.
            unsafe {
                two_to_panel(a, &scores, 0);
                two_to_panel(b, &scores, 1);
                two_to_panel(c, &scores, 2);
                two_to_panel(d, &scores, 3);
            }
        }
    }

    #[inline(always)]
    fn sum_keys<V: Vector>(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    ) {
        let width = place.tile.window / N_HEADS;
        if width.is_multiple_of(4) {
            sum_keys_of::<V, 4>(units, scores, x, place, put);
        } else if width.is_multiple_of(2) {
            sum_keys_of::<V, 2>(units, scores, x, place, put);
        } else {
            sum_keys_of::<V, 1>(units, scores, x, place, put);
        }
    }

    #[inline(always)]
    fn sum_queries<V: Vector>(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    ) {
        let width = place.tile.window / N_HEADS;
        let (x, scores) = (of_unit(x, units.first, place.tile.window), Rows::new(*scores, WIDTH));
        let across = width.div_ceil(NT_COLUMNS);
        for piece in place.team.each(WIDTH / EACH_ROWS * across) {
            let (token, bar) = (piece / across * EACH_ROWS, piece % across * NT_COLUMNS);
            // Of a head with an odd number of bars the last is made twice and stored once.
            let sums = dots::<WIDTH>(&scores, token, &x, [bar, (bar + 1).min(width - 1)]);
            let sum_of = |j: usize| Four::new([sums[0][j], sums[1][j], sums[2][j], sums[3][j]]);
            put(x.first + bar * WIDTH + token, sum_of(0));
            if bar + 1 < width {
                put(x.first + (bar + 1) * WIDTH + token, sum_of(1));
            }
        }
    }

    #[inline(always)]
    fn norm_backward<V: Vector>(
        p: &Parameters<'_>,
        x: &SharedSlice<f32>,
        dy: impl Fn(usize) -> Four,
        scale: &SharedSlice<f32>,
        part: &GlobalSliceMut<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    ) {
        let (window, n_rows) = (place.tile.window, place.tile.n_rows);
        let gain = Block::channels(window).gain();
        each_channels(
            place,
            #[inline(always)]
            |row, channel| {
                scale.store(row * WIDTH + channel, scales(&of_row(x, row, window), channel, window).lanes());
            },
        );
        // Four channels' scales are made by one thread.
        thread::sync_threads();
        for bar in place.team.each(window) {
            let mut sum = Four::ZERO;
            for row in 0..n_rows {
                let x = of_row(x, row, window);
                for channel in (0..WIDTH).step_by(4) {
                    let normed = x.four(bar, channel) * Four::new(scale.load(row * WIDTH + channel));
                    sum = sum.add_product(dy(x.first + bar * WIDTH + channel), normed);
                }
            }
            part.set(gain + bar, part.get(gain + bar) + sum.sum());
        }
        // The gains' sums have read what is overwritten now.
        thread::sync_threads();
        each_channels(
            place,
            #[inline(always)]
            |row, channel| {
                let x = of_row(x, row, window);
                let scale = Four::new(scale.load(row * WIDTH + channel));
                let at = |bar: usize| x.first + bar * WIDTH + channel;
                let scaled = |bar: usize| dy(at(bar)) * Four::splat(p.flat.get(gain + bar));
                let mut inner = Four::ZERO;
                for bar in 0..window {
                    inner = inner.add_product(scaled(bar), x.four(bar, channel));
                }
                let along = scale * scale * scale * inner * Four::splat(1.0 / window as f32);
                for bar in 0..window {
                    put(at(bar), scaled(bar) * scale - x.four(bar, channel) * along);
                }
            },
        );
        // The gradient by the norm's input is complete.
        thread::sync_threads();
    }
}

/// Stores two vectors as a panel's row.
///
/// # Safety
/// The row is the panel's, whose width they have; the memory of its view is still there.
#[inline(always)]
unsafe fn two_to_panel<V: Vector>([low, high]: [V; 2], panel: &PanelMut<f32>, row: usize) {
    // SAFETY: the caller's promise.
    unsafe {
        low.to_panel(panel, row, 0);
        high.to_panel(panel, row, V::N);
    }
}

/// [`Channels::sum_keys`] with M of a head's bars at a time.
#[inline(always)]
fn sum_keys_of<V: Vector, const M: usize>(
    units: Units,
    scores: &SharedSlice<f32>,
    x: &SharedSlice<f32>,
    place: Place<V>,
    put: impl Fn(usize, Four),
) {
    let (window, across) = (place.tile.window, WIDTH / wide::<V>());
    let (x, scores) = (of_unit(x, units.first, window), Rows::new(*scores, WIDTH));
    for piece in place.team.each(window / N_HEADS / M * across) {
        let (bar, token) = (piece / across * M, piece % across * wide::<V>());
        let sums = blends::<V, M>(&x, bar, &scores, token, WIDTH);
        put_rows(sums, x.first + bar * WIDTH + token, &put);
    }
}

/// Runs over pieces of four of a row's bars and two vectors of channels: row, first bar, first channel.
#[inline(always)]
fn each_piece<V: Vector>(place: Place<V>, run: impl Fn(usize, usize, usize)) {
    let across = WIDTH / wide::<V>();
    let of_row = place.tile.window / EACH_ROWS * across;
    for item in place.team.each(place.tile.n_rows * of_row) {
        let (row, piece) = (item / of_row, item % of_row);
        run(row, piece / across * EACH_ROWS, piece % across * wide::<V>());
    }
}
