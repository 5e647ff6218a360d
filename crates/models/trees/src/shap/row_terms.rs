//! Constants of one tree's splits for a block of rows, and the arithmetic of a split.
//!
//! The operations and their order are those of `one_row`.

use albacore_simd::Lanes;

use crate::layout::binned::{BinColumn, BinColumnWords, ColumnSplit};
use crate::layout::ensemble::{NONE, TreeView};

/// Index of the first term of [`SplitTerms`] with a value per quadrature point.
pub(super) const SPLIT_POINTS_START: usize = 5;

/// Returns the number of terms of a split.
pub(super) const fn terms_length(points: usize) -> usize {
    SPLIT_POINTS_START + 7 * points
}

/// Constants of a split: the shares of its two edges; for a split with two leaves, the expected
/// value and the difference of each leaf from it; at each point, c of `contributions`. Then, for a
/// split with two leaves, the sum below it for a row that goes left and for one that goes right;
/// for other splits a, b, and for each edge the ratio f' / f of a row that follows it and of one
/// that does not.
#[derive(Clone, Copy)]
pub(super) struct SplitTerms<'a>(&'a [f64]);

/// A split for the rows of one vector.
#[derive(Clone, Copy)]
pub(super) struct RowSplit<'a> {
    pub(super) terms: SplitTerms<'a>,
    /// Rows that go left.
    pub(super) left: u64,
    /// Rows that have followed the earlier edges of the feature; `None`: the feature is new.
    pub(super) on_path: Option<u64>,
    /// Index among the split features.
    pub(super) split_feature: usize,
}

/// Rows of one vector.
pub(super) struct RowLanes<'a, L> {
    pub(super) lanes: L,
    pub(super) tree: &'a TreeView<'a>,
    pub(super) splits: &'a [ColumnSplit],
    pub(super) columns: &'a [BinColumnWords],
    pub(super) left_rows: &'a [u64],
    pub(super) followed_rows: &'a [u64],
    pub(super) terms: &'a [f64],
    /// Rows of a block including padding.
    pub(super) width: usize,
    /// Row in the first lane.
    pub(super) first: usize,
}

impl<'a, L: Lanes> RowLanes<'a, L> {
    /// Returns a split, given its index among the splits and among the nodes.
    #[inline(always)]
    pub(super) fn split<const N: usize>(&self, split: usize, node: usize) -> RowSplit<'a> {
        RowSplit {
            terms: SplitTerms(&self.terms[split * terms_length(N)..][..terms_length(N)]),
            left: self.left_rows[split] >> self.first,
            on_path: match self.tree.earlier_edge[node] {
                NONE => None,
                earlier_edge => Some(self.followed_rows[earlier_edge as usize] >> self.first),
            },
            split_feature: {
                let column = self.columns[usize::from(self.splits[split][0])];
                BinColumn::from_words(column).split_feature as usize
            },
        }
    }

    #[inline(always)]
    fn term(&self, own: RowSplit<'_>, index: usize) -> L::Vector {
        self.lanes.splat(own.terms.0[index])
    }

    /// Returns the share of an edge (side 0: left).
    #[inline(always)]
    pub(super) fn share(&self, own: RowSplit<'_>, side: usize) -> L::Vector {
        self.term(own, side)
    }

    /// Returns f' / f of an edge.
    #[inline(always)]
    pub(super) fn ratio<const N: usize>(
        &self,
        own: RowSplit<'_>,
        side: usize,
        point: usize,
    ) -> L::Vector {
        let at = SPLIT_POINTS_START + (3 + 2 * side) * N + point;
        let (yes, no) = (self.term(own, at), self.term(own, at + N));
        let goes_there = if side == 0 { own.left } else { !own.left };
        let ratio = self.lanes.select(goes_there, yes, no);
        match own.on_path {
            None => ratio,
            Some(on_path) => self.lanes.select(on_path, ratio, self.share(own, side)),
        }
    }

    /// Returns the factor of a contribution at a point: the product above times c.
    #[inline(always)]
    fn weight(&self, own: RowSplit<'_>, point: usize, above: L::Vector) -> L::Vector {
        match own.on_path {
            None => above,
            Some(_) => self
                .lanes
                .mul(above, self.term(own, SPLIT_POINTS_START + point)),
        }
    }

    /// Returns `x` for rows on the path of the feature, `otherwise` for the others.
    #[inline(always)]
    fn if_on_path(&self, own: RowSplit<'_>, x: L::Vector, otherwise: L::Vector) -> L::Vector {
        match own.on_path {
            None => x,
            Some(on_path) => self.lanes.select(on_path, x, otherwise),
        }
    }

    /// Adds to the contribution of the split's feature.
    #[inline(always)]
    fn add(&self, own: RowSplit<'_>, sum: L::Vector, sums: &mut [f64]) {
        let lanes = self.lanes;
        let sum = self.if_on_path(own, sum, lanes.splat(0.0));
        let sums = &mut sums[own.split_feature * self.width + self.first..];
        lanes.store(lanes.add(lanes.load(sums), sum), sums);
    }

    /// Adds the contribution of a split, given the sums below both edges; `right` becomes the sum
    /// below the split.
    #[inline(always)]
    pub(super) fn contribute<const N: usize>(
        &self,
        own: RowSplit<'_>,
        above: &[L::Vector; N],
        left: &[L::Vector; N],
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
            let at = SPLIT_POINTS_START + N + k;
            let (a, b) = (self.term(own, at), self.term(own, at + N));
            let below = lanes.mul_add(expected, a, lanes.mul(b, followed));
            right[k] = self.if_on_path(own, below, expected);
        }
        self.add(own, sum, sums);
    }

    /// Like `contribute`, for a split with two leaves. Returns the sum below the split.
    #[inline(always)]
    pub(super) fn contribute_leaf_pair<const N: usize>(
        &self,
        own: RowSplit<'_>,
        above: &[L::Vector; N],
        sums: &mut [f64],
    ) -> [L::Vector; N] {
        let lanes = self.lanes;
        let expected = self.term(own, 2);
        let difference = lanes.select(own.left, self.term(own, 3), self.term(own, 4));
        let (mut sum, mut below) = (lanes.splat(0.0), *above);
        for k in 0..N {
            sum = lanes.mul_add(self.weight(own, k, above[k]), difference, sum);
            let at = SPLIT_POINTS_START + N + k;
            let (yes, no) = (self.term(own, at), self.term(own, at + N));
            let value = lanes.select(own.left, yes, no);
            below[k] = self.if_on_path(own, value, expected);
        }
        self.add(own, sum, sums);
        below
    }
}
