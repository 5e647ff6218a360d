//! Few rows and many threads: each thread takes some of the trees.
//!
//! **Problem.** Rows do not depend on each other, so threads share them. But a call may have fewer
//! rows than there are threads, and sums of floats depend on the order in which they are added up:
//! threads that each sum up some trees would give other bits than one thread.
//!
//! **Approach.** A thread adds nothing up. It notes what each of its trees adds, in a [`Portion`].
//! One thread adds the portions to a [`Total`], tree by tree in the order in which a thread alone
//! would have. What costs time, the walks and the products along paths, is divided; the additions
//! are not. Trees are counted in *units*: what a kernel takes at a time.
//!
//! **Proof sketch.** The leaf that a row reaches in a tree, and what a split contributes, depend on
//! that tree alone. A total starts as a call does, refuses a portion that does not follow the one
//! before, and adds the same numbers in the same order.
//!
//! **Limits.** Up to a block of rows. Contributions of up to [`FEW`] rows, which are explained row
//! by row. No interactions: a tree adds to as many cells as its paths have pairs, and noting each
//! would cost as much as adding it.

use std::ops::{AddAssign, Range};

use crate::error::PredictError;
use crate::kernel::{Task, walk};
use crate::limits::BLOCK_ROWS;
use crate::output::{ElementType, Kind, OutputMut};
use crate::predict::{Element, Predictor, Scratch};
use crate::rows::Rows;
use crate::shap::blocks::{FEW, parts_of_lot};
use crate::view::Target;

/// What some of the trees add to the outputs of a call, each by itself. Reused from call to call.
#[derive(Debug, Default)]
pub struct Portion {
    of: Option<(Kind, usize)>,
    units: Range<usize>,
    /// What leaves add: trees x rows (x groups). Contributions: lots x rows x splits, in `doubles`.
    singles: Vec<f32>,
    doubles: Vec<f64>,
    /// Names of leaves: rows x trees.
    labels: Vec<i32>,
}

/// The sums of a call whose trees are divided. Reused from call to call.
#[derive(Debug, Default)]
pub struct Total {
    of: Option<(Kind, usize)>,
    /// The unit that is to be added next.
    next: usize,
    /// Margins: rows x groups.
    singles: Vec<f32>,
    /// Margins, or contributions: rows x groups x asked features.
    doubles: Vec<f64>,
    biases: Vec<f64>,
    /// Names of leaves: rows x trees.
    labels: Vec<i32>,
}

/// Notes and sums of an element type.
trait Noted: Element + AddAssign {
    fn notes(portion: &Portion) -> &[Self];
    fn notes_mut(portion: &mut Portion) -> &mut Vec<Self>;
    fn sums_mut(total: &mut Total) -> &mut Vec<Self>;
}

impl Noted for f32 {
    fn notes(portion: &Portion) -> &[Self] {
        &portion.singles
    }

    fn notes_mut(portion: &mut Portion) -> &mut Vec<Self> {
        &mut portion.singles
    }

    fn sums_mut(total: &mut Total) -> &mut Vec<Self> {
        &mut total.singles
    }
}

impl Noted for f64 {
    fn notes(portion: &Portion) -> &[Self] {
        &portion.doubles
    }

    fn notes_mut(portion: &mut Portion) -> &mut Vec<Self> {
        &mut portion.doubles
    }

    fn sums_mut(total: &mut Total) -> &mut Vec<Self> {
        &mut total.doubles
    }
}

impl Predictor<'_> {
    /// In how many units a call for so many rows can be divided by trees; 0: not at all.
    #[must_use]
    pub fn units(&self, kind: Kind, rows: usize) -> usize {
        let is_explained_alone = self.tuning().explain.is_some() && self.has_keys();
        match kind {
            _ if rows == 0 || rows > BLOCK_ROWS => 0,
            Kind::Value | Kind::Margin | Kind::Leaf => self.trees().div_ceil(walk::ABREAST),
            Kind::Contribs if rows <= FEW && is_explained_alone && self.has_covers() => {
                self.view().lots.trees.len()
            }
            Kind::Contribs | Kind::Interactions => 0,
        }
    }

    /// Notes what a range of units adds to the outputs of these rows.
    ///
    /// # Errors
    /// Rows of the wrong length, or units that [`units`](Self::units) does not have.
    pub fn note(
        &self,
        kind: Kind,
        rows: Rows<'_>,
        units: Range<usize>,
        portion: &mut Portion,
        scratch: &mut Scratch,
    ) -> Result<(), PredictError> {
        let count = self.rows_of(rows)?;
        portion.of = None;
        if units.start > units.end || units.end > self.units(kind, count) {
            return Err(PredictError::Divided {
                reason: "a range of units is outside of what the call has",
            });
        }
        portion.units = units.clone();
        portion.of = Some((kind, count));
        let trees = self.trees_of_units(&units);
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => {
                portion.doubles.clear();
                self.note_contribs(rows, units, &mut portion.doubles, scratch);
            }
            (Kind::Leaf, _) => {
                portion.labels.clear();
                portion.labels.resize(trees.len() * count, 0);
                let labels = &mut portion.labels;
                self.task(rows).leaves(trees, labels, &mut scratch.kernel);
            }
            (_, ElementType::F32) => self.note_values::<f32>(rows, trees, portion, scratch),
            _ => self.note_values::<f64>(rows, trees, portion, scratch),
        }
        Ok(())
    }

    fn note_values<T: Noted>(
        &self,
        rows: Rows<'_>,
        trees: Range<usize>,
        portion: &mut Portion,
        scratch: &mut Scratch,
    ) {
        let task: Task<'_> = self.task(rows);
        task.values(trees, T::notes_mut(portion), &mut scratch.kernel);
    }

    /// What the splits of each lot contribute to each row.
    fn note_contribs(
        &self,
        rows: Rows<'_>,
        lots: Range<usize>,
        out: &mut Vec<f64>,
        scratch: &mut Scratch,
    ) {
        let (view, Some(simd)) = (self.view(), self.tuning().explain) else {
            return;
        };
        let stride = walk::fill(self.task(rows), &mut scratch.kernel);
        let count = rows.values() / self.features();
        for lot in lots {
            for keys in scratch.kernel.keys.chunks_exact(stride).take(count) {
                let memory = (&mut scratch.shap.rules, &mut scratch.shap.blocks);
                let parts = parts_of_lot(view, (keys, lot), simd, memory);
                for (_, adds) in view.adds_of(lot) {
                    out.extend(adds.iter().map(|add| parts[(add >> 16) as usize]));
                }
            }
        }
    }

    /// Starts a total at what comes before any tree.
    ///
    /// # Errors
    /// As [`note`](Self::note).
    pub fn start(&self, kind: Kind, rows: usize, total: &mut Total) -> Result<(), PredictError> {
        total.of = None;
        if self.units(kind, rows) == 0 {
            return Err(PredictError::Divided {
                reason: "the call cannot be divided by trees",
            });
        }
        total.of = Some((kind, rows));
        total.next = 0;
        let groups = self.groups();
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => {
                total.doubles.clear();
                let asked = self.view().ranks.asked.len();
                total.doubles.resize(rows * groups * asked, 0.0);
            }
            (Kind::Leaf, _) => {
                total.labels.clear();
                total.labels.resize(rows * self.trees(), 0);
            }
            (_, ElementType::F32) => self.start_margins::<f32>(rows, total),
            _ => self.start_margins::<f64>(rows, total),
        }
        Ok(())
    }

    fn start_margins<T: Noted>(&self, rows: usize, total: &mut Total) {
        let margins = T::sums_mut(total);
        margins.clear();
        for _ in 0..rows {
            margins.extend(self.view().base.iter().map(|&base| T::of(base)));
        }
    }

    /// Adds a portion, which must follow the one before.
    ///
    /// # Errors
    /// A portion of another call, or out of order.
    pub fn add(&self, total: &mut Total, portion: &Portion) -> Result<(), PredictError> {
        let reason = if total.of.is_none() || total.of != portion.of {
            Some("a portion belongs to another call")
        } else if portion.units.start != total.next {
            Some("a portion is out of order")
        } else {
            None
        };
        let (None, Some((kind, rows))) = (reason, total.of) else {
            let reason = reason.unwrap_or_default();
            return Err(PredictError::Divided { reason });
        };
        let (units, trees) = (portion.units.clone(), self.trees_of_units(&portion.units));
        total.next = units.end;
        match (kind, self.output_element(Kind::Margin)) {
            (Kind::Contribs, _) => self.add_contribs(units, rows, total, portion),
            (Kind::Leaf, _) => {
                let to = total.labels.chunks_exact_mut(self.trees().max(1));
                let from = portion.labels.chunks_exact(trees.len().max(1));
                for (to, from) in to.zip(from) {
                    to[trees.clone()].copy_from_slice(from);
                }
            }
            (_, ElementType::F32) => self.add_values::<f32>(trees, rows, total, portion),
            _ => self.add_values::<f64>(trees, rows, total, portion),
        }
        Ok(())
    }

    fn add_values<T: Noted>(
        &self,
        trees: Range<usize>,
        rows: usize,
        total: &mut Total,
        portion: &Portion,
    ) {
        let (view, groups) = (self.view(), self.groups());
        let mut rest = T::notes(portion);
        let margins = T::sums_mut(total);
        for tree in trees {
            let target = view.target(tree);
            let width = match target {
                Target::Group(_) => rows,
                Target::All => rows * groups,
            };
            let (values, others) = rest.split_at(width.min(rest.len()));
            rest = others;
            match target {
                Target::Group(group) => {
                    for (margins, &value) in margins.chunks_exact_mut(groups).zip(values) {
                        margins[group] += value;
                    }
                }
                Target::All => {
                    for (margin, &value) in margins.iter_mut().zip(values) {
                        *margin += value;
                    }
                }
            }
        }
    }

    fn add_contribs(&self, lots: Range<usize>, rows: usize, total: &mut Total, from: &Portion) {
        let (view, asked) = (self.view(), self.view().ranks.asked.len());
        let mut values = from.doubles.iter();
        for lot in lots {
            for row in 0..rows {
                let sums = &mut total.doubles[row * self.groups() * asked..];
                for (group, adds) in view.adds_of(lot) {
                    let sums = &mut sums[group * asked..][..asked];
                    for (add, value) in adds.iter().zip(&mut values) {
                        sums[(add & 0xffff) as usize] += value;
                    }
                }
            }
        }
    }

    /// Turns a total that has all portions into the output.
    ///
    /// # Errors
    /// A portion is missing, or the output has the wrong length or type.
    pub fn finish(&self, total: &mut Total, out: OutputMut<'_>) -> Result<(), PredictError> {
        let of = total
            .of
            .take()
            .filter(|&(kind, rows)| self.units(kind, rows) == total.next);
        let Some((kind, rows)) = of else {
            return Err(PredictError::Divided {
                reason: "a portion is missing",
            });
        };
        self.check_output(kind, (rows, self.output_width(kind)), &out)?;
        match out {
            OutputMut::I32(out) => out.copy_from_slice(&total.labels),
            OutputMut::F32(out) => self.finish_floats((kind, rows), total, out),
            OutputMut::F64(out) => self.finish_floats((kind, rows), total, out),
        }
        Ok(())
    }

    fn finish_floats<T: Noted>(
        &self,
        (kind, rows): (Kind, usize),
        total: &mut Total,
        out: &mut [T],
    ) {
        let call = self.whole_call(rows);
        if kind == Kind::Contribs {
            let sums = self.groups() * self.view().ranks.asked.len();
            let of_rows = out.chunks_exact_mut(self.output_width(kind).max(1));
            for (row, out) in of_rows.enumerate() {
                self.spread(&total.doubles[row * sums..][..sums], out);
            }
            self.add_biases(&call, out, &mut total.biases);
            return;
        }
        let margins = T::sums_mut(total).chunks_exact_mut(self.groups());
        let width = self.output_width(kind).max(1);
        for (margins, out) in margins.zip(out.chunks_exact_mut(width)) {
            if kind == Kind::Value {
                self.values(&call, margins);
            }
            out.copy_from_slice(&margins[..width]);
        }
    }

    fn trees_of_units(&self, units: &Range<usize>) -> Range<usize> {
        let tree = |unit: usize| (unit * walk::ABREAST).min(self.trees());
        tree(units.start)..tree(units.end)
    }
}

#[cfg(test)]
mod tests;
