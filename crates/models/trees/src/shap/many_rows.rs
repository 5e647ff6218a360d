//! SHAP values of many rows: one tree at a time, one row per lane of a vector. Values that are the
//! same for all rows are computed first.

use albacore_simd::{Lanes, WithSimd};

use crate::layout::binned::{BinColumnWords, ColumnSplit};
use crate::layout::ensemble::{NONE, TreeView};
use crate::shap::row_descent::{RowDescent, frames_length};
use crate::shap::row_terms::{RowLanes, SPLIT_POINTS_START, terms_length};
use crate::shap::scratch::VectorScratch;

/// Rows are padded to a multiple of this, the width of the widest vector.
pub(crate) const FILL: usize = 8;

/// Computes the contributions of one tree to all rows of a block; adds to `VectorScratch::sums`.
pub(super) struct TreeShap<'a> {
    pub(super) tree: &'a TreeView<'a>,
    pub(super) splits: &'a [ColumnSplit],
    pub(super) columns: &'a [BinColumnWords],
    /// Number of rows including padding.
    pub(super) width: usize,
    /// Abscissas and weights of the quadrature points of the tree.
    pub(super) rule: &'a [(f64, f64)],
    pub(super) scratch: &'a mut VectorScratch,
}

impl WithSimd for TreeShap<'_> {
    #[inline(always)]
    fn with_simd<L: Lanes>(mut self, lanes: L) {
        match self.rule.len() {
            1 => self.with_points::<L, 1>(lanes),
            2 => self.with_points::<L, 2>(lanes),
            3 => self.with_points::<L, 3>(lanes),
            4 => self.with_points::<L, 4>(lanes),
            5 => self.with_points::<L, 5>(lanes),
            6 => self.with_points::<L, 6>(lanes),
            7 => self.with_points::<L, 7>(lanes),
            8 => self.with_points::<L, 8>(lanes),
            // A single leaf has no points; `EnsembleView::has_vector_shap` rejects more.
            _ => {}
        }
    }
}

impl TreeShap<'_> {
    #[inline(always)]
    fn with_points<L: Lanes, const N: usize>(&mut self, lanes: L) {
        let Some(rule) = self.rule.first_chunk::<N>() else {
            return;
        };
        self.compute_terms(rule);
        let VectorScratch {
            left_rows,
            followed_rows,
            terms,
            frames,
            sums,
            split_stack,
            ..
        } = &mut *self.scratch;
        let length = frames_length::<L, N>(self.tree);
        if frames.len() < length {
            frames.resize(length, 0.0);
        }
        for first in (0..self.width).step_by(L::WIDTH) {
            let rows = RowLanes::<L> {
                lanes,
                tree: self.tree,
                splits: self.splits,
                columns: self.columns,
                left_rows,
                followed_rows,
                terms,
                width: self.width,
                first,
            };
            let descent = RowDescent::<L, N> {
                rows,
                sums,
                frames,
                stack: &mut split_stack.0,
                above: rule.map(|(_, weight)| lanes.splat(weight)),
            };
            descent.run();
        }
    }

    /// Computes the [`SplitTerms`](crate::shap::row_terms::SplitTerms), and for each edge the rows
    /// that follow it and all earlier edges of its feature.
    #[inline(always)]
    fn compute_terms<const N: usize>(&mut self, rule: &[(f64, f64); N]) {
        let tree = self.tree;
        let VectorScratch {
            left_rows,
            followed_rows,
            terms,
            ..
        } = &mut *self.scratch;
        followed_rows.clear();
        followed_rows.resize(tree.nodes(), u64::MAX);
        terms.resize(self.splits.len() * terms_length(N), 0.0);
        let nodes = (0..tree.nodes()).filter(|&node| !tree.is_leaf(node));
        let terms = terms.chunks_exact_mut(terms_length(N));
        for ((node, terms), &goes_left) in nodes.zip(terms).zip(&*left_rows) {
            let earlier_edge = tree.earlier_edge[node];
            let (earlier_share, is_new) = (tree.earlier_share[node], earlier_edge == NONE);
            let on_path = if is_new {
                u64::MAX
            } else {
                followed_rows[earlier_edge as usize]
            };
            let children = [tree.left[node], tree.right[node]].map(|child| child as usize);
            followed_rows[children[0]] = on_path & goes_left;
            followed_rows[children[1]] = on_path & !goes_left;
            let shares = children.map(|child| tree.share[child]);
            terms[..2].copy_from_slice(&shares);
            let is_leaf_pair = children.iter().all(|&child| tree.is_leaf(child));
            let values = children.map(|child| tree.value[child]);
            let expected = shares[0] * values[0] + shares[1] * values[1];
            if is_leaf_pair {
                terms[2] = expected;
                terms[3] = values[0] - expected;
                terms[4] = values[1] - expected;
            }
            for (point, &(t, _)) in rule.iter().enumerate() {
                let (mut a, mut b) = (1.0 - t, t);
                if !is_new {
                    let inverse = 1.0 / (earlier_share * (1.0 - t) + t);
                    let scale = earlier_share * inverse;
                    (a, b) = (scale * (1.0 - t), inverse * t);
                    terms[SPLIT_POINTS_START + point] = scale * inverse;
                }
                let at = SPLIT_POINTS_START + N + point;
                if is_leaf_pair {
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
