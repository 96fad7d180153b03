//! Which GPU the code is compiled for.

/// The generation of a GPU, which says what instructions it has.
#[allow(missing_docs, reason = "the names say the numbers")]
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ComputeCapability {
    Compute35,
    Compute37,
    Compute50,
    Compute52,
    Compute53,
    Compute60,
    Compute61,
    Compute62,
    Compute70,
    Compute72,
    Compute75,
    Compute80,
    Compute86,
    Compute87,
    Compute89,
    Compute90,
    Compute100,
    Compute120,
}

impl ComputeCapability {
    /// What this image is compiled for: a constant, so that a branch on it costs nothing. (The published crate reads an
    /// environment variable; ours asks the compiler's target.) On the CPU target, which does what the portable image
    /// does: `Compute80`.
    #[inline(always)]
    pub const fn from_cuda_arch_env() -> Self {
        if cfg!(target_feature = "sm_120") {
            Self::Compute120
        } else if cfg!(target_feature = "sm_100") {
            Self::Compute100
        } else if cfg!(target_feature = "sm_90") {
            Self::Compute90
        } else if cfg!(target_feature = "sm_89") {
            Self::Compute89
        } else if cfg!(target_feature = "sm_87") {
            Self::Compute87
        } else if cfg!(target_feature = "sm_86") {
            Self::Compute86
        } else if cfg!(any(target_feature = "sm_80", not(target_os = "cuda"))) {
            Self::Compute80
        } else if cfg!(target_feature = "sm_75") {
            Self::Compute75
        } else if cfg!(target_feature = "sm_72") {
            Self::Compute72
        } else if cfg!(target_feature = "sm_70") {
            Self::Compute70
        } else if cfg!(target_feature = "sm_62") {
            Self::Compute62
        } else if cfg!(target_feature = "sm_61") {
            Self::Compute61
        } else if cfg!(target_feature = "sm_60") {
            Self::Compute60
        } else if cfg!(target_feature = "sm_53") {
            Self::Compute53
        } else if cfg!(target_feature = "sm_52") {
            Self::Compute52
        } else {
            Self::Compute50
        }
    }
}
