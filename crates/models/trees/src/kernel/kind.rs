//! The kernels by name, and their availability for a model on this cpu.

use std::fmt;

use albacore_simd::Simd;

use crate::layout::ensemble::EnsembleView;

/// An algorithm that finds the leaves of rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Node by node, row by row, on the unencoded values: the reference. For all models.
    Nodes,
    /// One row through eight trees, or eight rows through one, branch-free, on keys.
    Walk,
    /// All nodes of a tree at once for 64 rows, on bytes, in plain code.
    Blocks,
    /// Like `Blocks`, in AVX2.
    BlocksAvx2,
    /// Like `Blocks`, in AVX-512 (F, BW and VBMI).
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

    /// Returns the name used on command lines.
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

    /// Returns the kernel for this cpu's instruction set; `None` if the cpu or the model does not
    /// support it.
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

/// A kernel that this cpu and this model support.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelEngine {
    Nodes,
    Walk,
    Blocks(Simd),
}
