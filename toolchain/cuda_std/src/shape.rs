//! The shape of a launch.

/// A count or an index in three dimensions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Dim3 {
    /// First, fastest-running dimension.
    pub x: u32,
    /// Second dimension.
    pub y: u32,
    /// Third dimension.
    pub z: u32,
}

impl Dim3 {
    /// All three dimensions.
    pub const fn new(x: u32, y: u32, z: u32) -> Self {
        Self { x, y, z }
    }

    /// The number of elements.
    pub const fn count(self) -> u64 {
        self.x as u64 * self.y as u64 * self.z as u64
    }
}

impl From<u32> for Dim3 {
    fn from(x: u32) -> Self {
        Self::new(x, 1, 1)
    }
}

impl From<(u32, u32)> for Dim3 {
    fn from((x, y): (u32, u32)) -> Self {
        Self::new(x, y, 1)
    }
}

impl From<(u32, u32, u32)> for Dim3 {
    fn from((x, y, z): (u32, u32, u32)) -> Self {
        Self::new(x, y, z)
    }
}

/// Grid, block and dynamic shared memory of a launch. It belongs to the kernel: a `const fn` beside each kernel gives it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchShape {
    /// Blocks in the grid.
    pub grid: Dim3,
    /// Threads in a block.
    pub block: Dim3,
    /// Dynamic shared memory of a block, bytes.
    pub shared_bytes: u32,
}

impl LaunchShape {
    /// A one-dimensional launch.
    pub const fn linear(n_blocks: u32, n_threads: u32) -> Self {
        Self { grid: Dim3::new(n_blocks, 1, 1), block: Dim3::new(n_threads, 1, 1), shared_bytes: 0 }
    }

    /// A one-dimensional launch of at least `n` threads in blocks of `n_threads`, at least one block.
    pub const fn cover(n: usize, n_threads: u32) -> Self {
        let blocks = n.div_ceil(n_threads as usize);
        assert!(blocks <= i32::MAX as usize, "a grid has at most 2^31 - 1 blocks");
        Self::linear(if blocks == 0 { 1 } else { blocks as u32 }, n_threads)
    }

    /// A launch with all dimensions given.
    pub const fn new(grid: Dim3, block: Dim3) -> Self {
        Self { grid, block, shared_bytes: 0 }
    }

    /// The same with `bytes` of dynamic shared memory a block.
    pub const fn with_shared(mut self, bytes: u32) -> Self {
        self.shared_bytes = bytes;
        self
    }
}
