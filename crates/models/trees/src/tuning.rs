//! Which kernel takes how many rows: by rule until it was measured, by measurement after.
//!
//! Kernels give the same bits, so a measurement that a busy machine has spoiled costs time and
//! nothing else. Contributions are not measured: a model that `shap::blocks` can explain is
//! explained there, on every machine, in the widest vectors; the bits are the same in all.

use crate::error::PredictError;
use crate::image::TUNING_WORDS;
use crate::kernel::{Engine, Kernel};
use crate::limits::{BLOCK_ROWS, TUNING_CALLS, TUNING_CALLS_MAX, TUNING_FEATURES_MAX};
use crate::limits::{
    TUNING_KERNEL_NANOSECONDS, TUNING_NANOSECONDS_MAX, TUNING_UNDIVIDED_NANOSECONDS,
};
use crate::output::{ElementType, Kind, OutputMut};
use crate::portions::{Portion, Total};
use crate::predict::{Predictor, Scratch};
use crate::ranks::Asked;
use crate::rows::Rows;
use crate::shap::blocks::can_explain;
use crate::view::EnsembleView;
use albacore_formats::Library;
use albacore_simd::Simd;

/// Numbers of rows that are told apart: each stands for itself and what is below the next.
pub(crate) const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, BLOCK_ROWS];

/// Contributions of more values than this are not measured.
const CONTRIBS_MAX: usize = 1 << 20;

/// In the order in which they are timed: those first that are likely to be fast, as what takes
/// several times as long as the best so far is called but once.
const CANDIDATES: [Kernel; 5] = [
    Kernel::Walk,
    Kernel::BlocksAvx512,
    Kernel::BlocksAvx2,
    Kernel::Blocks,
    Kernel::Nodes,
];

/// What takes this many times the best has lost.
const LOST: u64 = 4;

/// Above this many rows a block pays by rule.
const WALK_TO: usize = 16;

/// The kernel that was chosen for a number of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Up to this many rows in a call, and above the number of the choice before.
    pub rows: usize,
    pub kernel: Kernel,
    /// What a row took, in nanoseconds, if it was measured.
    pub nanoseconds: Option<f64>,
}

/// The choices of a model on this cpu.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tuning {
    pub(crate) choices: [Choice; SIZES.len()],
    engines: [Engine; SIZES.len()],
    /// How contributions are explained in blocks; `None`: row by row.
    pub(crate) explain: Option<Simd>,
    /// What else was measured of a row, in nanoseconds; see [`Extra`].
    pub(crate) extras: [Option<f64>; EXTRAS],
}

/// Times of one row beside those of the choices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Extra {
    Contribs,
    /// What of its margins one thread must do where threads divide the trees.
    Undivided,
    /// The same of contributions.
    UndividedContribs,
}

const EXTRAS: usize = TUNING_WORDS - SIZES.len();

impl Tuning {
    /// The choices by rule.
    pub(crate) fn by_rule(view: &EnsembleView<'_>) -> Self {
        let best = [
            Kernel::BlocksAvx512,
            Kernel::BlocksAvx2,
            Kernel::Blocks,
            Kernel::Walk,
            Kernel::Nodes,
        ];
        let mut tuning = Self::only(Kernel::Nodes, Engine::Nodes, view);
        tuning.explain = can_explain(view).then(Simd::best);
        for (place, &rows) in SIZES.iter().enumerate() {
            let kernels = if rows <= WALK_TO {
                &[Kernel::Walk, Kernel::Nodes][..]
            } else {
                &best
            };
            let found = kernels.iter().find_map(|&k| Some((k, k.engine(view)?)));
            if let Some((kernel, engine)) = found {
                tuning.set(place, kernel, engine, None);
            }
        }
        tuning
    }

    /// One kernel for all.
    pub(crate) fn only(kernel: Kernel, engine: Engine, view: &EnsembleView<'_>) -> Self {
        Self {
            choices: SIZES.map(|rows| Choice {
                rows,
                kernel,
                nanoseconds: None,
            }),
            engines: [engine; SIZES.len()],
            explain: match engine {
                Engine::Blocks(simd) => can_explain(view).then_some(simd),
                Engine::Nodes | Engine::Walk => None,
            },
            extras: [None; EXTRAS],
        }
    }

    /// What was measured, as words of an image: the time as `f32` and the kernel's number for each
    /// size, and the other times. 0: not measured.
    pub(crate) fn words(&self) -> [u64; TUNING_WORDS] {
        let word = |time: f64, number: u64| u64::from((time as f32).to_bits()) << 32 | number;
        std::array::from_fn(|place| match self.choices.get(place) {
            Some(choice) => {
                let number = Kernel::ALL
                    .iter()
                    .position(|&kernel| kernel == choice.kernel);
                let number = number.map_or(0, |number| number as u64 + 1);
                choice.nanoseconds.map_or(0, |time| word(time, number))
            }
            None => self.extras[place - SIZES.len()].map_or(0, |time| word(time, 1)),
        })
    }

    /// The choices of an image, as far as this cpu has the kernels.
    pub(crate) fn with_words(
        mut self,
        words: &[u64; TUNING_WORDS],
        view: &EnsembleView<'_>,
    ) -> Self {
        for (place, &word) in words.iter().enumerate() {
            let time = f64::from(f32::from_bits((word >> 32) as u32));
            let number = (word as u32 as usize).checked_sub(1);
            let kernel = number.and_then(|number| Kernel::ALL.get(number));
            let (Some(&kernel), true) = (kernel, time >= 0.0) else {
                continue;
            };
            if let Some(extra) = place.checked_sub(SIZES.len()) {
                self.extras[extra] = Some(time);
            } else if let Some(engine) = kernel.engine(view) {
                self.set(place, kernel, engine, Some(time));
            }
        }
        self
    }

    /// The choice for a call of so many rows.
    pub(crate) fn choice(&self, rows: usize) -> Choice {
        let place = SIZES.partition_point(|&size| size < rows);
        self.choices[place.min(SIZES.len() - 1)]
    }

    pub(crate) fn set(
        &mut self,
        place: usize,
        kernel: Kernel,
        engine: Engine,
        nanoseconds: Option<f64>,
    ) {
        self.choices[place].kernel = kernel;
        self.choices[place].nanoseconds = nanoseconds;
        self.engines[place] = engine;
    }

    /// The engine for a block of so many rows.
    pub(crate) fn engine(&self, rows: usize) -> Engine {
        let place = SIZES.partition_point(|&size| size < rows);
        self.engines[place.min(SIZES.len() - 1)]
    }
}

/// Measures the kernels of a model, with a clock in nanoseconds that starts anywhere.
pub(crate) fn measure(predictor: &Predictor<'_>, clock: &mut dyn FnMut() -> u64) -> Tuning {
    let (view, mut tuning) = (predictor.view(), predictor.tuning());
    let has_form = !view.ranks.leaf_nodes.is_empty() || !view.ranks.steps.is_empty();
    if view.features > TUNING_FEATURES_MAX || !has_form {
        return tuning;
    }
    // Where there are vectors, plain code for blocks is no candidate.
    let has_vectors = Kernel::BlocksAvx2.engine(view).is_some();
    let mut kernels: Vec<(Kernel, Engine, Predictor<'_>)> = CANDIDATES
        .into_iter()
        .filter(|&kernel| kernel != Kernel::Blocks || !has_vectors)
        .filter_map(|kernel| {
            let engine = kernel.engine(view)?;
            Some((kernel, engine, predictor.with_kernel(kernel)?))
        })
        .collect();
    let sample = sample(view);
    let mut bench = Bench {
        singles: sample.iter().map(|&x| x as f32).collect(),
        sample,
        floats: vec![0.0; BLOCK_ROWS * view.groups],
        doubles: vec![0.0; BLOCK_ROWS * view.groups],
        scratch: Scratch::default(),
        start: clock(),
        clock,
    };
    tuning.extras[Extra::Contribs as usize] = bench.time_contribs(predictor);
    for (extra, kind) in [
        (Extra::Undivided, Kind::Margin),
        (Extra::UndividedContribs, Kind::Contribs),
    ] {
        tuning.extras[extra as usize] = bench.time_undivided(predictor, kind);
    }
    for (place, &rows) in SIZES.iter().enumerate() {
        let mut best = (u64::MAX, Kernel::Nodes, Engine::Nodes);
        let mut times = Vec::new();
        for (kernel, engine, predictor) in &kernels {
            // A number of rows for which some kernels were not measured keeps its rule.
            let Some(time) = bench.time(predictor, rows, best.0) else {
                return tuning;
            };
            times.push((*kernel, time));
            if time < best.0 {
                best = (time, *kernel, *engine);
            }
        }
        // What walks gains nothing from more rows; blocks do.
        let is_worth = |it: &(Kernel, u64)| it.0 != Kernel::Nodes || it.1 / LOST < best.0;
        kernels.retain(|(kernel, ..)| times.iter().all(|it| it.0 != *kernel || is_worth(it)));
        let (time, kernel, engine) = best;
        tuning.set(place, kernel, engine, Some(time as f64 / rows as f64));
    }
    tuning
}

/// What measurements work with.
struct Bench<'a> {
    sample: Vec<f64>,
    singles: Vec<f32>,
    floats: Vec<f32>,
    doubles: Vec<f64>,
    scratch: Scratch,
    start: u64,
    clock: &'a mut dyn FnMut() -> u64,
}

impl Bench<'_> {
    /// The shortest of some calls, in nanoseconds; after one call if that took several times the
    /// best so far. `None`: there is no time left.
    fn time(&mut self, predictor: &Predictor<'_>, rows: usize, best: u64) -> Option<u64> {
        let mut shortest = u64::MAX;
        let first = (self.clock)();
        for call in 0..TUNING_CALLS_MAX {
            let before = (self.clock)();
            // Short calls are repeated until a busy machine and cold caches have had their time.
            let is_enough = before.saturating_sub(first) > TUNING_KERNEL_NANOSECONDS;
            if call >= TUNING_CALLS && is_enough {
                break;
            }
            if before.saturating_sub(self.start) > TUNING_NANOSECONDS_MAX {
                return None;
            }
            self.call(predictor, rows, call).ok()?;
            shortest = shortest.min((self.clock)().saturating_sub(before));
            if shortest / LOST > best {
                break;
            }
        }
        Some(shortest)
    }

    /// The shorter of two explanations of a row. `None`: the model has none, or their output is too
    /// large.
    fn time_contribs(&mut self, predictor: &Predictor<'_>) -> Option<f64> {
        let width = predictor.output_width(Kind::Contribs);
        if width > CONTRIBS_MAX {
            return None;
        }
        let (mut floats, mut doubles) = (Vec::new(), Vec::new());
        let mut shortest = u64::MAX;
        for _ in 0..2 {
            let before = (self.clock)();
            let values = ..predictor.features();
            let (rows, out) = match predictor.library() {
                Library::Xgboost => {
                    floats.resize(width, 0.0);
                    (
                        Rows::F32(&self.singles[values]),
                        OutputMut::F32(&mut floats),
                    )
                }
                Library::Lightgbm | Library::Sklearn => {
                    doubles.resize(width, 0.0);
                    (
                        Rows::F64(&self.sample[values]),
                        OutputMut::F64(&mut doubles),
                    )
                }
            };
            predictor
                .predict(Kind::Contribs, rows, out, &mut self.scratch)
                .ok()?;
            shortest = shortest.min((self.clock)().saturating_sub(before));
        }
        Some(shortest as f64)
    }

    /// What of a row is done by one thread, or by each, where threads divide the trees: a portion
    /// of no trees, and the sums of a portion of all.
    fn time_undivided(&mut self, predictor: &Predictor<'_>, kind: Kind) -> Option<f64> {
        let (units, row) = (predictor.units(kind, 1), ..predictor.features());
        if units == 0 || predictor.output_width(kind) > CONTRIBS_MAX {
            return None;
        }
        let rows = match predictor.library() {
            Library::Xgboost => Rows::F32(&self.singles[row]),
            Library::Lightgbm | Library::Sklearn => Rows::F64(&self.sample[row]),
        };
        let (mut portion, mut total) = (Portion::default(), Total::default());
        let width = predictor.output_width(kind);
        let (mut floats, mut doubles) = (vec![0.0; width], vec![0.0; width]);
        let mut shortest = [u64::MAX; 2];
        let first = (self.clock)();
        for call in 0..TUNING_CALLS {
            let before = (self.clock)();
            if call > 1 && before.saturating_sub(first) > TUNING_UNDIVIDED_NANOSECONDS {
                break;
            }
            let scratch = &mut self.scratch;
            predictor
                .note(kind, rows, 0..0, &mut portion, scratch)
                .ok()?;
            shortest[0] = shortest[0].min((self.clock)().saturating_sub(before));
            predictor
                .note(kind, rows, 0..units, &mut portion, scratch)
                .ok()?;
            let before = (self.clock)();
            let out = match predictor.output_element(kind) {
                ElementType::F64 => OutputMut::F64(&mut doubles),
                ElementType::F32 | ElementType::I32 => OutputMut::F32(&mut floats),
            };
            predictor.start(kind, 1, &mut total).ok()?;
            predictor.add(&mut total, &portion).ok()?;
            predictor.finish(&mut total, out).ok()?;
            shortest[1] = shortest[1].min((self.clock)().saturating_sub(before));
        }
        Some(shortest.iter().sum::<u64>() as f64)
    }

    /// Each call has other rows while there are some: a cpu learns the branches of rows that come
    /// again, which a real stream of rows does not do.
    fn call(
        &mut self,
        predictor: &Predictor<'_>,
        rows: usize,
        call: usize,
    ) -> Result<(), PredictError> {
        let first = call * rows % BLOCK_ROWS * predictor.features();
        let values = first..first + rows * predictor.features();
        let margins = rows * predictor.groups();
        let (rows, out) = match predictor.library() {
            Library::Xgboost => (
                Rows::F32(&self.singles[values]),
                OutputMut::F32(&mut self.floats[..margins]),
            ),
            Library::Lightgbm | Library::Sklearn => (
                Rows::F32(&self.singles[values]),
                OutputMut::F64(&mut self.doubles[..margins]),
            ),
        };
        predictor.predict(Kind::Margin, rows, out, &mut self.scratch)
    }
}

/// A block of rows whose values lie at the cuts, so that splits go either way; always the same.
fn sample(view: &EnsembleView<'_>) -> Vec<f64> {
    let mut rows = vec![0.0; BLOCK_ROWS * view.features];
    let mut state = 1_u64;
    for row in rows.chunks_exact_mut(view.features) {
        for asked in view.ranks.asked.iter().map(|&it| Asked::of_words(it)) {
            // Knuth's multiplier for powers of two; the upper bits are the good ones.
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let pick = (state >> 33) as usize;
            row[asked.feature] = match asked.count {
                0 => (pick % 32) as f64,
                count if pick.is_multiple_of(16) => [f64::NAN, 0.0][count % 2],
                count => view.ranks.cuts[asked.cuts + pick % count],
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
    fn every_size_is_measured_and_the_fastest_kernel_is_taken() {
        let image = Image::compile(&Model::parse(MODEL.as_bytes()).expect("a model"));
        let predictor = Predictor::open(image.bytes()).expect("a fresh image");
        let mut now = 0;
        let tuned = predictor.tuned(&mut || {
            now += 10;
            now
        });
        // All take the same by this clock: the first stays.
        assert!(tuned.choices().iter().all(|choice| {
            choice.kernel == Kernel::Walk && choice.nanoseconds == Some(10.0 / choice.rows as f64)
        }));
    }

    #[test]
    fn when_time_is_up_the_rule_stays() {
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
