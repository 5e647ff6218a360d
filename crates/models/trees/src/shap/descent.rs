//! Once through a tree, in pre-order: down to each leaf, and up as soon as both sides of a split
//! are summed up. What a split knows stays in its frame on a stack until then, so that the working
//! set is a few vectors for each level and not for each node.
//!
//! Leaves are not visited: a split with a leaf below it takes its value at once, and one with two
//! leaves needs no frame.

use crate::ranks::LEAVES_MAX;
use crate::shap::one;
use crate::shap::rows::Rows;
use crate::view::TreeView;
use albacore_simd::Lanes;

/// Numbers in a cache line.
const LINE: usize = 8;

/// A split on the stack.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Open {
    split: u32,
    node: u32,
    /// Whether the left side is summed up.
    is_right: bool,
}

/// What is open above a node; a tree in rank form has no more levels than leaves.
#[derive(Clone, Debug)]
pub(super) struct Stack<T>(pub(super) [T; LEAVES_MAX]);

impl Default for Stack<Open> {
    fn default() -> Self {
        Self([Open::default(); LEAVES_MAX])
    }
}

impl Default for Stack<one::Open> {
    fn default() -> Self {
        Self([one::Open::default(); LEAVES_MAX])
    }
}

/// Length of the frames for a tree: of each level the products above, and the sums below the left
/// edge.
pub(super) fn frames_length<L: Lanes, const N: usize>(tree: &TreeView<'_>) -> usize {
    (tree.depth + 1) * 2 * N * L::WIDTH + LINE
}

/// The state of a descent.
pub(super) struct Descent<'a, L: Lanes, const N: usize> {
    pub(super) rows: Rows<'a, L>,
    pub(super) sums: &'a mut [f64],
    pub(super) frames: &'a mut [f64],
    pub(super) open: &'a mut [Open; LEAVES_MAX],
    /// The product above the next node; at first the weights.
    pub(super) above: [L::Vector; N],
}

impl<L: Lanes, const N: usize> Descent<'_, L, N> {
    /// Goes through the tree.
    #[inline(always)]
    pub(super) fn run(mut self) {
        let skip = self.frames.as_ptr().align_offset(LINE * 8).min(LINE);
        let frames = std::mem::take(&mut self.frames);
        self.frames = &mut frames[skip..];
        let tree = self.rows.tree;
        let (mut depth, mut split, mut node) = (0, 0, 0);
        // bound: every turn takes a split or a leaf.
        while node < tree.nodes() {
            if tree.is_leaf(node) {
                // The root alone, or what a damaged image takes for a child.
                node += 1;
                continue;
            }
            let own = self.rows.split::<N>(split, node);
            let (left, right) = (tree.left[node] as usize, tree.right[node] as usize);
            let is_right = tree.is_leaf(left);
            if is_right && tree.is_leaf(right) {
                let below = self.rows.at_leaves(own, &self.above, self.sums);
                (split, node) = (split + 1, node + 3);
                node += self.go_up(below, &mut depth);
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
            self.open[depth % LEAVES_MAX] = Open {
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

    /// Up from a side whose sum is known, until a split's right side is to be gone down. Returns
    /// how many leaves were taken on the way.
    #[inline(always)]
    fn go_up(&mut self, mut below: [L::Vector; N], depth: &mut usize) -> usize {
        let (lanes, tree) = (self.rows.lanes, self.rows.tree);
        let mut taken = 0;
        // bound: a level less with each turn, or the last.
        while *depth > 0 {
            let level = *depth - 1;
            let open = &mut self.open[level % LEAVES_MAX];
            let Open {
                split,
                node,
                is_right,
            } = *open;
            open.is_right = true;
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
                taken += 1;
                below = [lanes.splat(tree.value[right]); N];
            }
            let mut above = below;
            for (k, above) in above.iter_mut().enumerate() {
                *above = self.load(level, k);
            }
            self.rows
                .add_up(own, (&above, &left), &mut below, self.sums);
            *depth -= 1;
        }
        taken
    }
}
