//! Memory of the SHAP engines, reused from call to call: nothing is allocated after the largest and
//! the deepest tree.

use crate::layout::binned::LEAVES_MAX;
use crate::shap::pair_terms::PairTerms;
use crate::shap::quadrature::QuadratureRules;
use crate::shap::tree_walk::TreeWalk;

#[derive(Clone, Debug, Default)]
pub(crate) struct ShapScratch {
    pub(super) walk: TreeWalk,
    pub(super) rules: QuadratureRules,
    pub(super) vectors: VectorScratch,
}

/// Memory of `one_row` and `many_rows`.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorScratch {
    /// Of each split feature: the sums of the rows, or of the groups of one row.
    pub(super) sums: Vec<f64>,
    /// Vectors of the open nodes of a descent.
    pub(super) frames: Vec<f64>,
    /// Of each split of a tree: the rows that go left.
    pub(super) left_rows: Vec<u64>,
    /// Of each node of a tree: the rows that follow its edge and all above it on the same feature.
    pub(super) followed_rows: Vec<u64>,
    /// Of each split of a tree: `row_terms::SplitTerms`.
    pub(super) terms: Vec<f64>,
    pub(super) split_stack: FrameStack<SplitFrame>,
    /// Of each node of a bundle: lanes in which the row goes to the first child.
    pub(super) goes_first: Vec<u8>,
    /// Of each node of a bundle: lanes in which the row has followed the feature's earlier edges.
    pub(super) on_path: Vec<u8>,
    /// Of each node and lane of a bundle: the contribution of the split.
    pub(super) contributions: Vec<f64>,
    pub(super) node_stack: FrameStack<NodeFrame>,
    pub(super) pairs: PairTerms,
    /// Interactions: groups x (split features + 1) x (split features + 1).
    pub(super) cells: Vec<f64>,
}

/// The open nodes above the one that is visited; a tree with blocks has no more levels than leaves.
#[derive(Clone, Debug)]
pub(super) struct FrameStack<T>(pub(super) [T; LEAVES_MAX]);

impl<T: Copy + Default> Default for FrameStack<T> {
    fn default() -> Self {
        Self([T::default(); LEAVES_MAX])
    }
}

/// An open split of `many_rows`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct SplitFrame {
    pub(super) split: u32,
    pub(super) node: u32,
    /// Whether the left side is summed.
    pub(super) is_right: bool,
}

/// An open node of `one_row`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFrame {
    pub(super) index: u32,
    /// Where its constants begin.
    pub(super) constants: u32,
    /// Whether the first child is summed.
    pub(super) is_second: bool,
}
