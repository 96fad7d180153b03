//! The GPU generations that a kernel crate can be compiled for.

use std::fmt;

/// A GPU architecture, by rust-cuda's names: `Compute80` is `sm_80`.
///
/// PTX for an architecture without a letter runs on that chip and every later one (the driver compiles it there);
/// PTX for one with an `a` runs on that chip alone and may use its own instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[allow(missing_docs, reason = "each name says its number, and the type's own text says what that means")]
pub enum NvvmArch {
    Compute50,
    Compute52,
    Compute53,
    Compute60,
    Compute61,
    Compute62,
    Compute70,
    Compute72,
    Compute75,
    #[default]
    Compute80,
    Compute86,
    Compute87,
    Compute89,
    Compute90,
    Compute90a,
    Compute100,
    Compute100a,
    Compute120,
    Compute120a,
}

impl NvvmArch {
    /// rustc's name of the processor, which is `ptxas`'s too: `sm_80`.
    pub fn target_cpu(self) -> &'static str {
        self.row().0
    }

    /// The oldest PTX version (times ten) that knows this architecture and `.sync` warp operations, so that the
    /// image loads on the oldest driver that it can. `sm_90a` asks for 8.3, which the bulk copies and `wgmma` need.
    pub(crate) fn ptx_version(self) -> u32 {
        self.row().1
    }

    /// Whether the chip has thread block clusters: `.maxclusterrank` is refused by `ptxas` for older ones.
    pub(crate) fn has_clusters(self) -> bool {
        self >= Self::Compute90
    }

    fn row(self) -> (&'static str, u32) {
        match self {
            Self::Compute50 => ("sm_50", 60),
            Self::Compute52 => ("sm_52", 60),
            Self::Compute53 => ("sm_53", 60),
            Self::Compute60 => ("sm_60", 60),
            Self::Compute61 => ("sm_61", 60),
            Self::Compute62 => ("sm_62", 60),
            Self::Compute70 => ("sm_70", 60),
            Self::Compute72 => ("sm_72", 61),
            Self::Compute75 => ("sm_75", 63),
            Self::Compute80 => ("sm_80", 70),
            Self::Compute86 => ("sm_86", 71),
            Self::Compute87 => ("sm_87", 74),
            Self::Compute89 => ("sm_89", 78),
            Self::Compute90 => ("sm_90", 80),
            Self::Compute90a => ("sm_90a", 83),
            Self::Compute100 => ("sm_100", 86),
            Self::Compute100a => ("sm_100a", 86),
            Self::Compute120 => ("sm_120", 87),
            Self::Compute120a => ("sm_120a", 87),
        }
    }
}

impl fmt::Display for NvvmArch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.target_cpu())
    }
}
