//! Approximate contributions: XGBoost's `approx_contribs`, after Saabas (2014).
//!
//! The feature of each split on a row's path is assigned the change of the expected value: the mean
//! of the child that the row goes to minus the mean of the node (means weighted by cover). This
//! takes one walk per tree and sums to the margin, but lacks the consistency of SHAP values. The
//! approximation has no interactions: its values are on the diagonal, as in XGBoost.
//!
//! Sums are in `f64` here and in `f32` in XGBoost, so the last digits differ.

use std::ops::Range;

use albacore_formats::Library;

use super::{PredictScratch, PredictionOptions, Predictor};
use crate::error::PredictError;
use crate::layout::ensemble::{EnsembleView, LeafTarget, TreeView};
use crate::output::{Kind, OutputMut};
use crate::rows::Rows;

impl Predictor<'_> {
    /// Like [`predict_with`](Self::predict_with), but computes contributions and interactions by
    /// XGBoost's approximation (`approx_contribs=True`).
    ///
    /// # Errors
    /// As `predict_with`; other kinds, LightGBM's models, and models with vector leaves have no
    /// approximation.
    pub fn predict_approx(
        &self,
        kind: Kind,
        rows: Rows<'_>,
        options: &PredictionOptions<'_>,
        out: OutputMut<'_>,
        scratch: &mut PredictScratch,
    ) -> Result<(), PredictError> {
        if let Some(reason) = self.approximation_unsupported_reason(kind) {
            return Err(PredictError::Unsupported { kind, reason });
        }
        let call = self.check(kind, rows, options, &out)?;
        // `check` has compared the element type.
        let OutputMut::F32(out) = out else {
            return Ok(());
        };
        let view = self.view();
        let (features, groups) = (self.features(), self.groups());
        let columns = features + 1;
        let cells = if kind == Kind::Contribs {
            columns
        } else {
            columns * columns
        };
        let step = if kind == Kind::Contribs {
            1
        } else {
            columns + 1
        };
        let means = means(view, call.trees.clone());
        let mut sums = vec![0.0; groups * columns];
        for (row, out) in out.chunks_exact_mut(groups * cells).enumerate() {
            let values = call.rows.rows(row..row + 1, features);
            values.prepare(Library::Xgboost, &mut scratch.rows);
            sums.fill(0.0);
            explain(view, call.trees.clone(), &means, &scratch.rows, &mut sums);
            for (group, (out, sums)) in out
                .chunks_exact_mut(cells)
                .zip(sums.chunks_exact(columns))
                .enumerate()
            {
                out.fill(0.0);
                for (out, &sum) in out.iter_mut().step_by(step).zip(sums) {
                    *out = sum as f32;
                }
                out[cells - 1] += match call.base_margin {
                    Some(margins) => margins[row * groups + group],
                    None => view.base[group] as f32,
                };
            }
        }
        Ok(())
    }

    fn approximation_unsupported_reason(&self, kind: Kind) -> Option<&'static str> {
        let view = self.view();
        if !matches!(kind, Kind::Contribs | Kind::Interactions) {
            Some("only contributions and interactions have an approximation")
        } else if self.library() != Library::Xgboost {
            Some("only XGBoost has approximate contributions")
        } else if (0..view.trees()).any(|tree| view.tree(tree).target == LeafTarget::All) {
            Some("the leaves of its trees are vectors")
        } else {
            None
        }
    }
}

/// Returns the mean of every node of these trees, weighted by cover.
fn means(view: &EnsembleView<'_>, trees: Range<usize>) -> Vec<f64> {
    let mut means = Vec::new();
    for tree in trees.map(|tree| view.tree(tree)) {
        let start = means.len();
        means.resize(start + tree.nodes(), 0.0);
        let means = &mut means[start..];
        // Children follow their parents.
        for node in (0..tree.nodes()).rev() {
            means[node] = match tree.is_leaf(node) {
                true => tree.value[node],
                false => {
                    let share = |child: u32| means[child as usize] * tree.share[child as usize];
                    share(tree.left[node]) + share(tree.right[node])
                }
            };
        }
    }
    means
}

/// Adds the approximate contributions of a row: groups x (features + 1), the bias in the last
/// column.
fn explain(
    view: &EnsembleView<'_>,
    trees: Range<usize>,
    means: &[f64],
    row: &[f64],
    sums: &mut [f64],
) {
    let columns = row.len() + 1;
    let mut start = 0;
    for tree in trees.map(|tree| view.tree(tree)) {
        let means = &means[start..start + tree.nodes()];
        start += tree.nodes();
        // Vector leaves have been rejected.
        if let LeafTarget::Group(group) = tree.target {
            walk(&tree, means, row, &mut sums[group * columns..][..columns]);
        }
    }
}

fn walk(tree: &TreeView<'_>, means: &[f64], row: &[f64], sums: &mut [f64]) {
    sums[row.len()] += means[0];
    let mut node = 0;
    // bound: a child's index is greater than its parent's.
    while !tree.is_leaf(node) {
        let feature = tree.feature[node] as usize;
        let left = tree.goes_left(node, row[feature]);
        let next = if left {
            tree.left[node]
        } else {
            tree.right[node]
        } as usize;
        sums[feature] += means[next] - means[node];
        node = next;
    }
}
