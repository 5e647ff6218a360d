//! The kernel for each number of rows: by rule until the kernels were measured, then by
//! measurement.

use albacore_simd::Simd;

use super::kind::{Kernel, KernelEngine};
use crate::layout::ensemble::EnsembleView;
use crate::layout::image::TUNING_WORDS;
use crate::limits::BLOCK_ROWS;

/// Numbers of rows with a choice of their own: each also covers the numbers above the one before.
pub(crate) const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, BLOCK_ROWS];

/// By rule, calls of more rows than this take blocks.
const WALK_ROWS_MAX: usize = 16;

/// The kernel that was chosen for a number of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Up to this many rows in a call, and above the number of the choice before.
    pub rows: usize,
    pub kernel: Kernel,
    /// Nanoseconds per row, if they were measured.
    pub nanoseconds: Option<f64>,
}

/// The choices of a model on this cpu.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KernelSelection {
    pub(crate) choices: [Choice; SIZES.len()],
    engines: [KernelEngine; SIZES.len()],
    /// The vectors in which SHAP values are computed; `None`: tree by tree without vectors.
    pub(crate) shap_simd: Option<Simd>,
    /// Further times of one row in nanoseconds, see [`RowTime`].
    row_times: [Option<f64>; ROW_TIMES],
}

/// Times of one row beside those of the choices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowTime {
    Contribs,
    /// The serial part of margins when threads divide the trees.
    SerialMargin,
    /// The serial part of contributions.
    SerialContribs,
}

const ROW_TIMES: usize = TUNING_WORDS - SIZES.len();

impl KernelSelection {
    /// The choices by rule.
    pub(crate) fn by_rule(view: &EnsembleView<'_>) -> Self {
        let best = [
            Kernel::BlocksAvx512,
            Kernel::BlocksAvx2,
            Kernel::Blocks,
            Kernel::Walk,
            Kernel::Nodes,
        ];
        let mut selection = Self::only(Kernel::Nodes, KernelEngine::Nodes, view);
        selection.shap_simd = view.has_vector_shap().then(Simd::best);
        for (size, &rows) in SIZES.iter().enumerate() {
            let kernels = if rows <= WALK_ROWS_MAX {
                &[Kernel::Walk, Kernel::Nodes][..]
            } else {
                &best
            };
            let found = kernels.iter().find_map(|&k| Some((k, k.engine(view)?)));
            if let Some((kernel, engine)) = found {
                selection.set(size, kernel, engine, None);
            }
        }
        selection
    }

    /// One kernel for all numbers of rows.
    pub(crate) fn only(kernel: Kernel, engine: KernelEngine, view: &EnsembleView<'_>) -> Self {
        Self {
            choices: SIZES.map(|rows| Choice {
                rows,
                kernel,
                nanoseconds: None,
            }),
            engines: [engine; SIZES.len()],
            shap_simd: match engine {
                KernelEngine::Blocks(simd) => view.has_vector_shap().then_some(simd),
                KernelEngine::Nodes | KernelEngine::Walk => None,
            },
            row_times: [None; ROW_TIMES],
        }
    }

    /// The measurements as words of an image: for each size the time as `f32` and the number of
    /// the kernel, and the further times. 0: not measured.
    pub(crate) fn words(&self) -> [u64; TUNING_WORDS] {
        let word = |time: f64, number: u64| u64::from((time as f32).to_bits()) << 32 | number;
        std::array::from_fn(|index| match self.choices.get(index) {
            Some(choice) => {
                let number = Kernel::ALL
                    .iter()
                    .position(|&kernel| kernel == choice.kernel);
                let number = number.map_or(0, |number| number as u64 + 1);
                choice.nanoseconds.map_or(0, |time| word(time, number))
            }
            None => self.row_times[index - SIZES.len()].map_or(0, |time| word(time, 1)),
        })
    }

    /// Takes over the measurements of an image, as far as this cpu has the kernels.
    pub(crate) fn with_words(
        mut self,
        words: &[u64; TUNING_WORDS],
        view: &EnsembleView<'_>,
    ) -> Self {
        for (index, &word) in words.iter().enumerate() {
            let time = f64::from(f32::from_bits((word >> 32) as u32));
            let number = (word as u32 as usize).checked_sub(1);
            let kernel = number.and_then(|number| Kernel::ALL.get(number));
            let (Some(&kernel), true) = (kernel, time >= 0.0) else {
                continue;
            };
            if let Some(row_time) = index.checked_sub(SIZES.len()) {
                self.row_times[row_time] = Some(time);
            } else if let Some(engine) = kernel.engine(view) {
                self.set(index, kernel, engine, Some(time));
            }
        }
        self
    }

    pub(crate) fn row_time(&self, of: RowTime) -> Option<f64> {
        self.row_times[of as usize]
    }

    pub(crate) fn set_row_time(&mut self, of: RowTime, nanoseconds: Option<f64>) {
        self.row_times[of as usize] = nanoseconds;
    }

    /// The choice for a call of this many rows.
    pub(crate) fn choice(&self, rows: usize) -> Choice {
        self.choices[Self::size_of(rows)]
    }

    /// The engine for a block of this many rows.
    pub(crate) fn engine(&self, rows: usize) -> KernelEngine {
        self.engines[Self::size_of(rows)]
    }

    fn size_of(rows: usize) -> usize {
        let size = SIZES.partition_point(|&size| size < rows);
        size.min(SIZES.len() - 1)
    }

    pub(crate) fn set(
        &mut self,
        size: usize,
        kernel: Kernel,
        engine: KernelEngine,
        nanoseconds: Option<f64>,
    ) {
        self.choices[size].kernel = kernel;
        self.choices[size].nanoseconds = nanoseconds;
        self.engines[size] = engine;
    }
}
