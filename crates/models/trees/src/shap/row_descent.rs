//! One descent through a tree for the rows of a vector, in pre-order: down to each leaf, and up
//! when both sides of a split are summed. The vectors of an open split are stored in its frame on a
//! stack, so the working set is a few vectors per level instead of per node.
//!
//! Leaves are not visited: a split with one leaf child uses the leaf's value directly, and a split
//! with two leaves needs no frame.

use albacore_simd::Lanes;

use crate::layout::binned::LEAVES_MAX;
use crate::layout::ensemble::TreeView;
use crate::shap::row_terms::RowLanes;
use crate::shap::scratch::SplitFrame;

/// Number of doubles in a cache line.
const LINE: usize = 8;

/// Returns the length of the frames of a tree: per level, the products above and the sums below the
/// left edge.
pub(super) fn frames_length<L: Lanes, const N: usize>(tree: &TreeView<'_>) -> usize {
    (tree.depth + 1) * 2 * N * L::WIDTH + LINE
}

/// State of a descent.
pub(super) struct RowDescent<'a, L: Lanes, const N: usize> {
    pub(super) rows: RowLanes<'a, L>,
    pub(super) sums: &'a mut [f64],
    pub(super) frames: &'a mut [f64],
    pub(super) stack: &'a mut [SplitFrame; LEAVES_MAX],
    /// The product above the next node; initially the weights.
    pub(super) above: [L::Vector; N],
}

impl<L: Lanes, const N: usize> RowDescent<'_, L, N> {
    /// Visits all splits of the tree.
    #[inline(always)]
    pub(super) fn run(mut self) {
        let skip = self.frames.as_ptr().align_offset(LINE * 8).min(LINE);
        let frames = std::mem::take(&mut self.frames);
        self.frames = &mut frames[skip..];
        let tree = self.rows.tree;
        let (mut depth, mut split, mut node) = (0, 0, 0);
        // bound: every iteration consumes a split or a leaf.
        while node < tree.nodes() {
            if tree.is_leaf(node) {
                // A root without splits, or an unreferenced node of a corrupt image.
                node += 1;
                continue;
            }
            let own = self.rows.split::<N>(split, node);
            let (left, right) = (tree.left[node] as usize, tree.right[node] as usize);
            let is_right = tree.is_leaf(left);
            if is_right && tree.is_leaf(right) {
                let below = self.rows.contribute_leaf_pair(own, &self.above, self.sums);
                (split, node) = (split + 1, node + 3);
                node += self.ascend(below, &mut depth);
                continue;
            }
            let side = usize::from(is_right);
            for k in 0..N {
                self.store(depth, k, self.above[k]);
                if is_right {
                    self.store(depth, N + k, self.rows.lanes.splat(tree.value[left]));
                }
                let ratio = self.rows.ratio::<N>(own, side, k);
                self.above[k] = self.rows.lanes.mul(self.above[k], ratio);
            }
            self.stack[depth % LEAVES_MAX] = SplitFrame {
                split: split as u32,
                node: node as u32,
                is_right,
            };
            (depth, split, node) = (depth + 1, split + 1, node + 1 + side);
        }
    }

    #[inline(always)]
    fn load(&self, depth: usize, vector: usize) -> L::Vector {
        let at = (depth * 2 * N + vector) * L::WIDTH;
        match self.frames.get(at..at + L::WIDTH) {
            Some(from) => self.rows.lanes.load(from),
            None => self.rows.lanes.splat(0.0),
        }
    }

    #[inline(always)]
    fn store(&mut self, depth: usize, vector: usize, x: L::Vector) {
        let at = (depth * 2 * N + vector) * L::WIDTH;
        if let Some(to) = self.frames.get_mut(at..at + L::WIDTH) {
            self.rows.lanes.store(x, to);
        }
    }

    /// Ascends from a side whose sum is known to a split whose right side is not visited yet.
    /// Returns the number of leaves consumed on the way.
    #[inline(always)]
    fn ascend(&mut self, mut below: [L::Vector; N], depth: &mut usize) -> usize {
        let (lanes, tree) = (self.rows.lanes, self.rows.tree);
        let mut leaves = 0;
        // bound: every iteration except the last leaves a level.
        while *depth > 0 {
            let level = *depth - 1;
            let frame = &mut self.stack[level % LEAVES_MAX];
            let SplitFrame {
                split,
                node,
                is_right,
            } = *frame;
            frame.is_right = true;
            let own = self.rows.split::<N>(split as usize, node as usize);
            let mut left = below;
            if is_right {
                for (k, left) in left.iter_mut().enumerate() {
                    *left = self.load(level, N + k);
                }
            } else {
                let right = tree.right[node as usize] as usize;
                if !tree.is_leaf(right) {
                    for (k, &below) in below.iter().enumerate() {
                        self.store(level, N + k, below);
                        let ratio = self.rows.ratio::<N>(own, 1, k);
                        self.above[k] = lanes.mul(self.load(level, k), ratio);
                    }
                    break;
                }
                leaves += 1;
                below = [lanes.splat(tree.value[right]); N];
            }
            let mut above = below;
            for (k, above) in above.iter_mut().enumerate() {
                *above = self.load(level, k);
            }
            self.rows
                .contribute(own, &above, &left, &mut below, self.sums);
            *depth -= 1;
        }
        leaves
    }
}
