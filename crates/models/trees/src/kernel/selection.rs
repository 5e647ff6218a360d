//! Kernel selection by number of rows: by rule until the kernels have been measured, then by
//! measurement.

use albacore_simd::Simd;

use super::kind::{Kernel, KernelEngine};
use crate::layout::ensemble::EnsembleView;
use crate::layout::image::TUNING_WORDS;
use crate::limits::BLOCK_ROWS;

/// Numbers of rows with a separate choice; each also covers the numbers above the previous one.
pub(crate) const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, BLOCK_ROWS];

/// By rule, calls with more rows than this use blocks.
const WALK_ROWS_MAX: usize = 16;

/// The kernel chosen for a number of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SelectedKernel {
    /// Maximum number of rows in a call, above that of the previous choice.
    pub rows: usize,
    pub kernel: Kernel,
    /// Measured nanoseconds per row, if any.
    pub nanoseconds: Option<f64>,
}

/// Kernel choices of a model on this cpu.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct KernelSelection {
    pub(crate) choices: [SelectedKernel; SIZES.len()],
    engines: [KernelEngine; SIZES.len()],
    /// Instruction set of vectorized SHAP; `None`: tree by tree without vectors.
    pub(crate) shap_simd: Option<Simd>,
    /// Additional times of one row in nanoseconds, see [`RowTime`].
    row_times: [Option<f64>; ROW_TIMES],
}

/// Times of one row that are not part of the choices.
#[derive(Debug, Clone, Copy)]
pub(crate) enum RowTime {
    Contribs,
    /// Serial part of margins when trees are divided among threads.
    SerialMargin,
    /// Serial part of contributions.
    SerialContribs,
}

const ROW_TIMES: usize = TUNING_WORDS - SIZES.len();

impl KernelSelection {
    /// Returns the choices by rule.
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

    /// Returns a selection of one kernel for all numbers of rows.
    pub(crate) fn only(kernel: Kernel, engine: KernelEngine, view: &EnsembleView<'_>) -> Self {
        Self {
            choices: SIZES.map(|rows| SelectedKernel {
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

    /// Encodes the measurements as words of an image: for each size the time as `f32` and the
    /// kernel number, then the additional times. 0: not measured.
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

    /// Applies the measurements of an image, except those of kernels that this cpu does not
    /// support.
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

    /// Returns the choice for a call with this number of rows.
    pub(crate) fn choice(&self, rows: usize) -> SelectedKernel {
        self.choices[Self::size_of(rows)]
    }

    /// Returns the engine for a block with this number of rows.
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
