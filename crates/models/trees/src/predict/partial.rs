//! Calls of few rows on many threads: the trees are divided among the threads.
//!
//! **Problem.** Rows are independent, so threads normally divide the rows. But a call may have
//! fewer rows than there are threads, and floating-point sums depend on the order of the additions:
//! threads that each sum a subset of the trees would not give the bits of a single thread.
//!
//! **Approach.** Threads do not sum. Each stores the contributions of its trees in a
//! [`PartialOutput`]. One thread adds the partial outputs to an [`Accumulator`], tree by tree in
//! the order of a single thread. The expensive part, the walks and the products along paths, runs
//! in parallel; the additions do not. Trees are counted in *work units*: the trees that a kernel
//! processes together.
//!
//! **Proof sketch.** The leaf that a row reaches in a tree, and the contribution of a split, depend
//! only on that tree. An accumulator starts with the same values as a call, rejects a partial
//! output that does not follow the previous one, and adds the same numbers in the same order.
//!
//! **Limits.** At most a block of rows. Contributions of at most [`FEW_ROWS`] rows, which are
//! processed row by row. No interactions: a tree adds to as many cells as its paths have pairs of
//! features, and storing a term would cost as much as adding it.

use std::ops::Range;

use crate::error::PredictError;
use crate::kernel::{FloatVectors, walk};
use crate::layout::ensemble::LeafTarget;
use crate::limits::BLOCK_ROWS;
use crate::output::{ElementType, Kind, OutputMut};
use crate::predict::{Element, PredictScratch, Predictor};
use crate::rows::Rows;
use crate::shap::contributions::{FEW_ROWS, contributions_of_bundle};

/// Kind and number of rows of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct CallShape {
    kind: Kind,
    rows: usize,
}

/// Outputs of some of the trees of a call, before summation. Reused by subsequent calls.
#[derive(Debug, Default)]
pub struct PartialOutput {
    call: Option<CallShape>,
    units: Range<usize>,
    /// Leaf values: trees x rows (x groups); or contributions: bundles x rows x splits.
    values: FloatVectors,
    /// The library's leaf numbers: rows x trees.
    leaves: Vec<i32>,
}

/// Sums of a call whose trees are divided among threads. Reused by subsequent calls.
#[derive(Debug, Default)]
pub struct Accumulator {
    call: Option<CallShape>,
    /// The next work unit to add.
    next_unit: usize,
    /// Margins: rows x groups; or contributions: rows x groups x split features.
    sums: FloatVectors,
    biases: Vec<f64>,
    /// The library's leaf numbers: rows x trees.
    leaves: Vec<i32>,
}

impl Predictor<'_> {
    /// Returns the number of work units into which a call with this number of rows can be divided
    /// by trees; 0 if it cannot be divided.
    #[must_use]
    pub fn work_units(&self, kind: Kind, rows: usize) -> usize {
        let is_by_row = self.selection.shap_simd.is_some() && self.view().has_keys();
        match kind {
            _ if rows == 0 || rows > BLOCK_ROWS => 0,
            Kind::Value | Kind::Margin | Kind::Leaf => self.trees().div_ceil(walk::LANES),
            Kind::Contribs if rows <= FEW_ROWS && is_by_row && self.model.has_covers => {
                self.view().bundles.len()
            }
            Kind::Contribs | Kind::Interactions => 0,
        }
    }

    /// Computes a range of work units for these rows.
    ///
    /// # Errors
    /// Rows have the wrong length, or units exceed [`work_units`](Self::work_units).
    pub fn predict_partial(
        &self,
        kind: Kind,
        rows: Rows<'_>,
        units: Range<usize>,
        partial: &mut PartialOutput,
        scratch: &mut PredictScratch,
    ) -> Result<(), PredictError> {
        let count = self.count_rows(rows)?;
        partial.call = None;
        if units.start > units.end || units.end > self.work_units(kind, count) {
            return Err(PredictError::Divided {
                reason: "a range of work units is outside of the call",
            });
        }
        partial.units = units.clone();
        partial.call = Some(CallShape { kind, rows: count });
        let trees = self.trees_of_units(&units);
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => {
                partial.values.f64s.clear();
                self.contributions_of_bundles(rows, units, &mut partial.values.f64s, scratch);
            }
            (Kind::Leaf, _) => {
                partial.leaves.clear();
                partial.leaves.resize(trees.len() * count, 0);
                let leaves = &mut partial.leaves;
                self.kernel_call(rows)
                    .leaves(trees, leaves, &mut scratch.kernel);
            }
            (_, ElementType::F32) => {
                let values = &mut partial.values.f32s;
                (self.kernel_call(rows)).values(trees, values, &mut scratch.kernel);
            }
            _ => {
                let values = &mut partial.values.f64s;
                (self.kernel_call(rows)).values(trees, values, &mut scratch.kernel);
            }
        }
        Ok(())
    }

    /// Computes the contribution of each split of each bundle to each row.
    fn contributions_of_bundles(
        &self,
        rows: Rows<'_>,
        bundles: Range<usize>,
        out: &mut Vec<f64>,
        scratch: &mut PredictScratch,
    ) {
        let (view, Some(simd)) = (self.view(), self.selection.shap_simd) else {
            return;
        };
        let stride = walk::fill(self.kernel_call(rows), &mut scratch.kernel);
        let count = rows.values() / self.features();
        for bundle in bundles {
            for keys in scratch.kernel.keys.chunks_exact(stride).take(count) {
                let slots = contributions_of_bundle(view, bundle, keys, simd, &mut scratch.shap);
                for (_, entries) in view.scatter_of(bundle) {
                    out.extend(entries.map(|entry| slots[entry.slot]));
                }
            }
        }
    }

    /// Initializes the sums of a call with the values before the first tree.
    ///
    /// # Errors
    /// The call cannot be divided by trees.
    pub fn start_sums(
        &self,
        kind: Kind,
        rows: usize,
        sums: &mut Accumulator,
    ) -> Result<(), PredictError> {
        sums.call = None;
        if self.work_units(kind, rows) == 0 {
            return Err(PredictError::Divided {
                reason: "the call has none, because it cannot be divided by trees",
            });
        }
        sums.call = Some(CallShape { kind, rows });
        sums.next_unit = 0;
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => {
                sums.sums.f64s.clear();
                let columns = self.groups() * self.view().binned.split_features.len();
                sums.sums.f64s.resize(rows * columns, 0.0);
            }
            (Kind::Leaf, _) => {
                sums.leaves.clear();
                sums.leaves.resize(rows * self.trees(), 0);
            }
            (_, ElementType::F32) => self.start_margins::<f32>(rows, sums),
            _ => self.start_margins::<f64>(rows, sums),
        }
        Ok(())
    }

    fn start_margins<T: Element>(&self, rows: usize, sums: &mut Accumulator) {
        let margins = T::vector(&mut sums.sums);
        margins.clear();
        for _ in 0..rows {
            margins.extend(self.view().base.iter().map(|&base| T::of(base)));
        }
    }

    /// Adds a partial output, whose work units must follow those of the previous one.
    ///
    /// # Errors
    /// The partial output belongs to another call or is out of order.
    pub fn accumulate(
        &self,
        sums: &mut Accumulator,
        partial: &PartialOutput,
    ) -> Result<(), PredictError> {
        let divided = |reason| Err(PredictError::Divided { reason });
        let Some(CallShape { kind, rows }) = sums.call.filter(|_| sums.call == partial.call) else {
            return divided("a partial output belongs to another call");
        };
        if partial.units.start != sums.next_unit {
            return divided("a partial output is out of order");
        }
        let (units, trees) = (partial.units.clone(), self.trees_of_units(&partial.units));
        sums.next_unit = units.end;
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => self.add_contributions(units, rows, sums, partial),
            (Kind::Leaf, _) => {
                let to = sums.leaves.chunks_exact_mut(self.trees().max(1));
                let from = partial.leaves.chunks_exact(trees.len().max(1));
                for (to, from) in to.zip(from) {
                    to[trees.clone()].copy_from_slice(from);
                }
            }
            (_, ElementType::F32) => self.add_leaf_values::<f32>(trees, rows, sums, partial),
            _ => self.add_leaf_values::<f64>(trees, rows, sums, partial),
        }
        Ok(())
    }

    fn add_leaf_values<T: Element>(
        &self,
        trees: Range<usize>,
        rows: usize,
        sums: &mut Accumulator,
        partial: &PartialOutput,
    ) {
        let (view, groups) = (self.view(), self.groups());
        let mut remaining = T::values(&partial.values);
        let margins = T::vector(&mut sums.sums);
        for tree in trees {
            let target = view.target(tree);
            let width = match target {
                LeafTarget::Group(_) => rows,
                LeafTarget::All => rows * groups,
            };
            let (values, others) = remaining.split_at(width.min(remaining.len()));
            remaining = others;
            match target {
                LeafTarget::Group(group) => {
                    for (margins, &value) in margins.chunks_exact_mut(groups).zip(values) {
                        margins[group] += value;
                    }
                }
                LeafTarget::All => {
                    for (margin, &value) in margins.iter_mut().zip(values) {
                        *margin += value;
                    }
                }
            }
        }
    }

    fn add_contributions(
        &self,
        bundles: Range<usize>,
        rows: usize,
        sums: &mut Accumulator,
        partial: &PartialOutput,
    ) {
        let (view, features) = (self.view(), self.view().binned.split_features.len());
        let mut values = partial.values.f64s.iter();
        for bundle in bundles {
            for row in 0..rows {
                let sums = &mut sums.sums.f64s[row * self.groups() * features..];
                for (group, entries) in view.scatter_of(bundle) {
                    let sums = &mut sums[group * features..][..features];
                    for (entry, value) in entries.zip(&mut values) {
                        sums[entry.split_feature] += value;
                    }
                }
            }
        }
    }

    /// Converts complete sums into the output.
    ///
    /// # Errors
    /// A work unit is missing, or the output has the wrong length or type.
    pub fn finish_sums(
        &self,
        sums: &mut Accumulator,
        out: OutputMut<'_>,
    ) -> Result<(), PredictError> {
        let is_complete =
            |call: &CallShape| self.work_units(call.kind, call.rows) == sums.next_unit;
        let Some(call) = sums.call.take().filter(is_complete) else {
            return Err(PredictError::Divided {
                reason: "a partial output is missing",
            });
        };
        self.check_output(call.kind, call.rows, self.output_width(call.kind), &out)?;
        match out {
            OutputMut::I32(out) => out.copy_from_slice(&sums.leaves),
            OutputMut::F32(out) => self.finish_floats(call, sums, out),
            OutputMut::F64(out) => self.finish_floats(call, sums, out),
        }
        Ok(())
    }

    fn finish_floats<T: Element>(
        &self,
        CallShape { kind, rows }: CallShape,
        sums: &mut Accumulator,
        out: &mut [T],
    ) {
        let call = self.whole_call(rows);
        if kind == Kind::Contribs {
            let width = self.groups() * self.view().binned.split_features.len();
            let of_rows = out.chunks_exact_mut(self.output_width(kind).max(1));
            for (row, out) in of_rows.enumerate() {
                self.copy_to_features(&sums.sums.f64s[row * width..][..width], out);
            }
            self.add_biases(&call, out, &mut sums.biases);
            return;
        }
        let margins = T::vector(&mut sums.sums).chunks_exact_mut(self.groups());
        let width = self.output_width(kind).max(1);
        for (margins, out) in margins.zip(out.chunks_exact_mut(width)) {
            if kind == Kind::Value {
                self.values(&call, margins);
            }
            out.copy_from_slice(&margins[..width]);
        }
    }

    fn trees_of_units(&self, units: &Range<usize>) -> Range<usize> {
        let tree = |unit: usize| (unit * walk::LANES).min(self.trees());
        tree(units.start)..tree(units.end)
    }
}

#[cfg(test)]
mod tests;
