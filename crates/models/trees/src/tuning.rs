//! Measures the kernels of a model on this cpu.
//!
//! All kernels give the same bits, so a measurement disturbed by other load affects only speed.
//! SHAP values always use the widest vectors that the model allows; only their time is measured.

use crate::error::PredictError;
use crate::kernel::Kernel;
use crate::kernel::selection::{KernelSelection, RowTime, SIZES};
use crate::layout::binned::SplitFeature;
use crate::layout::ensemble::EnsembleView;
use crate::layout::image::Image;
use crate::limits::{
    BLOCK_ROWS, TUNING_CALLS, TUNING_CALLS_MAX, TUNING_FEATURES_MAX, TUNING_KERNEL_NANOSECONDS,
    TUNING_NANOSECONDS_MAX, TUNING_SERIAL_NANOSECONDS,
};
use crate::output::{ElementType, Kind, OutputMut};
use crate::predict::partial::{Accumulator, PartialOutput};
use crate::predict::{PredictScratch, Predictor};
use crate::rows::Rows;

/// Contributions with more values than this are not measured.
const CONTRIBS_MAX: usize = 1 << 20;

/// Kernels in measurement order: those that are likely fast first, because a kernel that takes
/// [`SLOW_FACTOR`] times the best time so far is called only once.
const CANDIDATES: [Kernel; 5] = [
    Kernel::Walk,
    Kernel::BlocksAvx512,
    Kernel::BlocksAvx2,
    Kernel::Blocks,
    Kernel::Nodes,
];

/// A kernel that takes this many times the best time is not measured further.
const SLOW_FACTOR: u64 = 4;

impl Image {
    /// Measures the kernels on this cpu like [`Predictor::tuned`] and stores the choices in the
    /// image, so that processes that open it need not measure. `clock` returns nanoseconds since an
    /// arbitrary start.
    #[must_use]
    pub fn tuned(mut self, clock: &mut dyn FnMut() -> u64) -> Self {
        let Ok(predictor) = Predictor::open(self.bytes()) else {
            return self;
        };
        let words = predictor.tuned(clock).selection.words();
        self.set_tuning(&words);
        self
    }
}

impl Predictor<'_> {
    /// Measures the kernels and selects the fastest for each number of rows: takes at most some
    /// tens of milliseconds. `clock` returns nanoseconds since an arbitrary start. Results remain
    /// bit-identical.
    #[must_use]
    pub fn tuned(self, clock: &mut dyn FnMut() -> u64) -> Self {
        let selection = measure(&self, clock);
        Self { selection, ..self }
    }
}

fn measure(predictor: &Predictor<'_>, clock: &mut dyn FnMut() -> u64) -> KernelSelection {
    let (view, mut selection) = (predictor.view(), predictor.selection);
    let has_alternatives = view.has_blocks() || view.has_keys();
    if view.features > TUNING_FEATURES_MAX || !has_alternatives {
        return selection;
    }
    // With vector instructions, plain code for blocks is not a candidate.
    let has_vectors = Kernel::BlocksAvx2.engine(view).is_some();
    let mut kernels: Vec<(Kernel, Predictor<'_>)> = CANDIDATES
        .into_iter()
        .filter(|&kernel| kernel != Kernel::Blocks || !has_vectors)
        .filter_map(|kernel| Some((kernel, predictor.with_kernel(kernel)?)))
        .collect();
    let mut bench = TimedCalls {
        rows: sample_rows(view),
        floats: Vec::new(),
        f64s: Vec::new(),
        scratch: PredictScratch::default(),
        start: clock(),
        clock,
    };
    selection.set_row_time(RowTime::Contribs, bench.time_contribs(predictor));
    for (row_time, kind) in [
        (RowTime::SerialMargin, Kind::Margin),
        (RowTime::SerialContribs, Kind::Contribs),
    ] {
        selection.set_row_time(row_time, bench.time_serial(predictor, kind));
    }
    for (size, &rows) in SIZES.iter().enumerate() {
        let (mut best_time, mut best_kernel) = (u64::MAX, Kernel::Nodes);
        let mut times = Vec::new();
        for (kernel, predictor) in &kernels {
            // If time runs out before all kernels are measured, the choice by rule is kept.
            let Some(time) = bench.time(predictor, rows, best_time) else {
                return selection;
            };
            times.push((*kernel, time));
            if time < best_time {
                (best_time, best_kernel) = (time, *kernel);
            }
        }
        // The node kernel gains nothing from more rows; the other kernels may.
        let is_candidate = |&(kernel, time): &(Kernel, u64)| {
            kernel != Kernel::Nodes || time / SLOW_FACTOR < best_time
        };
        kernels.retain(|&(kernel, _)| times.iter().all(|it| it.0 != kernel || is_candidate(it)));
        if let Some(engine) = best_kernel.engine(view) {
            let nanoseconds = best_time as f64 / rows as f64;
            selection.set(size, best_kernel, engine, Some(nanoseconds));
        }
    }
    selection
}

/// Rows, outputs and memory of measured calls.
struct TimedCalls<'a> {
    rows: Vec<f32>,
    floats: Vec<f32>,
    f64s: Vec<f64>,
    scratch: PredictScratch,
    start: u64,
    clock: &'a mut dyn FnMut() -> u64,
}

impl TimedCalls<'_> {
    /// Returns the shortest of several calls in nanoseconds; stops early if a call takes several
    /// times the best time so far. `None`: the time limit is exceeded.
    fn time(&mut self, predictor: &Predictor<'_>, rows: usize, best: u64) -> Option<u64> {
        let mut shortest = u64::MAX;
        let first = (self.clock)();
        for call in 0..TUNING_CALLS_MAX {
            let before = (self.clock)();
            // Short calls are repeated to allow for other load and cold caches.
            let is_enough = before.saturating_sub(first) > TUNING_KERNEL_NANOSECONDS;
            if call >= TUNING_CALLS && is_enough {
                break;
            }
            if before.saturating_sub(self.start) > TUNING_NANOSECONDS_MAX {
                return None;
            }
            self.call(predictor, Kind::Margin, rows, call).ok()?;
            shortest = shortest.min((self.clock)().saturating_sub(before));
            if shortest / SLOW_FACTOR > best {
                break;
            }
        }
        Some(shortest)
    }

    /// Returns the shorter of two calls for the contributions of one row. `None`: the model has
    /// none, or they have too many values.
    fn time_contribs(&mut self, predictor: &Predictor<'_>) -> Option<f64> {
        if predictor.output_width(Kind::Contribs) > CONTRIBS_MAX {
            return None;
        }
        let mut shortest = u64::MAX;
        for _ in 0..2 {
            let before = (self.clock)();
            self.call(predictor, Kind::Contribs, 1, 0).ok()?;
            shortest = shortest.min((self.clock)().saturating_sub(before));
        }
        Some(shortest as f64)
    }

    /// Returns the serial part of one row when trees are divided among threads: the time of a
    /// partial output without trees plus the time to accumulate one of all trees.
    fn time_serial(&mut self, predictor: &Predictor<'_>, kind: Kind) -> Option<f64> {
        let (units, row) = (predictor.work_units(kind, 1), ..predictor.features());
        if units == 0 || predictor.output_width(kind) > CONTRIBS_MAX {
            return None;
        }
        let rows = Rows::F32(&self.rows[row]);
        let (mut partial, mut sums) = (PartialOutput::default(), Accumulator::default());
        let width = predictor.output_width(kind);
        let mut shortest = [u64::MAX; 2];
        let first = (self.clock)();
        for call in 0..TUNING_CALLS {
            let before = (self.clock)();
            if call > 1 && before.saturating_sub(first) > TUNING_SERIAL_NANOSECONDS {
                break;
            }
            let scratch = &mut self.scratch;
            predictor
                .predict_partial(kind, rows, 0..0, &mut partial, scratch)
                .ok()?;
            shortest[0] = shortest[0].min((self.clock)().saturating_sub(before));
            predictor
                .predict_partial(kind, rows, 0..units, &mut partial, scratch)
                .ok()?;
            let before = (self.clock)();
            let out = match predictor.output_element(kind) {
                ElementType::F64 => OutputMut::F64(resized(&mut self.f64s, width)),
                ElementType::F32 | ElementType::I32 => {
                    OutputMut::F32(resized(&mut self.floats, width))
                }
            };
            predictor.start_sums(kind, 1, &mut sums).ok()?;
            predictor.accumulate(&mut sums, &partial).ok()?;
            predictor.finish_sums(&mut sums, out).ok()?;
            shortest[1] = shortest[1].min((self.clock)().saturating_sub(before));
        }
        Some(shortest.iter().sum::<u64>() as f64)
    }

    /// Each call uses rows that no earlier call used, while there are any: a cpu learns the
    /// branches of repeated rows, and real requests do not repeat.
    fn call(
        &mut self,
        predictor: &Predictor<'_>,
        kind: Kind,
        rows: usize,
        call: usize,
    ) -> Result<(), PredictError> {
        let first = call * rows % BLOCK_ROWS * predictor.features();
        let values = &self.rows[first..first + rows * predictor.features()];
        let width = rows * predictor.output_width(kind);
        let out = match predictor.output_element(kind) {
            ElementType::F64 => OutputMut::F64(resized(&mut self.f64s, width)),
            ElementType::F32 | ElementType::I32 => OutputMut::F32(resized(&mut self.floats, width)),
        };
        predictor.predict(kind, Rows::F32(values), out, &mut self.scratch)
    }
}

/// Returns the first elements of a vector, which is grown if needed.
fn resized<T: Clone + Default>(vector: &mut Vec<T>, length: usize) -> &mut [T] {
    if vector.len() < length {
        vector.resize(length, T::default());
    }
    &mut vector[..length]
}

/// Returns a deterministic block of rows with values at the cuts, so that rows go both ways at
/// splits.
fn sample_rows(view: &EnsembleView<'_>) -> Vec<f32> {
    let mut rows = vec![0.0; BLOCK_ROWS * view.features];
    let mut state = 1_u64;
    for row in rows.chunks_exact_mut(view.features) {
        for &words in view.binned.split_features {
            let feature = SplitFeature::from_words(words);
            // Knuth's LCG multiplier; the upper bits are the better ones.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let pick = (state >> 33) as usize;
            row[feature.feature] = match feature.cut_count {
                0 => (pick % 32) as f32,
                count if pick.is_multiple_of(16) => [f32::NAN, 0.0][count % 2],
                count => feature.cuts(view.binned.cuts)[pick % count] as f32,
            };
        }
    }
    rows
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Image, Model};

    const MODEL: &str = "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx=1\n\n\
        Tree=0\nnum_leaves=3\nsplit_feature=0 1\nthreshold=0.5 0\ndecision_type=10 10\n\
        left_child=1 -1\nright_child=-3 -2\nleaf_value=10 20 30\nleaf_count=2 4 4\n\
        internal_count=10 6\n\nend of trees\n";

    #[test]
    fn every_size_is_measured_and_the_fastest_kernel_is_selected() {
        let image = Image::compile(&Model::parse(MODEL.as_bytes()).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let mut now = 0;
        let tuned = predictor.tuned(&mut || {
            now += 10;
            now
        });
        // All kernels take the same time with this clock, so the first candidate is kept.
        assert!(tuned.choices().iter().all(|choice| {
            choice.kernel == Kernel::Walk && choice.nanoseconds == Some(10.0 / choice.rows as f64)
        }));
    }

    #[test]
    fn a_measurement_that_exceeds_its_time_limit_keeps_the_default_kernel() {
        let image = Image::compile(&Model::parse(MODEL.as_bytes()).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let mut now = 0;
        let tuned = predictor.tuned(&mut || {
            now += 2 * TUNING_NANOSECONDS_MAX;
            now
        });
        assert_eq!(tuned.choices(), predictor.choices());
    }
}
