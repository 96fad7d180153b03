//! One body for each target inside the same function.

/// Evaluates to the first block on the GPU target and to the second on the CPU target.
macro_rules! target {
    (gpu $gpu:block cpu $cpu:block) => {{
        #[cfg(target_os = "cuda")]
        let value = $gpu;
        #[cfg(not(target_os = "cuda"))]
        let value = $cpu;
        #[allow(clippy::let_unit_value, clippy::let_and_return, reason = "an attribute needs a statement to stand at")]
        value
    }};
}

pub(crate) use target;
