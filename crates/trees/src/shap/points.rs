//! One row through one tree, a lane for each quadrature point: nothing is worked out in advance, for
//! a row takes one side of each split alone.

use crate::ranks::Split;
use crate::shap::blocks::{POINTS_MAX, Scratch};
use crate::shap::descent::{Descent, Terms, frames_length};
use crate::shap::paths::NONE;
use crate::simd::{Lanes, Work};
use crate::view::TreeView;

/// One tree, for one row.
pub(super) struct Explain<'a> {
    pub(super) tree: &'a TreeView<'a>,
    pub(super) splits: &'a [Split],
    pub(super) columns: &'a [[u32; 4]],
    /// The byte of each column.
    pub(super) bytes: &'a [u8],
    /// Points and weights.
    pub(super) rule: &'a [(f64, f64)],
    pub(super) scratch: &'a mut Scratch,
}

impl Work for Explain<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        match self.rule.len().div_ceil(L::WIDTH) {
            1 => self.with::<L, 1>(lanes),
            2 => self.with::<L, 2>(lanes),
            3 => self.with::<L, 3>(lanes),
            4 => self.with::<L, 4>(lanes),
            5 => self.with::<L, 5>(lanes),
            6 => self.with::<L, 6>(lanes),
            7 => self.with::<L, 7>(lanes),
            8 => self.with::<L, 8>(lanes),
            // A leaf alone has none; `can_explain` has refused more.
            _ => {}
        }
    }
}

impl Explain<'_> {
    #[inline(always)]
    fn with<L: Lanes, const K: usize>(&mut self, lanes: L) {
        let tree = self.tree;
        let Scratch {
            followed,
            frames,
            sums,
            stack,
            ..
        } = &mut *self.scratch;
        follow(tree, self.splits, self.bytes, followed);
        let length = frames_length::<L, K>(tree);
        if frames.len() < length {
            frames.resize(length, 0.0);
        }
        // Lanes without a point have weight 0.
        let (mut at, mut rest, mut weight) = ([0.5; 8], [0.5; 8], [0.0; 8]);
        for (lane, &(t, w)) in self.rule.iter().enumerate().take(POINTS_MAX) {
            (at[lane], rest[lane], weight[lane]) = (t, 1.0 - t, w);
        }
        let mut terms = Lane::<L, K> {
            lanes,
            tree,
            splits: self.splits,
            columns: self.columns,
            followed,
            at: vectors::<L, K>(lanes, &at),
            rest: vectors::<L, K>(lanes, &rest),
            sums,
        };
        let descent = Descent {
            lanes,
            tree,
            frames,
            stack,
            above: vectors::<L, K>(lanes, &weight),
        };
        descent.run(&mut terms);
    }
}

/// Numbers of the points as vectors.
#[inline(always)]
fn vectors<L: Lanes, const K: usize>(lanes: L, of: &[f64; POINTS_MAX]) -> [L::Vector; K] {
    let mut vectors = [lanes.splat(0.0); K];
    for (k, vector) in vectors.iter_mut().enumerate() {
        *vector = lanes.load(&of[(k * L::WIDTH).min(POINTS_MAX - L::WIDTH)..]);
    }
    vectors
}

/// Bits of `followed` of a node: the row follows its edge and all above it on the same feature;
/// of a split: the row goes left.
const FOLLOWS: u64 = 1;
const LEFT: u64 = 2;

fn follow(tree: &TreeView<'_>, splits: &[Split], bytes: &[u8], followed: &mut Vec<u64>) {
    followed.clear();
    followed.resize(tree.nodes(), FOLLOWS);
    let nodes = (0..tree.nodes()).filter(|&node| !tree.is_leaf(node));
    for (node, &[column, byte, ..]) in nodes.zip(splits) {
        let alive = match tree.previous[node] {
            NONE => FOLLOWS,
            previous => followed[previous as usize] & FOLLOWS,
        };
        let left = u64::from(u16::from(bytes[usize::from(column)]) <= byte);
        followed[node] |= left * LEFT;
        followed[tree.left[node] as usize] = alive & left;
        followed[tree.right[node] as usize] = alive & !left;
    }
}

/// The points of one row.
struct Lane<'a, L: Lanes, const K: usize> {
    lanes: L,
    tree: &'a TreeView<'a>,
    splits: &'a [Split],
    columns: &'a [[u32; 4]],
    followed: &'a [u64],
    /// t and 1 - t.
    at: [L::Vector; K],
    rest: [L::Vector; K],
    sums: &'a mut [f64],
}

/// A split for one row.
#[derive(Clone, Copy)]
struct Asked {
    split: usize,
    merged: f64,
    shares: [f64; 2],
    left: bool,
    /// Whether the row has followed the earlier edges of the feature; `None`: it is new.
    alive: Option<bool>,
}

impl<L: Lanes, const K: usize> Lane<'_, L, K> {
    /// The factor of a row that has followed, up to here.
    #[inline(always)]
    fn factor(&self, own: Asked, k: usize) -> L::Vector {
        let lanes = self.lanes;
        lanes.add(lanes.mul(lanes.splat(own.merged), self.rest[k]), self.at[k])
    }
}

impl<L: Lanes, const K: usize> Terms<L, K> for Lane<'_, L, K> {
    type Split = Asked;

    #[inline(always)]
    fn split(&self, split: usize, node: usize) -> Asked {
        let tree = self.tree;
        let share = |child: u32| tree.share[child as usize];
        Asked {
            split,
            merged: tree.merged[node],
            shares: [share(tree.left[node]), share(tree.right[node])],
            left: self.followed[node] & LEFT != 0,
            alive: match tree.previous[node] {
                NONE => None,
                previous => Some(self.followed[previous as usize] & FOLLOWS != 0),
            },
        }
    }

    #[inline(always)]
    fn ratio(&self, own: Asked, side: usize, k: usize) -> L::Vector {
        let lanes = self.lanes;
        let share = own.shares[side];
        if own.alive == Some(false) {
            return lanes.splat(share);
        }
        let passed = lanes.mul(lanes.splat(own.merged * share), self.rest[k]);
        let goes_there = own.left == (side == 0);
        let bits = if goes_there { u64::MAX } else { 0 };
        let ratio = lanes.select(bits, lanes.add(passed, self.at[k]), passed);
        match own.alive {
            None => ratio,
            Some(_) => lanes.div(ratio, self.factor(own, k)),
        }
    }

    #[inline(always)]
    fn pulls(&self, own: Asked) -> [L::Vector; 2] {
        let [left, right] = own.shares;
        let (left, right) = match own.left {
            true => (1.0 - left, -right),
            false => (-left, 1.0 - right),
        };
        [self.lanes.splat(left), self.lanes.splat(right)]
    }

    #[inline(always)]
    fn scale(&self, own: Asked, k: usize) -> Option<L::Vector> {
        let lanes = self.lanes;
        own.alive?;
        let factor = self.factor(own, k);
        Some(lanes.div(lanes.splat(own.merged), lanes.mul(factor, factor)))
    }

    #[inline(always)]
    fn add(&mut self, own: Asked, parts: [L::Vector; K], factor: Option<L::Vector>) {
        if own.alive == Some(false) {
            return;
        }
        let mut numbers = [0.0; POINTS_MAX + 8];
        for (k, part) in parts.into_iter().enumerate() {
            self.lanes.store(part, &mut numbers[k * L::WIDTH..]);
        }
        // In the order of the points, as rows in lanes are; zeros of lanes without a point last.
        let mut sum = 0.0;
        for x in &numbers[..(K * L::WIDTH).min(POINTS_MAX)] {
            sum += x;
        }
        if let Some(factor) = factor {
            self.lanes.store(factor, &mut numbers);
            sum *= numbers[0];
        }
        let asked = self.columns[usize::from(self.splits[own.split][0])][0] as usize;
        self.sums[asked] += sum;
    }
}
