//! Which kernel takes how many rows: by rule until it was measured, by measurement after.

use crate::kernel::{Engine, Kernel};
use crate::limits::BLOCK_ROWS;
use crate::shap::blocks::can_explain;
use crate::simd::Simd;
use crate::view::EnsembleView;

/// Numbers of rows that are told apart: each stands for itself and what is below the next.
pub(crate) const SIZES: [usize; 7] = [1, 2, 4, 8, 16, 32, BLOCK_ROWS];

/// From this many rows on a block pays by rule.
const BLOCK_FROM: usize = 16;

/// The kernel that was chosen for a number of rows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Choice {
    /// Up to this many rows in a call, and above the number of the choice before.
    pub rows: usize,
    /// The kernel.
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
}

impl Tuning {
    /// The choices by rule.
    pub(crate) fn by_rule(view: &EnsembleView<'_>) -> Self {
        let best = [
            Kernel::BlocksAvx512,
            Kernel::BlocksAvx2,
            Kernel::Blocks,
            Kernel::Nodes,
        ];
        let mut tuning = Self::only(Kernel::Nodes, Engine::Nodes, view);
        tuning.explain =
            can_explain(view).then(|| Simd::avx512().or_else(Simd::avx2).unwrap_or(Simd::PLAIN));
        for (place, &rows) in SIZES.iter().enumerate() {
            let kernels = if rows < BLOCK_FROM {
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
        }
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
