//! Many rows through one tree, a lane for each: what is the same for all rows is worked out first.

use crate::ranks::Split;
use crate::shap::blocks::Scratch;
use crate::shap::descent::{Descent, frames_length};
use crate::shap::paths::NONE;
use crate::view::TreeView;
use albacore_simd::{Lanes, Work};

/// Rows are filled up to a multiple of this, the widest vector.
pub(crate) const FILL: usize = 8;

/// One tree, for all rows of a block.
pub(super) struct Explain<'a> {
    pub(super) tree: &'a TreeView<'a>,
    pub(super) splits: &'a [Split],
    pub(super) columns: &'a [[u32; 4]],
    /// Rows, with those that fill up the lanes.
    pub(super) width: usize,
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
        self.work_out_terms(rule);
        let Scratch {
            goes_left,
            followed,
            terms,
            frames,
            sums,
            open,
            ..
        } = &mut *self.scratch;
        let length = frames_length::<L, N>(self.tree);
        if frames.len() < length {
            frames.resize(length, 0.0);
        }
        for first in (0..self.width).step_by(L::WIDTH) {
            let rows = Rows::<L> {
                lanes,
                tree: self.tree,
                splits: self.splits,
                columns: self.columns,
                goes_left,
                followed,
                terms,
                width: self.width,
                first,
            };
            let descent = Descent::<L, N> {
                rows,
                sums,
                frames,
                open: &mut open.0,
                above: rule.map(|(_, weight)| lanes.splat(weight)),
            };
            descent.run();
        }
    }

    /// What is the same for all rows: the numbers of [`Terms`], and which rows follow the edges.
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
            let previous = tree.previous[node];
            let (merged, is_new) = (tree.merged[node], previous == NONE);
            let alive = if is_new {
                u64::MAX
            } else {
                followed[previous as usize]
            };
            let children = [tree.left[node], tree.right[node]].map(|child| child as usize);
            followed[children[0]] = alive & goes_left;
            followed[children[1]] = alive & !goes_left;
            let shares = children.map(|child| tree.share[child]);
            terms[..2].copy_from_slice(&shares);
            let is_twin = children.iter().all(|&child| tree.is_leaf(child));
            let values = children.map(|child| tree.value[child]);
            let expected = shares[0] * values[0] + shares[1] * values[1];
            if is_twin {
                terms[2] = expected;
                terms[3] = values[0] - expected;
                terms[4] = values[1] - expected;
            }
            for (point, &(t, _)) in rule.iter().enumerate() {
                let (mut a, mut b) = (1.0 - t, t);
                if !is_new {
                    let inverse = 1.0 / (merged * (1.0 - t) + t);
                    let scale = merged * inverse;
                    (a, b) = (scale * (1.0 - t), inverse * t);
                    terms[SCALES + point] = scale * inverse;
                }
                let at = SCALES + N + point;
                if is_twin {
                    for (side, value) in values.into_iter().enumerate() {
                        terms[at + side * N] = expected.mul_add(a, b * value);
                    }
                    continue;
                }
                (terms[at], terms[at + N]) = (a, b);
                for (side, share) in shares.into_iter().enumerate() {
                    terms[at + (2 + 2 * side) * N] = share * a + b;
                    terms[at + (3 + 2 * side) * N] = share * a;
                }
            }
        }
    }
}

/// Where the scales begin.
const SCALES: usize = 5;

/// Length of a split's terms, see [`Terms`].
const fn length(n: usize) -> usize {
    SCALES + 7 * n
}

/// What is known of a split: two shares; of a split with two leaves the expected value and what
/// both differ from it; C at each point. Then, of a split with two leaves, what goes up from each;
/// of others A, B, and of both edges the ratio of a row that follows it and of one that does not.
#[derive(Clone, Copy)]
pub(super) struct Terms<'a>(&'a [f64]);

/// A split for the rows of one vector.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) terms: Terms<'a>,
    /// Which rows go left.
    pub(super) left: u64,
    /// Which rows have followed the earlier edges of the feature; `None`: it is new.
    pub(super) alive: Option<u64>,
    /// Index among the asked features.
    pub(super) asked: usize,
}

/// The rows of one vector.
pub(super) struct Rows<'a, L> {
    pub(super) lanes: L,
    pub(super) tree: &'a TreeView<'a>,
    splits: &'a [Split],
    columns: &'a [[u32; 4]],
    goes_left: &'a [u64],
    followed: &'a [u64],
    terms: &'a [f64],
    width: usize,
    first: usize,
}

impl<'a, L: Lanes> Rows<'a, L> {
    /// Looks a split up, by its number among the splits and among the nodes.
    #[inline(always)]
    pub(super) fn split<const N: usize>(&self, split: usize, node: usize) -> Asked<'a> {
        Asked {
            terms: Terms(&self.terms[split * length(N)..][..length(N)]),
            left: self.goes_left[split] >> self.first,
            alive: match self.tree.previous[node] {
                NONE => None,
                previous => Some(self.followed[previous as usize] >> self.first),
            },
            asked: self.columns[usize::from(self.splits[split][0])][0] as usize,
        }
    }

    #[inline(always)]
    fn term(&self, own: Asked<'_>, place: usize) -> L::Vector {
        self.lanes.splat(own.terms.0[place])
    }

    /// The share of an edge (side 0: left).
    #[inline(always)]
    pub(super) fn share(&self, own: Asked<'_>, side: usize) -> L::Vector {
        self.term(own, side)
    }

    /// f' / f of an edge.
    #[inline(always)]
    pub(super) fn ratio<const N: usize>(
        &self,
        own: Asked<'_>,
        side: usize,
        point: usize,
    ) -> L::Vector {
        let at = SCALES + (3 + 2 * side) * N + point;
        let (yes, no) = (self.term(own, at), self.term(own, at + N));
        let goes_there = if side == 0 { own.left } else { !own.left };
        let ratio = self.lanes.select(goes_there, yes, no);
        match own.alive {
            None => ratio,
            Some(alive) => self.lanes.select(alive, ratio, self.share(own, side)),
        }
    }

    /// Weight of what a split contributes at a point.
    #[inline(always)]
    fn weight(&self, own: Asked<'_>, point: usize, above: L::Vector) -> L::Vector {
        match own.alive {
            None => above,
            Some(_) => self.lanes.mul(above, self.term(own, SCALES + point)),
        }
    }

    /// `x` for rows that have followed, `otherwise` for the others.
    #[inline(always)]
    fn if_alive(&self, own: Asked<'_>, x: L::Vector, otherwise: L::Vector) -> L::Vector {
        match own.alive {
            None => x,
            Some(alive) => self.lanes.select(alive, x, otherwise),
        }
    }

    /// Adds to what the split's feature contributes.
    #[inline(always)]
    fn add(&self, own: Asked<'_>, sum: L::Vector, sums: &mut [f64]) {
        let lanes = self.lanes;
        let sum = self.if_alive(own, sum, lanes.splat(0.0));
        let sums = &mut sums[own.asked * self.width + self.first..];
        lanes.store(lanes.add(lanes.load(sums), sum), sums);
    }

    /// What a split contributes, from the sums below both edges; `right` becomes the sum that goes
    /// up.
    #[inline(always)]
    pub(super) fn add_up<const N: usize>(
        &self,
        own: Asked<'_>,
        (above, left): (&[L::Vector; N], &[L::Vector; N]),
        right: &mut [L::Vector; N],
        sums: &mut [f64],
    ) {
        let lanes = self.lanes;
        let shares = [self.share(own, 0), self.share(own, 1)];
        let mut sum = lanes.splat(0.0);
        for k in 0..N {
            let parts = [
                lanes.mul(shares[0], left[k]),
                lanes.mul(shares[1], right[k]),
            ];
            let expected = lanes.add(parts[0], parts[1]);
            let followed = lanes.select(own.left, left[k], right[k]);
            let weight = self.weight(own, k, above[k]);
            sum = lanes.mul_add(weight, lanes.sub(followed, expected), sum);
            let at = SCALES + N + k;
            let (a, b) = (self.term(own, at), self.term(own, at + N));
            let below = lanes.mul_add(expected, a, lanes.mul(b, followed));
            right[k] = self.if_alive(own, below, expected);
        }
        self.add(own, sum, sums);
    }

    /// As `add_up`, of a split with two leaves. Returns the sum that goes up.
    #[inline(always)]
    pub(super) fn at_leaves<const N: usize>(
        &self,
        own: Asked<'_>,
        above: &[L::Vector; N],
        sums: &mut [f64],
    ) -> [L::Vector; N] {
        let lanes = self.lanes;
        let expected = self.term(own, 2);
        let difference = lanes.select(own.left, self.term(own, 3), self.term(own, 4));
        let (mut sum, mut below) = (lanes.splat(0.0), *above);
        for k in 0..N {
            sum = lanes.mul_add(self.weight(own, k, above[k]), difference, sum);
            let at = SCALES + N + k;
            let (yes, no) = (self.term(own, at), self.term(own, at + N));
            let value = lanes.select(own.left, yes, no);
            below[k] = self.if_alive(own, value, expected);
        }
        self.add(own, sum, sums);
        below
    }
}
