//! Once through a tree, in pre-order: down to each leaf, and up as soon as both sides of a split are
//! summed up. What a split knows stays in its frame on a stack until then, so that the working set
//! is a few vectors for each level and not for each node.
//!
//! Leaves are not visited: a split with a leaf below it takes its value at once, and one with two
//! leaves needs no frame.

use crate::ranks::LEAVES_MAX;
use crate::simd::Lanes;
use crate::view::TreeView;

/// Numbers in a cache line.
const LINE: usize = 8;

/// What differs between lanes that hold rows and lanes that hold points. A split has K vectors of
/// each kind.
pub(super) trait Terms<L: Lanes, const K: usize> {
    /// What is known of a split.
    type Split: Copy;

    /// Looks a split up, by its number among the splits and among the nodes.
    fn split(&self, split: usize, node: usize) -> Self::Split;
    /// f' / f of the edge on a side (0: left).
    fn ratio(&self, split: Self::Split, side: usize, vector: usize) -> L::Vector;
    /// o - s of both edges.
    fn pulls(&self, split: Self::Split) -> [L::Vector; 2];
    /// z / f^2, unless the feature is new: then it is 1.
    fn scale(&self, split: Self::Split, vector: usize) -> Option<L::Vector>;
    /// Adds the sum of the parts, times a factor, to what the split's feature contributes.
    fn add(&mut self, split: Self::Split, parts: [L::Vector; K], factor: Option<L::Vector>);
}

/// A split on the stack.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    split: u32,
    node: u32,
    /// Whether the left side is summed up.
    is_right: bool,
}

/// The splits above a node; a tree in rank form has no more levels than leaves.
#[derive(Clone, Debug)]
pub(super) struct Stack([Place; LEAVES_MAX]);

impl Default for Stack {
    fn default() -> Self {
        Self([Place::default(); LEAVES_MAX])
    }
}

/// Length of the frames for a tree.
pub(super) fn frames_length<L: Lanes, const K: usize>(tree: &TreeView<'_>) -> usize {
    (tree.depth + 1) * 4 * K * L::WIDTH + LINE
}

/// What a split knows until both sides are summed up, K vectors of each part: the product above
/// it, the ratios of its left and its right edge, the sum below its left edge.
struct Frame<'a>(&'a mut [f64]);

const ABOVE: usize = 0;
const RATIO: [usize; 2] = [1, 2];
const BELOW: usize = 3;

impl<'a> Frame<'a> {
    #[inline(always)]
    fn at<L: Lanes, const K: usize>(frames: &'a mut [f64], depth: usize) -> Option<Self> {
        let length = 4 * K * L::WIDTH;
        let frame = frames.get_mut(depth * length..)?.get_mut(..length)?;
        Some(Self(frame))
    }

    #[inline(always)]
    fn load<L: Lanes, const K: usize>(&self, lanes: L, part: usize, vector: usize) -> L::Vector {
        lanes.load(&self.0[(part * K + vector) * L::WIDTH..])
    }

    #[inline(always)]
    fn store<L: Lanes, const K: usize>(
        &mut self,
        lanes: L,
        (part, vector): (usize, usize),
        x: L::Vector,
    ) {
        lanes.store(x, &mut self.0[(part * K + vector) * L::WIDTH..]);
    }
}

/// The state of a descent.
pub(super) struct Descent<'a, L: Lanes, const K: usize> {
    pub(super) lanes: L,
    pub(super) tree: &'a TreeView<'a>,
    pub(super) frames: &'a mut [f64],
    pub(super) stack: &'a mut Stack,
    /// The product above the next node; at first the weights.
    pub(super) above: [L::Vector; K],
}

impl<L: Lanes, const K: usize> Descent<'_, L, K> {
    /// Goes through the tree.
    #[inline(always)]
    pub(super) fn run(mut self, terms: &mut impl Terms<L, K>) {
        let skip = self.frames.as_ptr().align_offset(LINE * 8).min(LINE);
        let frames = std::mem::take(&mut self.frames);
        self.frames = &mut frames[skip..];
        let tree = self.tree;
        let (mut depth, mut split, mut node) = (0, 0, 0);
        // bound: every turn takes a split or a leaf.
        while node < tree.nodes() {
            if tree.is_leaf(node) {
                // The root alone, or what a damaged image takes for a child.
                node += 1;
                continue;
            }
            let own = terms.split(split, node);
            let (left, right) = (tree.left[node] as usize, tree.right[node] as usize);
            let is_right = tree.is_leaf(left);
            if is_right && tree.is_leaf(right) {
                let below = self.at_leaves(terms, own, [left, right].map(|it| tree.value[it]));
                (split, node) = (split + 1, node + 3);
                node += self.go_up(terms, below, &mut depth);
                continue;
            }
            self.go_down(terms, own, depth, is_right.then(|| tree.value[left]));
            self.stack.0[depth % LEAVES_MAX] = Place {
                split: split as u32,
                node: node as u32,
                is_right,
            };
            (depth, split, node) = (depth + 1, split + 1, node + 1 + usize::from(is_right));
        }
    }

    /// From a split to its left side, or its right side where the left is a leaf of this value.
    #[inline(always)]
    fn go_down<T: Terms<L, K>>(
        &mut self,
        terms: &T,
        own: T::Split,
        depth: usize,
        left: Option<f64>,
    ) {
        let lanes = self.lanes;
        let Some(mut frame) = Frame::at::<L, K>(self.frames, depth) else {
            return;
        };
        for (k, above) in self.above.iter_mut().enumerate() {
            let ratios = [terms.ratio(own, 0, k), terms.ratio(own, 1, k)];
            frame.store::<L, K>(lanes, (ABOVE, k), *above);
            frame.store::<L, K>(lanes, (RATIO[0], k), ratios[0]);
            frame.store::<L, K>(lanes, (RATIO[1], k), ratios[1]);
            if let Some(value) = left {
                frame.store::<L, K>(lanes, (BELOW, k), lanes.splat(value));
            }
            *above = lanes.mul(*above, ratios[usize::from(left.is_some())]);
        }
    }

    /// Up from a side whose sum is known, until a split's right side is to be gone down. Returns
    /// how many leaves were taken on the way.
    #[inline(always)]
    fn go_up(
        &mut self,
        terms: &mut impl Terms<L, K>,
        mut below: [L::Vector; K],
        depth: &mut usize,
    ) -> usize {
        let (lanes, tree) = (self.lanes, self.tree);
        let mut taken = 0;
        // bound: a frame less with each turn, or the last.
        while *depth > 0 {
            let place = &mut self.stack.0[(*depth - 1) % LEAVES_MAX];
            let Some(mut frame) = Frame::at::<L, K>(self.frames, *depth - 1) else {
                return taken;
            };
            let Place {
                split,
                node,
                is_right,
            } = *place;
            if !is_right {
                place.is_right = true;
                let right = tree.right[node as usize] as usize;
                let is_leaf = tree.is_leaf(right);
                for (k, below) in below.iter_mut().enumerate() {
                    frame.store::<L, K>(lanes, (BELOW, k), *below);
                    if is_leaf {
                        *below = lanes.splat(tree.value[right]);
                    } else {
                        let above = frame.load::<L, K>(lanes, ABOVE, k);
                        let ratio = frame.load::<L, K>(lanes, RATIO[1], k);
                        self.above[k] = lanes.mul(above, ratio);
                    }
                }
                if !is_leaf {
                    break;
                }
                taken += 1;
            }
            let own = terms.split(split as usize, node as usize);
            self.add_up(terms, own, *depth - 1, &mut below);
            *depth -= 1;
        }
        taken
    }

    /// What both edges of a split add to the contribution of its feature; `below`, the sum below
    /// the right edge, becomes the sum below the split.
    #[inline(always)]
    fn add_up<T: Terms<L, K>>(
        &mut self,
        terms: &mut T,
        own: T::Split,
        depth: usize,
        below: &mut [L::Vector; K],
    ) {
        let lanes = self.lanes;
        let Some(frame) = Frame::at::<L, K>(self.frames, depth) else {
            return;
        };
        let [left_pull, right_pull] = terms.pulls(own);
        let mut parts = *below;
        for (k, (part, below)) in parts.iter_mut().zip(below).enumerate() {
            let left_below = frame.load::<L, K>(lanes, BELOW, k);
            let left = lanes.mul(left_pull, left_below);
            let pull = lanes.add(left, lanes.mul(right_pull, *below));
            *part = lanes.mul(frame.load::<L, K>(lanes, ABOVE, k), pull);
            if let Some(scale) = terms.scale(own, k) {
                *part = lanes.mul(*part, scale);
            }
            let left = lanes.mul(frame.load::<L, K>(lanes, RATIO[0], k), left_below);
            let right = lanes.mul(frame.load::<L, K>(lanes, RATIO[1], k), *below);
            *below = lanes.add(left, right);
        }
        terms.add(own, parts, None);
    }

    /// As `add_up`, of a split with two leaves, whose pull is the same at all points. Returns the
    /// sum below the split.
    #[inline(always)]
    fn at_leaves<T: Terms<L, K>>(
        &mut self,
        terms: &mut T,
        own: T::Split,
        values: [f64; 2],
    ) -> [L::Vector; K] {
        let lanes = self.lanes;
        let [left_pull, right_pull] = terms.pulls(own);
        let (left, right) = (lanes.splat(values[0]), lanes.splat(values[1]));
        let pull = lanes.add(lanes.mul(left_pull, left), lanes.mul(right_pull, right));
        let (mut parts, mut below) = (self.above, self.above);
        for (k, (part, below)) in parts.iter_mut().zip(&mut below).enumerate() {
            if let Some(scale) = terms.scale(own, k) {
                *part = lanes.mul(*part, scale);
            }
            let left = lanes.mul(terms.ratio(own, 0, k), left);
            *below = lanes.add(left, lanes.mul(terms.ratio(own, 1, k), right));
        }
        terms.add(own, parts, Some(pull));
        below
    }
}
