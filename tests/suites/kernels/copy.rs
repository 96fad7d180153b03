//! `copy_vectors`.

use gpu_kernels::copy::{copy_vectors, copy_vectors_shape};
use host::device::Device;
use onegraph_tests::lab::{Lab, SIZES, bits};
use onegraph_tests::{Case, Outcome, case};

pub fn cases() -> Vec<Case> {
    vec![case("copy::every_element_arrives_at_every_size", every_element_arrives_at_every_size)]
}

fn every_element_arrives_at_every_size(device: &Device) -> Outcome {
    let lab = Lab::new(device)?;
    for len in SIZES {
        // All bit patterns travel, NaNs with payloads and denormals too.
        let values: Vec<f32> = (0..len as u32).map(|i| f32::from_bits(i.wrapping_mul(0x9E37_79B9))).collect();
        let (source, target) = (lab.upload(&values)?, lab.poisoned(len + 5)?);
        lab.run(copy_vectors_shape(len), copy_vectors::launch(source.view(), target.slice(0..len).view_mut()))?;
        let copied = target.read()?;
        assert_eq!(bits(&copied[..len]), bits(&values), "len = {len}");
        assert!(copied[len..].iter().all(|value| value.is_nan()), "len = {len}: wrote past the end");
    }
    Ok(())
}
