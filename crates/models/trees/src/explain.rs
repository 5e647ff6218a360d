//! From a call to the engines of `shap`, and from their sums to what the library shapes.

use crate::kernel;
use crate::limits::BLOCK_ROWS;
use crate::predict::{Call, Element, Predictor, Scratch};
use crate::ranks::keys::fill_keys;
use crate::shap;
use crate::shap::blocks::{FEW, contribs_of_row};
use crate::shap::pairs::{can_pair, interactions_of_row};
use crate::shap::rows::FILL;
use albacore_simd::Simd;

/// Features whose sums are copied to all rows before the next ones: what they read stays near, and
/// each row gets a stretch of its own.
const TILE: usize = 16;

/// How many rows of those that are left make a block. A few beyond whole vectors are explained one
/// by one after it, as a vector for them would cost more.
fn rows_together(left: usize, can_be_alone: bool) -> usize {
    let rows = left.min(BLOCK_ROWS);
    match rows % FILL {
        rest @ 1..=3 if can_be_alone && rows > FILL => rows - rest,
        _ => rows,
    }
}

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
        let has_keys = self.has_keys();
        let width = self.groups() * (self.features() + 1);
        let mut start = 0;
        // bound: each turn takes a row at least.
        while start < call.count {
            let left = call.count - start;
            let can_be_alone = call.trees == all && has_keys;
            let is_alone = left <= FEW && can_be_alone;
            let count = match is_alone {
                true => 1,
                false => rows_together(left, can_be_alone),
            };
            let part = (start, &mut out[start * width..(start + count) * width]);
            match is_alone {
                true => self.contribs_of_row(call, simd, part, scratch),
                false => self.contribs_of_rows(call, simd, part, scratch),
            }
            start += count;
        }
        let mut biases = std::mem::take(&mut scratch.biases);
        self.add_biases(call, out, &mut biases);
        scratch.biases = biases;
    }

    /// Fills in the last columns: the biases of the groups and the base margins.
    pub(crate) fn add_biases<T: Element>(
        &self,
        call: &Call<'_>,
        out: &mut [T],
        biases: &mut Vec<f64>,
    ) {
        biases.clear();
        let of_group = |group| shap::bias(self.view(), call.trees.clone(), group);
        biases.extend((0..self.groups()).map(|group| T::of(of_group(group)).widened()));
        let columns = self.features() + 1;
        for (cell, index) in out.chunks_exact_mut(columns).zip(0..) {
            let (row, group) = (index / self.groups(), index % self.groups());
            // Rounded before the base margin is added, as XGBoost 3.4 does.
            cell[columns - 1] = T::of(biases[group]).plus(self.base(call, row, group));
        }
    }

    /// One row, without its biases.
    fn contribs_of_row<T: Element>(
        &self,
        call: &Call<'_>,
        simd: Simd,
        (row, out): (usize, &mut [T]),
        scratch: &mut Scratch,
    ) {
        let view = self.view();
        let keys = self.keys_of_row(call, (row, simd), &mut scratch.kernel);
        let memory = (&mut scratch.shap.rules, &mut scratch.shap.blocks);
        let sums = contribs_of_row(view, keys, simd, memory);
        self.spread(sums, out);
    }

    /// The keys of a row.
    fn keys_of_row<'b>(
        &self,
        call: &Call<'_>,
        place: (usize, Simd),
        scratch: &'b mut kernel::Scratch,
    ) -> &'b [u32] {
        let view = self.view();
        let kernel::Scratch { keys, singles, .. } = scratch;
        let count = view.key_count();
        if keys.len() < count {
            keys.resize(count, 0);
        }
        fill_keys(view, self.library(), call.rows, place, (keys, singles));
        keys
    }

    /// The sums of one row, groups x asked features, in the places of their features.
    pub(crate) fn spread<T: Element>(&self, sums: &[f64], out: &mut [T]) {
        let (asked, features) = (self.view().ranks.asked, self.features());
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
        let is_whole = call.trees == (0..self.trees()) && self.has_keys();
        match self.tuning().explain {
            Some(simd) if is_whole && can_pair(self.view()) => {
                self.interactions_by_lots(call, simd, out, scratch);
            }
            explain => {
                let simd = explain.unwrap_or_else(Simd::best);
                self.interactions_by_walk(call, simd, out, scratch);
            }
        }
    }

    fn interactions_by_lots<T: Element>(
        &self,
        call: &Call<'_>,
        simd: Simd,
        out: &mut [T],
        scratch: &mut Scratch,
    ) {
        let (view, asked) = (self.view(), self.view().ranks.asked);
        let (columns, width) = (self.features() + 1, asked.len() + 1);
        out.fill(T::of(0.0));
        for (row, out) in out
            .chunks_exact_mut(self.groups() * columns * columns)
            .enumerate()
        {
            let keys = self.keys_of_row(call, (row, simd), &mut scratch.kernel);
            let memory = (&mut scratch.shap.rules, &mut scratch.shap.blocks);
            let sums = interactions_of_row(view, keys, simd, memory);
            let groups = out.chunks_exact_mut(columns * columns);
            for (group, (out, sums)) in groups.zip(sums.chunks_exact(width * width)).enumerate() {
                for (words, sums) in asked.iter().zip(sums.chunks_exact(width)) {
                    let out = &mut out[words[0] as usize * columns..][..columns];
                    for (words, &sum) in asked.iter().zip(sums) {
                        out[words[0] as usize] = T::of(sum);
                    }
                }
                let bias = shap::bias(view, call.trees.clone(), group);
                out[columns * columns - 1] = T::of(bias).plus(self.base(call, row, group));
            }
        }
    }

    fn interactions_by_walk<T: Element>(
        &self,
        call: &Call<'_>,
        simd: Simd,
        out: &mut [T],
        scratch: &mut Scratch,
    ) {
        let columns = self.features() + 1;
        let cells = columns * columns;
        scratch.sums.resize(cells, 0.0);
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
