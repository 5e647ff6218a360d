//! Memory of the SHAP engines, reused by subsequent calls: no allocation occurs after the largest
//! and the deepest tree.

use crate::layout::binned::LEAVES_MAX;
use crate::shap::pair_terms::PairTerms;
use crate::shap::quadrature::QuadratureRules;
use crate::shap::sweep::ShapSweep;

#[derive(Clone, Debug, Default)]
pub(crate) struct ShapScratch {
    pub(super) sweep: ShapSweep,
    pub(super) rules: QuadratureRules,
    pub(super) vectors: VectorScratch,
}

/// Memory of `one_row` and `many_rows`.
#[derive(Clone, Debug, Default)]
pub(super) struct VectorScratch {
    /// Sums of each split feature for the rows, or for the groups of one row.
    pub(super) sums: Vec<f64>,
    /// Vectors of the open nodes of a descent.
    pub(super) frames: Vec<f64>,
    /// Rows that go left at each split of a tree.
    pub(super) left_rows: Vec<u64>,
    /// For each node of a tree, the rows that follow its edge and all above it on the same feature.
    pub(super) followed_rows: Vec<u64>,
    /// `row_terms::SplitTerms` of each split of a tree.
    pub(super) terms: Vec<f64>,
    pub(super) split_stack: FrameStack<SplitFrame>,
    /// For each node of a bundle, the lanes in which the row goes to the first child.
    pub(super) goes_first: Vec<u8>,
    /// For each node of a bundle, the lanes in which the row has followed the feature's earlier
    /// edges.
    pub(super) on_path: Vec<u8>,
    /// Contribution of the split of each node and lane of a bundle.
    pub(super) contributions: Vec<f64>,
    pub(super) node_stack: FrameStack<NodeFrame>,
    pub(super) pairs: PairTerms,
    /// Interactions: groups x (split features + 1) x (split features + 1).
    pub(super) cells: Vec<f64>,
}

/// Stack of the open nodes above the visited one; a tree with blocks has at most as many levels as
/// leaves.
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
    /// Whether the left side has been summed.
    pub(super) is_right: bool,
}

/// An open node of `one_row`.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct NodeFrame {
    pub(super) index: u32,
    /// Start of the node's constants.
    pub(super) constants: u32,
    /// Whether the first child has been summed.
    pub(super) is_second: bool,
}
