//! The attention over bars: tokens are bars, a head is 16 columns.

use cuda_std::prelude::*;

use super::axis::{Axis, Place, Units, inverse_rms, put_fours, put_rows};
use super::parameters::{Block, Parameters};
use super::{N_HEADS, WIDTH};
use crate::floats::Vector;
use crate::four::Four;
use crate::tile_product::{EACH_ROWS, Matrix, Rows, blends, four_dots, outer_sums, tn, wide};

/// Columns of a head.
const HEAD: usize = WIDTH / N_HEADS;

pub(super) struct Bars;

/// A unit's element 0 in the arrays of a tile.
#[inline(always)]
fn start(unit: usize, window: usize) -> usize {
    unit / N_HEADS * window * WIDTH + unit % N_HEADS * HEAD
}

/// A unit's rows of an array.
#[inline(always)]
fn of_unit(from: &SharedSlice<f32>, unit: usize, window: usize) -> Rows {
    Rows { from: *from, first: start(unit, window), stride: WIDTH }
}

/// A unit's scores `[keys, queries]`.
#[inline(always)]
fn scores_of(scores: &SharedSlice<f32>, slot: usize, window: usize) -> Rows {
    Rows { from: *scores, first: slot * window * window, stride: window }
}

impl Bars {
    /// RMSNorm of every bar; `put` may write x.
    #[inline(always)]
    pub fn norm<V: Vector>(p: &Parameters<'_>, x: &SharedSlice<f32>, place: Place<V>, put: impl Fn(usize, Four)) {
        let (x, gain) = (Rows::new(*x, WIDTH), Block::bars().gain());
        for bar in place.team.each(place.tile.n_bars()) {
            let scale = Four::splat(inverse_rms(squares(&x, bar), WIDTH));
            for column in (0..WIDTH).step_by(4) {
                put(bar * WIDTH + column, x.four(bar, column) * scale * p.four(gain, column));
            }
        }
    }
}

#[inline(always)]
fn squares(x: &Rows, bar: usize) -> f32 {
    let mut sum = Four::ZERO;
    for column in (0..WIDTH).step_by(4) {
        let x = x.four(bar, column);
        sum = sum.add_product(x, x);
    }
    sum.sum()
}

impl Axis for Bars {
    #[inline(always)]
    fn block(_: usize) -> Block {
        Block::bars()
    }

    #[inline(always)]
    fn n_tokens(window: usize) -> usize {
        window
    }

    #[inline(always)]
    fn project<V: Vector>(x: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four)) {
        const ACROSS: usize = WIDTH / 4;
        for piece in place.team.each(place.tile.n_bars() / EACH_ROWS * ACROSS) {
            let (bar, column) = (piece / ACROSS * EACH_ROWS, piece % ACROSS * 4);
            let sums = four_dots::<V, WIDTH>(&Rows::new(*x, WIDTH), bar, w, column);
            put_fours(sums, bar * WIDTH + column, WIDTH, &put);
        }
    }

    #[inline(always)]
    fn project_back<V: Vector>(dy: &SharedSlice<f32>, w: &Matrix<'_>, place: Place<V>, put: impl Fn(usize, Four)) {
        let across = WIDTH / wide::<V>();
        let dy = Rows::new(*dy, WIDTH);
        for piece in place.team.each(place.tile.n_bars() / EACH_ROWS * across) {
            let (bar, column) = (piece / across * EACH_ROWS, piece % across * wide::<V>());
            let sums = blends::<V, EACH_ROWS>(&dy, bar, w, column, WIDTH);
            put_rows(sums, bar * WIDTH + column, &put);
        }
    }

    #[inline(always)]
    fn add_weight_gradient<V: Vector>(
        dy: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        to: &GlobalSliceMut<f32>,
        place: Place<V>,
    ) {
        let pieces = place.team.each(WIDTH / EACH_ROWS * (WIDTH / wide::<V>()));
        tn::<V>(Rows::new(*dy, WIDTH), Rows::new(*x, WIDTH), place.tile.n_bars(), WIDTH, to, pieces);
    }

    #[inline(always)]
    fn compare<V: Vector>(
        units: Units,
        x: &SharedSlice<f32>,
        y: &SharedSlice<f32>,
        scores: &SharedSlice<f32>,
        place: Place<V>,
    ) {
        let window = place.tile.window;
        let across = window / 4;
        for item in place.team.each(units.n * across * across) {
            let (slot, piece) = (item / (across * across), item % (across * across));
            let (row, column) = (piece / across * 4, piece % across * 4);
            let (x, y) = (of_unit(x, units.first + slot, window), of_unit(y, units.first + slot, window));
            let sums = four_dots::<V, HEAD>(&x, row, &y, column);
            let first = slot * window * window + row * window + column;
            put_fours(sums, first, window, &|at, sum| scores.store(at, sum.lanes()));
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
        let window = place.tile.window;
        each_piece(
            units,
            place,
            #[inline(always)]
            |slot, unit, token, column| {
                let (scores, x) = (scores_of(scores, slot, window), of_unit(x, unit, window));
                let sums = outer_sums::<V>(&scores, token, &x, column, window);
                put_rows(sums, start(unit, window) + token * WIDTH + column, &put);
            },
        );
    }

    #[inline(always)]
    fn sum_queries<V: Vector>(
        units: Units,
        scores: &SharedSlice<f32>,
        x: &SharedSlice<f32>,
        place: Place<V>,
        put: impl Fn(usize, Four),
    ) {
        let window = place.tile.window;
        each_piece(
            units,
            place,
            #[inline(always)]
            |slot, unit, token, column| {
                let (scores, x) = (scores_of(scores, slot, window), of_unit(x, unit, window));
                let sums = blends::<V, EACH_ROWS>(&scores, token, &x, column, window);
                put_rows(sums, start(unit, window) + token * WIDTH + column, &put);
            },
        );
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
        let (x, gain, n_bars) = (Rows::new(*x, WIDTH), Block::bars().gain(), place.tile.n_bars());
        for bar in place.team.each(n_bars) {
            scale.set(bar, inverse_rms(squares(&x, bar), WIDTH));
        }
        // A bar's scale is made by one thread.
        thread::sync_threads();
        for column in place.team.each(WIDTH / 4).map(|piece| 4 * piece) {
            let mut sum = Four::new(part.load(gain + column));
            for bar in 0..n_bars {
                let normed = x.four(bar, column) * Four::splat(scale.get(bar));
                sum = sum.add_product(dy(bar * WIDTH + column), normed);
            }
            part.store(gain + column, sum.lanes());
        }
        // The gains' sums have read what is overwritten now.
        thread::sync_threads();
        for bar in place.team.each(n_bars) {
            let scale = scale.get(bar);
            let scaled = |column: usize| dy(bar * WIDTH + column) * p.four(gain, column);
            let mut inner = Four::ZERO;
            for column in (0..WIDTH).step_by(4) {
                inner = inner.add_product(scaled(column), x.four(bar, column));
            }
            let along = Four::splat(scale * scale * scale * inner.sum() / WIDTH as f32);
            for column in (0..WIDTH).step_by(4) {
                let dx = scaled(column) * Four::splat(scale) - x.four(bar, column) * along;
                put(bar * WIDTH + column, dx);
            }
        }
        // The gradient by the norm's input is complete.
        thread::sync_threads();
    }
}

/// Runs over pieces of four tokens and two vectors of a head's columns: slot, unit, first token, first column.
#[inline(always)]
fn each_piece<V: Vector>(units: Units, place: Place<V>, run: impl Fn(usize, usize, usize, usize)) {
    let across = HEAD / wide::<V>();
    let of_unit = place.tile.window / EACH_ROWS * across;
    for item in place.team.each(units.n * of_unit) {
        let (slot, piece) = (item / of_unit, item % of_unit);
        run(slot, units.first + slot, piece / across * EACH_ROWS, piece % across * wide::<V>());
    }
}
