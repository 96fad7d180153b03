//! FiLM's vector and the gradient of its weights.

use gpu_kernels::columns::n_column_partials;
use gpu_kernels::trunk::film::{
    N_FILM_INPUTS, film_backward, film_backward_shape, film_input, film_vector, film_vector_shape,
};
use host::device::Device;
use onegraph_tests::lab::{Lab, Numbers, Tolerance};
use onegraph_tests::{Case, Outcome, case, host_case};
use reference::matrix::dot;
use reference::trunk::film_inputs;

use super::support::{UNIT, WIDTHS, normals, wide, within};

pub fn cases() -> Vec<Case> {
    vec![
        host_case("film::inputs_of_every_size", inputs_of_every_size),
        case("film::the_vector_is_the_weights_times_the_inputs", the_vector_is_the_weights_times_the_inputs),
        case("film::off_the_vector_is_zero", off_the_vector_is_zero),
        case("film::the_gradient_is_an_outer_product", the_gradient_is_an_outer_product),
    ]
}

/// A bus whose entries are of all sizes; losses are not negative.
fn bus(numbers: &mut Numbers) -> Vec<f32> {
    (0..64)
        .map(|entry| {
            let size = numbers.heavy();
            if entry < 2 || numbers.below(2) == 0 { size } else { -size }
        })
        .collect()
}

/// tanh and ln(1 + x) have 8 units each, and tanh' x / tanh is at most 1.
fn inputs_of_every_size() -> Outcome {
    let mut numbers = Numbers::new(1);
    for round in 0..200 {
        let bus = bus(&mut numbers);
        let got: Vec<f32> = (0..N_FILM_INPUTS).map(|entry| film_input(bus[entry], entry)).collect();
        let want = film_inputs(&wide(&bus));
        Tolerance { absolute: 0.0, relative: 16.0 * UNIT }.check(&format!("bus {round}"), &got, &want)?;
    }
    assert_eq!(film_input(0.0, 0), 0.0);
    Ok(())
}

/// 12 products of inputs with 16 units, added one after the other: (16 + 13) units of the sum of magnitudes.
fn the_vector_is_the_weights_times_the_inputs(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for hidden in WIDTHS {
        let mut numbers = Numbers::new(hidden as u64);
        let (weight, bus) = (normals(&mut numbers, 2 * hidden * 12, 1.0), bus(&mut numbers));
        let (film, inputs) = (lab.poisoned(2 * hidden)?, lab.poisoned(12)?);
        let (weights, buses) = (lab.upload(&weight)?, lab.upload(&bus)?);
        let launch = film_vector::launch(weights.view(), buses.view(), film.view_mut(), inputs.view_mut(), 1);
        lab.run(film_vector_shape(hidden), launch)?;
        let x = film_inputs(&wide(&bus));
        Tolerance { absolute: 0.0, relative: 16.0 * UNIT }.check("inputs", &inputs.read()?, &x)?;
        let rows: Vec<Vec<f64>> = weight.chunks_exact(12).map(wide).collect();
        let want: Vec<f64> = rows.iter().map(|row| dot(row, &x)).collect();
        let bounds: Vec<f64> =
            rows.iter().map(|row| 29.0 * UNIT * row.iter().zip(&x).map(|(w, x)| (w * x).abs()).sum::<f64>()).collect();
        within(&format!("film of {hidden}"), &film.read()?, &want, &bounds)?;
    }
    Ok(())
}

fn off_the_vector_is_zero(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    // Off, neither weights nor bus count, whatever they hold.
    let (weights, bus) = (lab.poisoned(2 * 32 * 12)?, lab.poisoned(64)?);
    let (film, inputs) = (lab.poisoned(64)?, lab.poisoned(12)?);
    let launch = film_vector::launch(weights.view(), bus.view(), film.view_mut(), inputs.view_mut(), 0);
    lab.run(film_vector_shape(32), launch)?;
    assert_eq!((film.read()?, inputs.read()?), (vec![0.0; 64], vec![0.0; 12]));
    Ok(())
}

/// P partial sums added one after the other, and one product.
fn the_gradient_is_an_outer_product(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for (hidden, n_rows) in [(8, 1), (32, 33), (64, 257), (512, 2100)] {
        let n_partials = n_column_partials(n_rows);
        let (stride, first) = (4 * hidden, 2 * hidden);
        let mut numbers = Numbers::new(n_rows as u64);
        let (partials, inputs) = (normals(&mut numbers, n_partials * stride, 1.0), normals(&mut numbers, 12, 0.5));
        let dweight = lab.poisoned(2 * hidden * 12)?;
        let (all, x) = (lab.upload(&partials)?, lab.upload(&inputs)?);
        let slice = all.slice(first..partials.len());
        let launch = film_backward::launch(slice.view(), x.view(), dweight.view_mut(), stride as u32);
        lab.run(film_backward_shape(hidden), launch)?;
        let (mut want, mut bounds) = (vec![], vec![]);
        for column in first..first + 2 * hidden {
            let terms: Vec<f64> = (0..n_partials).map(|p| f64::from(partials[p * stride + column])).collect();
            for &x in &inputs {
                let x = f64::from(x);
                want.push(terms.iter().sum::<f64>() * x);
                bounds.push((n_partials + 1) as f64 * UNIT * terms.iter().map(|term| (term * x).abs()).sum::<f64>());
            }
        }
        within(&format!("dW_isv of {hidden}"), &dweight.read()?, &want, &bounds)?;
    }
    Ok(())
}
