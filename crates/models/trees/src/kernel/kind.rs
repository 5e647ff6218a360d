//! The kernels by name, and which of them a model and this cpu allow.

use std::fmt;

use albacore_simd::Simd;

use crate::layout::ensemble::EnsembleView;

/// A way to walk trees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Node by node, row by row, over the values as they are: the reference. For every model.
    Nodes,
    /// One row down eight trees, or eight rows down one, without branches, over keys.
    Walk,
    /// All nodes of a tree at once for 64 rows, over bytes, in plain code.
    Blocks,
    /// As `Blocks`, in AVX2.
    BlocksAvx2,
    /// As `Blocks`, in AVX-512 (F, BW and VBMI).
    BlocksAvx512,
}

impl Kernel {
    pub const ALL: [Self; 5] = [
        Self::Nodes,
        Self::Walk,
        Self::Blocks,
        Self::BlocksAvx2,
        Self::BlocksAvx512,
    ];

    /// The name, as command lines write it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Nodes => "nodes",
            Self::Walk => "walk",
            Self::Blocks => "blocks",
            Self::BlocksAvx2 => "blocks-avx2",
            Self::BlocksAvx512 => "blocks-avx512",
        }
    }

    /// The kernel, compiled for this cpu's instructions; `None` if the cpu or the model does not
    /// allow it.
    pub(crate) fn engine(self, view: &EnsembleView<'_>) -> Option<KernelEngine> {
        let blocks = |simd| view.has_blocks().then_some(KernelEngine::Blocks(simd));
        match self {
            Self::Nodes => Some(KernelEngine::Nodes),
            Self::Walk => view.has_keys().then_some(KernelEngine::Walk),
            Self::Blocks => blocks(Simd::PLAIN),
            Self::BlocksAvx2 => blocks(Simd::avx2()?),
            Self::BlocksAvx512 => blocks(Simd::avx512()?),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A kernel that this cpu and this model allow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelEngine {
    Nodes,
    Walk,
    Blocks(Simd),
}
