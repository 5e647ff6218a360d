//! From a call to the engines of `shap`, and from their sums to what the library shapes.

use crate::kernel;
use crate::limits::BLOCK_ROWS;
use crate::predict::{Call, Element, Predictor, Scratch};
use crate::ranks::keys::fill_keys;
use crate::shap;
use crate::shap::blocks::{FEW, contribs_of_row};
use crate::simd::Simd;

/// Features whose sums are copied to all rows before the next ones: what they read stays near, and
/// each row gets a stretch of its own.
const TILE: usize = 16;

impl Predictor<'_> {
    /// Contributions of all rows.
    pub(crate) fn contribs<T: Element>(
        &self,
        call: &Call<'_>,
        out: &mut [T],
        scratch: &mut Scratch,
    ) {
        let Some(simd) = self.tuning().explain else {
            return self.contribs_by_walk(call, out, scratch);
        };
        let all = 0..self.trees();
        let has_keys = !self.view().ranks.steps.is_empty();
        let mut biases = std::mem::take(&mut scratch.biases);
        biases.clear();
        biases.extend(
            (0..self.groups())
                .map(|group| T::of(shap::bias(self.view(), call.trees.clone(), group)).widened()),
        );
        let width = self.groups() * (self.features() + 1);
        let mut start = 0;
        // bound: each turn takes a row at least.
        while start < call.count {
            let left = call.count - start;
            let is_alone = left <= FEW && call.trees == all && has_keys;
            let count = if is_alone { 1 } else { left.min(BLOCK_ROWS) };
            let part = (start, &mut out[start * width..(start + count) * width]);
            match is_alone {
                true => self.contribs_of_row(call, simd, part, scratch),
                false => self.contribs_of_rows(call, simd, part, scratch),
            }
            start += count;
        }
        let columns = self.features() + 1;
        for (cell, index) in out.chunks_exact_mut(columns).zip(0..) {
            let (row, group) = (index / self.groups(), index % self.groups());
            // Rounded before the base margin is added, as XGBoost 3.4 does.
            cell[columns - 1] = T::of(biases[group]).plus(self.base(call, row, group));
        }
        scratch.biases = biases;
    }

    /// One row, without its biases.
    fn contribs_of_row<T: Element>(
        &self,
        call: &Call<'_>,
        simd: Simd,
        (row, out): (usize, &mut [T]),
        scratch: &mut Scratch,
    ) {
        let (view, features) = (self.view(), self.features());
        let kernel::Scratch { keys, singles, .. } = &mut scratch.kernel;
        let count = view.key_count();
        if keys.len() < count {
            keys.resize(count, 0);
        }
        fill_keys(
            view,
            self.library(),
            call.rows,
            (row, simd),
            (keys, singles),
        );
        let memory = (&mut scratch.shap.rules, &mut scratch.shap.blocks);
        let sums = contribs_of_row(view, keys, simd, memory);
        let asked = view.ranks.asked;
        if asked.len() < features {
            out.fill(T::of(0.0));
        }
        if asked.is_empty() {
            return;
        }
        for (out, sums) in out
            .chunks_exact_mut(features + 1)
            .zip(sums.chunks_exact(asked.len()))
        {
            for (words, &sum) in asked.iter().zip(sums) {
                out[words[0] as usize] = T::of(sum);
            }
        }
    }

    /// A block of rows, without their biases.
    fn contribs_of_rows<T: Element>(
        &self,
        call: &Call<'_>,
        simd: Simd,
        (start, out): (usize, &mut [T]),
        scratch: &mut Scratch,
    ) {
        let (view, features, groups) = (self.view(), self.features(), self.groups());
        let width = groups * (features + 1);
        let count = out.len() / width;
        let block = &mut scratch.kernel.blocks.block;
        let values = call
            .rows
            .slice(start * features..(start + count) * features);
        block.fill(view, self.library(), values, simd);
        if view.ranks.asked.len() < features {
            out.fill(T::of(0.0));
        }
        for group in 0..groups {
            let task = shap::blocks::Task {
                view,
                block,
                rows: count,
                simd,
            };
            let memory = (&mut scratch.shap.rules, &mut scratch.shap.blocks);
            let (sums, lines) = task.contribs(call.trees.clone(), group, memory);
            let tiles = view.ranks.asked.chunks(TILE).zip(sums.chunks(TILE * lines));
            for (asked, sums) in tiles {
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    let out = &mut out[group * (features + 1)..][..features];
                    for (words, sums) in asked.iter().zip(sums.chunks_exact(lines)) {
                        out[words[0] as usize] = T::of(sums[row]);
                    }
                }
            }
        }
    }

    /// The base margin of a row and group.
    fn base(&self, call: &Call<'_>, row: usize, group: usize) -> f64 {
        match call.base_margin {
            Some(margins) => f64::from(margins[row * self.groups() + group]),
            None => self.view().base[group],
        }
    }

    fn contribs_by_walk<T: Element>(&self, call: &Call<'_>, out: &mut [T], scratch: &mut Scratch) {
        let columns = self.features() + 1;
        let width = self.groups() * columns;
        for start in (0..call.count).step_by(BLOCK_ROWS) {
            let end = call.count.min(start + BLOCK_ROWS);
            let rows = call
                .rows
                .slice(start * self.features()..end * self.features());
            rows.prepare(self.library(), &mut scratch.rows);
            let Scratch {
                rows, sums, shap, ..
            } = &mut *scratch;
            sums.resize((end - start) * width, 0.0);
            shap::contribs(self.view(), call.trees.clone(), rows, sums, shap);
            let out = out[start * width..end * width].chunks_exact_mut(columns);
            for (index, (out, sums)) in out.zip(sums.chunks_exact(columns)).enumerate() {
                let (row, group) = (start + index / self.groups(), index % self.groups());
                for (out, &sum) in out.iter_mut().zip(sums) {
                    *out = T::of(sum);
                }
                // Rounded before the base margin is added, as XGBoost 3.4 does.
                out[columns - 1] = out[columns - 1].plus(self.base(call, row, group));
            }
        }
    }

    /// Interactions of all rows.
    pub(crate) fn interactions<T: Element>(
        &self,
        call: &Call<'_>,
        out: &mut [T],
        scratch: &mut Scratch,
    ) {
        let columns = self.features() + 1;
        let cells = columns * columns;
        scratch.sums.resize(cells, 0.0);
        let simd = self.tuning().explain.unwrap_or_else(Simd::best);
        for (row, out) in out.chunks_exact_mut(self.groups() * cells).enumerate() {
            let values = call
                .rows
                .slice(row * self.features()..(row + 1) * self.features());
            values.prepare(self.library(), &mut scratch.rows);
            let Scratch {
                rows, sums, shap, ..
            } = &mut *scratch;
            for (group, out) in out.chunks_exact_mut(cells).enumerate() {
                let trees = call.trees.clone();
                simd.run(shap::Interactions {
                    view: self.view(),
                    trees,
                    row: rows,
                    group,
                    out: sums,
                    scratch: shap,
                });
                for (out, &sum) in out.iter_mut().zip(sums.iter()) {
                    *out = T::of(sum);
                }
                out[cells - 1] = out[cells - 1].plus(self.base(call, row, group));
            }
        }
    }
}
