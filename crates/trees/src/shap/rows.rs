//! Many rows through one tree, a lane for each: what is the same for all rows is worked out first.

use crate::ranks::Split;
use crate::shap::blocks::Scratch;
use crate::shap::descent::{Descent, Terms, frames_length};
use crate::shap::paths::NONE;
use crate::simd::{Lanes, Work};
use crate::view::TreeView;

/// Rows are filled up to a multiple of this, the widest vector.
pub(super) const FILL: usize = 8;

/// One tree, for all rows of a block.
pub(super) struct Explain<'a> {
    pub(super) tree: &'a TreeView<'a>,
    pub(super) splits: &'a [Split],
    pub(super) columns: &'a [[u32; 4]],
    /// Rows, with those that fill up the lanes.
    pub(super) width: usize,
    /// Points and weights.
    pub(super) rule: &'a [(f64, f64)],
    pub(super) scratch: &'a mut Scratch,
}

impl Work for Explain<'_> {
    #[inline(always)]
    fn run<L: Lanes>(mut self, lanes: L) {
        match self.rule.len() {
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
    fn with<L: Lanes, const N: usize>(&mut self, lanes: L) {
        let Some(rule) = self.rule.first_chunk::<N>() else {
            return;
        };
        self.work_out_terms::<N>(rule);
        let Scratch {
            goes_left,
            followed,
            terms,
            frames,
            sums,
            stack,
        } = &mut *self.scratch;
        let length = frames_length::<L, N>(self.tree);
        if frames.len() < length {
            frames.resize(length, 0.0);
        }
        for first in (0..self.width).step_by(L::WIDTH) {
            let mut lanes_of = Lane::<L> {
                lanes,
                tree: self.tree,
                splits: self.splits,
                columns: self.columns,
                goes_left,
                followed,
                terms,
                sums,
                width: self.width,
                first,
            };
            let mut above = [lanes.splat(0.0); N];
            for (above, &(_, weight)) in above.iter_mut().zip(rule) {
                *above = lanes.splat(weight);
            }
            let descent = Descent {
                lanes,
                tree: self.tree,
                frames: &mut *frames,
                stack,
                above,
            };
            descent.run(&mut lanes_of);
        }
    }

    /// What is the same for all rows: the ratios of the edges, and which rows follow them.
    #[inline(always)]
    fn work_out_terms<const N: usize>(&mut self, rule: &[(f64, f64); N]) {
        let tree = self.tree;
        let Scratch {
            goes_left,
            followed,
            terms,
            ..
        } = &mut *self.scratch;
        followed.clear();
        followed.resize(tree.nodes(), u64::MAX);
        terms.resize(self.splits.len() * length(N), 0.0);
        let nodes = (0..tree.nodes()).filter(|&node| !tree.is_leaf(node));
        let terms = terms.chunks_exact_mut(length(N));
        for ((node, terms), &goes_left) in nodes.zip(terms).zip(&*goes_left) {
            let alive = match tree.previous[node] {
                NONE => u64::MAX,
                previous => followed[previous as usize],
            };
            let (merged, is_new) = (tree.merged[node], tree.previous[node] == NONE);
            let children = [tree.left[node], tree.right[node]].map(|child| child as usize);
            for (side, child) in children.into_iter().enumerate() {
                let goes_there = if side == 0 { goes_left } else { !goes_left };
                followed[child] = alive & goes_there;
                terms[side] = tree.share[child];
            }
            for (point, &(t, _)) in rule.iter().enumerate() {
                for (side, &child) in children.iter().enumerate() {
                    let passed = merged * tree.share[child] * (1.0 - t);
                    terms[edge::<N>(side, 0, point)] = passed + t;
                    terms[edge::<N>(side, 1, point)] = passed;
                }
                if is_new {
                    continue;
                }
                // The factor of a row that has followed, up to here.
                let factor = merged * (1.0 - t) + t;
                terms[2 + point] = merged / (factor * factor);
                for side in 0..2 {
                    terms[edge::<N>(side, 0, point)] /= factor;
                    terms[edge::<N>(side, 1, point)] /= factor;
                }
            }
        }
    }
}

/// Length of a split's terms: two shares, N scales, and of each side N ratios of a row that
/// follows the edge and N of one that does not.
const fn length(n: usize) -> usize {
    2 + 5 * n
}

/// Place of a ratio in a split's terms; `passes` is 1 for a row that does not follow.
#[inline(always)]
fn edge<const N: usize>(side: usize, passes: usize, point: usize) -> usize {
    2 + N + 2 * N * side + N * passes + point
}

/// The rows of one vector.
struct Lane<'a, L> {
    lanes: L,
    tree: &'a TreeView<'a>,
    splits: &'a [Split],
    columns: &'a [[u32; 4]],
    goes_left: &'a [u64],
    followed: &'a [u64],
    terms: &'a [f64],
    sums: &'a mut [f64],
    width: usize,
    first: usize,
}

/// A split for the rows of one vector.
#[derive(Clone, Copy)]
struct Asked<'a> {
    terms: &'a [f64],
    /// Which rows go left.
    left: u64,
    /// Which rows have followed the earlier edges of the feature; `None`: it is new.
    alive: Option<u64>,
    split: usize,
}

impl<'a, L: Lanes, const N: usize> Terms<L, N> for Lane<'a, L> {
    type Split = Asked<'a>;

    #[inline(always)]
    fn split(&self, split: usize, node: usize) -> Asked<'a> {
        let terms = &self.terms[split * length(N)..][..length(N)];
        Asked {
            terms,
            left: self.goes_left[split] >> self.first,
            alive: match self.tree.previous[node] {
                NONE => None,
                previous => Some(self.followed[previous as usize] >> self.first),
            },
            split,
        }
    }

    #[inline(always)]
    fn ratio(&self, own: Asked<'a>, side: usize, point: usize) -> L::Vector {
        let lanes = self.lanes;
        let yes = lanes.splat(own.terms[edge::<N>(side, 0, point)]);
        let no = lanes.splat(own.terms[edge::<N>(side, 1, point)]);
        let goes_there = if side == 0 { own.left } else { !own.left };
        let ratio = lanes.select(goes_there, yes, no);
        match own.alive {
            None => ratio,
            Some(alive) => lanes.select(alive, ratio, lanes.splat(own.terms[side])),
        }
    }

    #[inline(always)]
    fn pulls(&self, own: Asked<'a>) -> [L::Vector; 2] {
        let lanes = self.lanes;
        let (left, right) = (own.terms[0], own.terms[1]);
        let (yes, no) = (lanes.splat(1.0 - left), lanes.splat(-left));
        let left = lanes.select(own.left, yes, no);
        let (yes, no) = (lanes.splat(1.0 - right), lanes.splat(-right));
        [left, lanes.select(!own.left, yes, no)]
    }

    #[inline(always)]
    fn scale(&self, own: Asked<'a>, point: usize) -> Option<L::Vector> {
        own.alive?;
        Some(self.lanes.splat(own.terms[2 + point]))
    }

    #[inline(always)]
    fn add(&mut self, own: Asked<'a>, parts: [L::Vector; N], factor: Option<L::Vector>) {
        let lanes = self.lanes;
        let mut sum = lanes.splat(0.0);
        for part in parts {
            sum = lanes.add(sum, part);
        }
        if let Some(factor) = factor {
            sum = lanes.mul(sum, factor);
        }
        if let Some(alive) = own.alive {
            sum = lanes.select(alive, sum, lanes.splat(0.0));
        }
        let asked = self.columns[usize::from(self.splits[own.split][0])][0] as usize;
        let sums = &mut self.sums[asked * self.width + self.first..];
        lanes.store(lanes.add(lanes.load(sums), sum), sums);
    }
}
