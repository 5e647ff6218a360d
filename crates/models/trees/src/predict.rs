//! Predictions from a compiled model, and the shapes of their outputs.

mod approx;
mod contribs;
pub(crate) mod partial;

use std::ops::Range;

use albacore_formats::{Library, Transform};

use crate::error::{ImageError, PredictError};
use crate::kernel::selection::{KernelSelection, RowTime, SelectedKernel};
use crate::kernel::{FloatVectors, Kernel, KernelCall, KernelScratch, Sum};
use crate::layout::ensemble::EnsembleView;
use crate::limits::BLOCK_ROWS;
use crate::open::{Opened, open};
use crate::output::{ElementType, Kind, OutputMut};
use crate::rows::Rows;
use crate::shap::ShapScratch;
use crate::transform::{apply_f32, apply_f64};

/// Options of a prediction.
#[derive(Debug, Clone, Default)]
pub struct PredictionOptions<'a> {
    /// Boosting iterations to use; by default all of the model. Leaf outputs then have one column
    /// per tree of the range. This is XGBoost's `iteration_range`, but also for leaves and
    /// contributions, for which XGBoost requires ranges that start at the first iteration.
    /// `best_iteration` of a model file is the last iteration of the range that its own library
    /// would use.
    #[doc(alias = "iteration_range")]
    pub iterations: Option<Range<usize>>,
    /// Margins to start from, rows x groups, instead of the model's base score. XGBoost only.
    pub base_margin: Option<&'a [f32]>,
}

/// Memory reused by subsequent predictions; one per thread.
#[derive(Debug, Default)]
pub struct PredictScratch {
    pub(crate) rows: Vec<f64>,
    pub(crate) sums: FloatVectors,
    pub(crate) biases: Vec<f64>,
    pub(crate) shap: ShapScratch,
    pub(crate) kernel: KernelScratch,
}

/// Predicts from a compiled model in place, without copying the model.
#[derive(Debug, Clone, Copy)]
pub struct Predictor<'a> {
    pub(crate) model: Opened<'a>,
    pub(crate) selection: KernelSelection,
}

/// Checked rows, trees and base margin of a call.
pub(crate) struct CheckedCall<'a> {
    pub(crate) rows: Rows<'a>,
    pub(crate) count: usize,
    pub(crate) trees: Range<usize>,
    iterations: usize,
    pub(crate) base_margin: Option<&'a [f32]>,
}

impl<'a> Predictor<'a> {
    /// Opens an image, which must be aligned to 8 bytes, as memory mappings and
    /// [`Image::bytes`](crate::Image::bytes) are.
    ///
    /// # Errors
    /// The image is corrupt: another version, missing bytes, a wrong checksum, or an index out of
    /// range.
    pub fn open(image: &'a [u8]) -> Result<Self, ImageError> {
        let model = open(image)?;
        let by_rule = KernelSelection::by_rule(&model.view);
        let selection = by_rule.with_words(&model.tuning, &model.view);
        Ok(Self { model, selection })
    }

    /// Uses one kernel for all calls; `None` if this cpu or this model does not support it. For
    /// tests and measurements.
    #[must_use]
    pub fn with_kernel(self, kernel: Kernel) -> Option<Self> {
        let engine = kernel.engine(&self.model.view)?;
        Some(Self {
            selection: KernelSelection::only(kernel, engine, &self.model.view),
            ..self
        })
    }

    pub(crate) fn view(&self) -> &EnsembleView<'a> {
        &self.model.view
    }

    /// Returns the kernel for each number of rows.
    #[must_use]
    pub fn choices(&self) -> &[SelectedKernel] {
        &self.selection.choices
    }

    /// Returns the working set of a kernel in bytes: its part of the model, and its encoding of the
    /// rows of a call, for at most 64 rows. It is read fast if it fits in the L2 cache of a core.
    #[must_use]
    pub fn working_set(&self, kernel: Kernel) -> usize {
        let (view, form) = (self.view(), &self.view().binned);
        match kernel {
            Kernel::Nodes => {
                size_of_val(view.left)
                    + size_of_val(view.right)
                    + size_of_val(view.feature)
                    + size_of_val(view.flags)
                    + size_of_val(view.value)
            }
            Kernel::Walk => {
                let keys = view.key_count() * size_of::<u32>();
                size_of_val(form.walk_nodes) + size_of_val(form.leaf_f64s) + keys
            }
            Kernel::Blocks | Kernel::BlocksAvx2 | Kernel::BlocksAvx512 => {
                size_of_val(form.level_order)
                    + size_of_val(form.leaf_values)
                    + size_of_val(form.leaf_f64s)
                    + size_of_val(form.tables)
                    + form.columns.len() * BLOCK_ROWS
            }
        }
    }

    /// Returns the measured nanoseconds per row in a call with this number of rows; `None` if not
    /// measured. Leaves take as long as margins; interactions take at least the time of
    /// contributions, which is returned for them.
    #[must_use]
    pub fn row_nanoseconds(&self, kind: Kind, rows: usize) -> Option<f64> {
        match kind {
            Kind::Value | Kind::Margin | Kind::Leaf => self.selection.choice(rows).nanoseconds,
            Kind::Contribs | Kind::Interactions => self.selection.row_time(RowTime::Contribs),
        }
    }

    /// Returns the nanoseconds of the serial part of a row when trees are divided among threads;
    /// `None` if not measured.
    #[must_use]
    pub fn serial_nanoseconds(&self, kind: Kind) -> Option<f64> {
        let row_time = match kind {
            Kind::Value | Kind::Margin | Kind::Leaf => RowTime::SerialMargin,
            Kind::Contribs => RowTime::SerialContribs,
            Kind::Interactions => return None,
        };
        self.selection.row_time(row_time)
    }

    /// Returns the library that trained the model.
    #[must_use]
    pub fn library(&self) -> Library {
        self.model.library
    }

    /// Returns the number of features, the width of a row.
    #[must_use]
    pub fn features(&self) -> usize {
        self.model.view.features
    }

    /// Returns the number of classes or targets, the margins of a row.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.model.view.groups
    }

    #[must_use]
    pub fn trees(&self) -> usize {
        self.model.view.trees()
    }

    /// Returns the number of leaves of all trees.
    #[must_use]
    pub fn leaves(&self) -> usize {
        self.model.view.flags.len().midpoint(self.trees())
    }

    /// Returns the number of edges from a root to the deepest leaf of the model.
    #[must_use]
    pub fn depth(&self) -> usize {
        self.model
            .view
            .depths
            .iter()
            .max()
            .map_or(0, |&depth| depth as usize)
    }

    /// Returns the number of boosting iterations.
    #[must_use]
    pub fn iterations(&self) -> usize {
        self.model.view.iterations()
    }

    /// Returns the number of trees of a range of boosting iterations; `None` if it is out of range.
    #[must_use]
    pub fn trees_of(&self, iterations: Range<usize>) -> Option<usize> {
        self.model
            .view
            .trees_of(iterations)
            .map(|trees| trees.len())
    }

    /// Returns the base margin per group: the base score after the link function of the objective.
    #[must_use]
    pub fn base_margins(&self) -> &'a [f64] {
        self.model.view.base
    }

    /// Returns the element type of an output kind.
    #[must_use]
    pub fn output_element(&self, kind: Kind) -> ElementType {
        match (kind, self.model.library) {
            (Kind::Leaf, _) => ElementType::I32,
            (_, Library::Xgboost) => ElementType::F32,
            (_, Library::Lightgbm | Library::Sklearn) => ElementType::F64,
        }
    }

    /// Returns the output shape of a kind for one row, as in the training library; empty for a
    /// single number.
    #[must_use]
    pub fn output_row_shape(&self, kind: Kind) -> Vec<usize> {
        let (groups, columns) = (self.groups(), self.features() + 1);
        match kind {
            Kind::Value if self.model.transform.is_single() => vec![],
            Kind::Value | Kind::Margin if groups == 1 => vec![],
            Kind::Value | Kind::Margin => vec![groups],
            Kind::Leaf => vec![self.trees()],
            Kind::Contribs if groups == 1 => vec![columns],
            // LightGBM concatenates the classes in one dimension.
            Kind::Contribs if self.library() == Library::Lightgbm => vec![groups * columns],
            Kind::Contribs => vec![groups, columns],
            Kind::Interactions if groups == 1 => vec![columns, columns],
            Kind::Interactions => vec![groups, columns, columns],
        }
    }

    /// Returns the number of output values of a kind for one row.
    #[must_use]
    pub fn output_width(&self, kind: Kind) -> usize {
        // The product of the shape, without the allocation, which a prediction must avoid.
        let (groups, columns) = (self.groups(), self.features() + 1);
        match kind {
            Kind::Value if self.model.transform.is_single() => 1,
            Kind::Value | Kind::Margin => groups,
            Kind::Leaf => self.trees(),
            Kind::Contribs => groups.saturating_mul(columns),
            Kind::Interactions => groups.saturating_mul(columns).saturating_mul(columns),
        }
    }

    /// Predicts for rows x features; overwrites `out` with rows x [`output_width`] values. Rows are
    /// independent and may be divided among calls and threads.
    ///
    /// [`output_width`]: Self::output_width
    ///
    /// # Errors
    /// Rows or output have the wrong length or type, or the model does not support the kind.
    pub fn predict(
        &self,
        kind: Kind,
        rows: Rows<'_>,
        out: OutputMut<'_>,
        scratch: &mut PredictScratch,
    ) -> Result<(), PredictError> {
        self.predict_with(kind, rows, &PredictionOptions::default(), out, scratch)
    }

    /// Like [`predict`](Self::predict), with options.
    ///
    /// # Errors
    /// As `predict`, or the options do not match the model or the rows.
    pub fn predict_with(
        &self,
        kind: Kind,
        rows: Rows<'_>,
        options: &PredictionOptions<'_>,
        out: OutputMut<'_>,
        scratch: &mut PredictScratch,
    ) -> Result<(), PredictError> {
        let call = self.check(kind, rows, options, &out)?;
        match out {
            OutputMut::I32(out) => {
                self.kernel_call(rows)
                    .leaves(call.trees, out, &mut scratch.kernel);
            }
            OutputMut::F32(out) => self.predict_floats(kind, &call, out, scratch),
            OutputMut::F64(out) => self.predict_floats(kind, &call, out, scratch),
        }
        Ok(())
    }

    fn check<'b>(
        &self,
        kind: Kind,
        rows: Rows<'b>,
        options: &PredictionOptions<'b>,
        out: &OutputMut<'_>,
    ) -> Result<CheckedCall<'b>, PredictError> {
        let count = self.count_rows(rows)?;
        let iterations = options.iterations.clone().unwrap_or(0..self.iterations());
        let Range { start, end } = iterations;
        let Some(trees) = self.model.view.trees_of(iterations) else {
            return Err(PredictError::Iterations {
                start,
                end,
                iterations: self.iterations(),
            });
        };
        if matches!(kind, Kind::Contribs | Kind::Interactions) && !self.model.has_covers {
            let reason = "its file does not say how much training data reached each node";
            return Err(PredictError::Unsupported { kind, reason });
        }
        if let Some(margins) = options.base_margin {
            let expected = count.saturating_mul(self.groups());
            if self.library() != Library::Xgboost {
                let reason = "only XGBoost models accept a base margin";
                return Err(PredictError::Unsupported { kind, reason });
            }
            if margins.len() != expected {
                return Err(PredictError::BaseMargin {
                    found: margins.len(),
                    expected,
                });
            }
        }
        let width = if kind == Kind::Leaf {
            trees.len()
        } else {
            self.output_width(kind)
        };
        self.check_output(kind, count, width, out)?;
        let base_margin = options.base_margin;
        Ok(CheckedCall {
            rows,
            count,
            trees,
            iterations: end.saturating_sub(start),
            base_margin,
        })
    }

    /// Returns the number of rows of a call.
    pub(crate) fn count_rows(&self, rows: Rows<'_>) -> Result<usize, PredictError> {
        let (values, features) = (rows.values(), self.features());
        match values.is_multiple_of(features) {
            true => Ok(values / features),
            false => Err(PredictError::Rows { values, features }),
        }
    }

    pub(crate) fn check_output(
        &self,
        kind: Kind,
        rows: usize,
        width: usize,
        out: &OutputMut<'_>,
    ) -> Result<(), PredictError> {
        let (found, expected) = (out.element(), self.output_element(kind));
        if found != expected {
            return Err(PredictError::OutputElement {
                found,
                expected,
                kind,
            });
        }
        let (found, expected) = (out.len(), rows.saturating_mul(width));
        if found != expected {
            return Err(PredictError::OutputLength {
                found,
                expected,
                rows,
                kind,
            });
        }
        Ok(())
    }

    /// Returns a call of all trees with the model's base margins.
    pub(crate) fn whole_call(&self, count: usize) -> CheckedCall<'static> {
        CheckedCall {
            rows: Rows::F32(&[]),
            count,
            trees: 0..self.trees(),
            iterations: self.iterations(),
            base_margin: None,
        }
    }

    pub(crate) fn kernel_call<'b>(&'b self, rows: Rows<'b>) -> KernelCall<'b> {
        KernelCall {
            view: &self.model.view,
            library: self.model.library,
            rows,
            selection: &self.selection,
        }
    }

    fn predict_floats<T: Element>(
        &self,
        kind: Kind,
        call: &CheckedCall<'_>,
        out: &mut [T],
        scratch: &mut PredictScratch,
    ) {
        let single = kind == Kind::Value && self.model.transform.is_single() && self.groups() > 1;
        match kind {
            Kind::Contribs => self.contribs(call, out, scratch),
            Kind::Interactions => self.interactions(call, out, scratch),
            // Leaves are integers; `check` has compared the element type.
            Kind::Leaf => {}
            Kind::Value if single => {
                let mut margins = std::mem::take(T::vector(&mut scratch.sums));
                margins.clear();
                margins.resize(call.count * self.groups(), T::of(0.0));
                self.margins(call, &mut margins, &mut scratch.kernel);
                for (value, row) in out.iter_mut().zip(margins.chunks_exact_mut(self.groups())) {
                    self.values(call, row);
                    *value = row[0];
                }
                *T::vector(&mut scratch.sums) = margins;
            }
            Kind::Margin => self.margins(call, out, &mut scratch.kernel),
            Kind::Value => {
                self.margins(call, out, &mut scratch.kernel);
                for row in out.chunks_exact_mut(self.groups()) {
                    self.values(call, row);
                }
            }
        }
    }

    /// Converts the margins of a row to values. Averages of LightGBM's random forests are computed
    /// only here: their raw scores and contributions are sums.
    pub(crate) fn values<T: Element>(&self, call: &CheckedCall<'_>, row: &mut [T]) {
        if self.model.view.is_averaged {
            for margin in row.iter_mut() {
                *margin = *margin / T::of(call.iterations.max(1) as f64);
            }
        }
        T::apply(self.model.transform, row);
    }

    /// Computes the margins of all rows.
    fn margins<T: Element>(
        &self,
        call: &CheckedCall<'_>,
        out: &mut [T],
        scratch: &mut KernelScratch,
    ) {
        match call.base_margin {
            Some(margins) => {
                for (margin, &base) in out.iter_mut().zip(margins) {
                    *margin = T::of(f64::from(base));
                }
            }
            None => {
                for row in out.chunks_exact_mut(self.groups()) {
                    for (margin, &base) in row.iter_mut().zip(self.model.view.base) {
                        *margin = T::of(base);
                    }
                }
            }
        }
        self.kernel_call(call.rows)
            .margins(call.trees.clone(), out, scratch);
    }
}

/// The library's arithmetic: `f32` for XGBoost, `f64` for LightGBM.
pub(crate) trait Element: Sum {
    fn apply(transform: Transform, row: &mut [Self]);
}

impl Element for f32 {
    fn apply(transform: Transform, row: &mut [Self]) {
        apply_f32(transform, row);
    }
}

impl Element for f64 {
    fn apply(transform: Transform, row: &mut [Self]) {
        apply_f64(transform, row);
    }
}
