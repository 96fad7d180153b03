//! onegraph's host side.

pub mod data;

#[cfg(test)]
mod tests {
    use cuda_std::launch::{DeviceMemory, DeviceSlice, DeviceSliceMut, MemoryRange};
    use std::sync::Arc;
    #[test]
    fn smoke() {
        let a: Vec<f32> = (0..100).map(|i| i as f32).collect();
        let b = vec![0f32; 100];
        let (pa, pb) = (a.as_ptr() as u64, b.as_ptr() as u64);
        let ma = Arc::new(DeviceMemory::new(pa, 400, None, Box::new(a)));
        let mb = Arc::new(DeviceMemory::new(pb, 400, None, Box::new(b)));
        let l = gpu_kernels::copy::copy_f32::launch(
            DeviceSlice::new(MemoryRange::new(ma, 0..400)),
            DeviceSliceMut::new(MemoryRange::new(mb.clone(), 0..400)),
            2.0,
        );
        cuda_std::cpu::Executor {}.run(cuda_std::shape::LaunchShape::cover(100, 32), &l);
        let out = unsafe { std::slice::from_raw_parts(mb.address() as *const f32, 100) };
        assert_eq!(out[99], 198.0);
    }
}
