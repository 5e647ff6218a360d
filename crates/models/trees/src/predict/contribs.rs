//! Contributions and interactions: calls the engines of `shap` and arranges their sums in the
//! library's shape.

use albacore_simd::Simd;

use crate::encode::keys::fill_keys;
use crate::kernel::KernelScratch;
use crate::limits::BLOCK_ROWS;
use crate::predict::{CheckedCall, Element, PredictScratch, Predictor};
use crate::shap::contributions::{FEW_ROWS, contributions_of_row, contributions_of_rows};
use crate::shap::interactions::{fits_memory, interactions_of_row};
use crate::shap::many_rows::FILL;
use crate::shap::scalar;

/// Number of features whose sums are copied to all rows before those of further features: reads hit
/// the cache, and each row is written in contiguous runs.
const TILE: usize = 16;

/// Returns the number of remaining rows for the next block. Up to three rows that exceed a multiple
/// of the vector width are processed one by one after it, which costs less than another vector.
fn block_rows(left: usize, has_single_rows: bool) -> usize {
    let rows = left.min(BLOCK_ROWS);
    match rows % FILL {
        rest @ 1..=3 if has_single_rows && rows > FILL => rows - rest,
        _ => rows,
    }
}

impl Predictor<'_> {
    /// Computes the contributions of all rows.
    pub(crate) fn contribs<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let Some(simd) = self.selection.shap_simd else {
            return self.contribs_without_vectors(call, out, scratch);
        };
        let has_single_rows = call.trees == (0..self.trees()) && self.view().has_keys();
        let width = self.groups() * (self.features() + 1);
        let mut start = 0;
        // bound: each iteration consumes at least one row.
        while start < call.count {
            let left = call.count - start;
            let is_single = has_single_rows && left <= FEW_ROWS;
            let count = match is_single {
                true => 1,
                false => block_rows(left, has_single_rows),
            };
            let out = &mut out[start * width..(start + count) * width];
            match is_single {
                true => self.contribs_of_row(call, simd, start, out, scratch),
                false => self.contribs_of_rows(call, simd, start, out, scratch),
            }
            start += count;
        }
        let mut biases = std::mem::take(&mut scratch.biases);
        self.add_biases(call, out, &mut biases);
        scratch.biases = biases;
    }

    /// Writes the last columns: the biases of the groups plus the base margins.
    pub(crate) fn add_biases<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        out: &mut [T],
        biases: &mut Vec<f64>,
    ) {
        biases.clear();
        let of_group = |group| scalar::bias(self.view(), call.trees.clone(), group);
        biases.extend((0..self.groups()).map(of_group));
        let columns = self.features() + 1;
        for (cell, index) in out.chunks_exact_mut(columns).zip(0..) {
            let (row, group) = (index / self.groups(), index % self.groups());
            // Rounded before the base margin is added, as XGBoost 3.4 does.
            cell[columns - 1] = T::of(biases[group]) + T::of(self.base(call, row, group));
        }
    }

    /// Computes the contributions of one row, without its biases.
    fn contribs_of_row<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        simd: Simd,
        row: usize,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let keys = self.keys_of_row(call, row, simd, &mut scratch.kernel);
        let sums = contributions_of_row(self.view(), keys, simd, &mut scratch.shap);
        self.copy_to_features(sums, out);
    }

    /// Computes the keys of a row.
    fn keys_of_row<'b>(
        &self,
        call: &CheckedCall<'_>,
        row: usize,
        simd: Simd,
        scratch: &'b mut KernelScratch,
    ) -> &'b [u32] {
        let view = self.view();
        let KernelScratch { keys, f32s, .. } = scratch;
        let count = view.key_count();
        if keys.len() < count {
            keys.resize(count, 0);
        }
        let row = call.rows.rows(row..row + 1, self.features());
        fill_keys(view, self.library(), row, simd, keys, f32s);
        keys
    }

    /// Copies the sums of one row, groups x split features, to the columns of their features.
    pub(crate) fn copy_to_features<T: Element>(&self, sums: &[f64], out: &mut [T]) {
        let (split_features, features) = (self.view().binned.split_features, self.features());
        if split_features.len() < features {
            out.fill(T::of(0.0));
        }
        if split_features.is_empty() {
            return;
        }
        for (out, sums) in out
            .chunks_exact_mut(features + 1)
            .zip(sums.chunks_exact(split_features.len()))
        {
            for (words, &sum) in split_features.iter().zip(sums) {
                out[words[0] as usize] = T::of(sum);
            }
        }
    }

    /// Computes the contributions of a block of rows, without their biases.
    fn contribs_of_rows<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        simd: Simd,
        start: usize,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let (view, features, groups) = (self.view(), self.features(), self.groups());
        let width = groups * (features + 1);
        let count = out.len() / width;
        let values = call.rows.rows(start..start + count, features);
        let block = &mut scratch.kernel.blocks.block;
        block.fill(view, self.library(), values, simd);
        if view.binned.split_features.len() < features {
            out.fill(T::of(0.0));
        }
        for group in 0..groups {
            let trees = call.trees.clone();
            let block = &scratch.kernel.blocks.block;
            let shap = &mut scratch.shap;
            let sums = contributions_of_rows(view, trees, group, block, simd, shap);
            let lines = count.next_multiple_of(FILL);
            let split_features = view.binned.split_features;
            let tiles = split_features.chunks(TILE).zip(sums.chunks(TILE * lines));
            for (split_features, sums) in tiles {
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    let out = &mut out[group * (features + 1)..][..features];
                    for (words, sums) in split_features.iter().zip(sums.chunks_exact(lines)) {
                        out[words[0] as usize] = T::of(sums[row]);
                    }
                }
            }
        }
    }

    /// Returns the base margin of a row and group.
    fn base(&self, call: &CheckedCall<'_>, row: usize, group: usize) -> f64 {
        match call.base_margin {
            Some(margins) => f64::from(margins[row * self.groups() + group]),
            None => self.view().base[group],
        }
    }

    fn contribs_without_vectors<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let columns = self.features() + 1;
        let width = self.groups() * columns;
        for start in (0..call.count).step_by(BLOCK_ROWS) {
            let end = call.count.min(start + BLOCK_ROWS);
            let rows = call.rows.rows(start..end, self.features());
            rows.prepare(self.library(), &mut scratch.rows);
            let PredictScratch {
                rows, sums, shap, ..
            } = &mut *scratch;
            let sums = &mut sums.f64s;
            sums.resize((end - start) * width, 0.0);
            scalar::contribs(self.view(), call.trees.clone(), rows, sums, shap);
            let out = out[start * width..end * width].chunks_exact_mut(columns);
            for (index, (out, sums)) in out.zip(sums.chunks_exact(columns)).enumerate() {
                let (row, group) = (start + index / self.groups(), index % self.groups());
                for (out, &sum) in out.iter_mut().zip(sums) {
                    *out = T::of(sum);
                }
                // Rounded before the base margin is added, as XGBoost 3.4 does.
                out[columns - 1] += T::of(self.base(call, row, group));
            }
        }
    }

    /// Computes the interactions of all rows.
    pub(crate) fn interactions<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let is_whole = call.trees == (0..self.trees()) && self.view().has_keys();
        match self.selection.shap_simd {
            Some(simd) if is_whole && fits_memory(self.view()) => {
                self.interactions_of_bundles(call, simd, out, scratch);
            }
            explain => {
                let simd = explain.unwrap_or_else(Simd::best);
                self.interactions_without_bundles(call, simd, out, scratch);
            }
        }
    }

    fn interactions_of_bundles<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        simd: Simd,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let (view, split_features) = (self.view(), self.view().binned.split_features);
        let (columns, width) = (self.features() + 1, split_features.len() + 1);
        out.fill(T::of(0.0));
        for (row, out) in out
            .chunks_exact_mut(self.groups() * columns * columns)
            .enumerate()
        {
            let keys = self.keys_of_row(call, row, simd, &mut scratch.kernel);
            let sums = interactions_of_row(view, keys, simd, &mut scratch.shap);
            let groups = out.chunks_exact_mut(columns * columns);
            for (group, (out, sums)) in groups.zip(sums.chunks_exact(width * width)).enumerate() {
                for (words, sums) in split_features.iter().zip(sums.chunks_exact(width)) {
                    let out = &mut out[words[0] as usize * columns..][..columns];
                    for (words, &sum) in split_features.iter().zip(sums) {
                        out[words[0] as usize] = T::of(sum);
                    }
                }
                let bias = scalar::bias(view, call.trees.clone(), group);
                out[columns * columns - 1] = T::of(bias) + T::of(self.base(call, row, group));
            }
        }
    }

    fn interactions_without_bundles<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        simd: Simd,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let columns = self.features() + 1;
        let cells = columns * columns;
        scratch.sums.f64s.resize(cells, 0.0);
        for (row, out) in out.chunks_exact_mut(self.groups() * cells).enumerate() {
            let values = call.rows.rows(row..row + 1, self.features());
            values.prepare(self.library(), &mut scratch.rows);
            let PredictScratch {
                rows, sums, shap, ..
            } = &mut *scratch;
            for (group, out) in out.chunks_exact_mut(cells).enumerate() {
                let trees = call.trees.clone();
                simd.run(scalar::Interactions {
                    view: self.view(),
                    trees,
                    row: rows,
                    group,
                    out: &mut sums.f64s,
                    scratch: shap,
                });
                for (out, &sum) in out.iter_mut().zip(&sums.f64s) {
                    *out = T::of(sum);
                }
                out[cells - 1] += T::of(self.base(call, row, group));
            }
        }
    }
}
