//! Metadata of a loaded model.

use std::time::Duration;

use albacore_os::SharedMemory;
use albacore_trees::{IterationRange, Kernel, Predictor};

use super::{ElementType, Kind, KindSet};
use crate::columns::Columns;
use crate::command::EditionId;

/// One compiled state of a model: from its installation until no request needs it any more.
#[derive(Debug)]
pub struct Edition {
    pub(crate) id: EditionId,
    /// The model's place in the catalog, which determines its queues.
    pub(super) slot: usize,
    pub(super) info: ModelInfo,
    pub(super) kernels: Kernels,
    pub(super) image: SharedMemory,
}

impl Edition {
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    #[must_use]
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }
}

/// The kernels that compute a model on this cpu, as measured when it was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernels {
    /// The kernel by number of rows, ascending.
    pub choices: Vec<KernelChoice>,
    /// Kernels that this cpu or this model does not support.
    pub refused: Vec<&'static str>,
    /// Measured time for the contributions of one row, in nanoseconds.
    pub contribs_nanoseconds: Option<f64>,
}

/// The kernel for a number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelChoice {
    /// The largest number of rows of this choice; the last choice has no limit.
    pub rows: usize,
    pub kernel: &'static str,
    /// Measured time for a row, in nanoseconds. `None`: chosen by rule.
    pub nanoseconds: Option<f64>,
    /// Bytes of the model that the kernel reads, and of the rows as it prepares them.
    pub reads_bytes: usize,
}

impl Kernels {
    pub(super) fn of(predictor: &Predictor<'_>) -> Self {
        let choices = predictor.choices().iter().map(|choice| KernelChoice {
            rows: choice.rows,
            kernel: choice.kernel.name(),
            nanoseconds: choice.nanoseconds,
            reads_bytes: predictor.working_set(choice.kernel),
        });
        let refused = Kernel::ALL.into_iter();
        let refused = refused.filter(|&kernel| predictor.with_kernel(kernel).is_none());
        Self {
            choices: choices.collect(),
            refused: refused.map(Kernel::name).collect(),
            contribs_nanoseconds: predictor.row_nanoseconds(Kind::Contribs, 1),
        }
    }
}

/// A latency objective: at least a percentile of the replies arrive within the latency.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// From the arrival of a request to its reply.
    pub latency: Duration,
    /// Percent of the requests that must meet it.
    pub percentile: f64,
    /// `latency` of requests for contributions; `None`: as for values.
    pub contribs: Option<Duration>,
    /// `latency` of requests for interactions; `None`: as for values.
    pub interactions: Option<Duration>,
}

impl Objective {
    #[must_use]
    pub fn of_all(latency: Duration, percentile: f64) -> Self {
        Self {
            latency,
            percentile,
            contribs: None,
            interactions: None,
        }
    }

    /// The latency for requests whose costliest output is of this kind.
    #[must_use]
    pub fn latency_of(&self, kind: Kind) -> Duration {
        let own = match kind {
            Kind::Contribs => self.contribs,
            Kind::Interactions => self.interactions,
            Kind::Value | Kind::Margin | Kind::Leaf => None,
        };
        own.unwrap_or(self.latency)
    }
}

/// One output that a model can give.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OutputInfo {
    pub kind: Kind,
    pub element: ElementType,
    /// The shape of one row's output; empty for a scalar.
    pub row_shape: Vec<usize>,
}

impl OutputInfo {
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row_shape.iter().product()
    }

    #[must_use]
    pub fn row_bytes(&self) -> usize {
        self.row_elements() * self.element.bytes()
    }
}

/// A loaded model as metadata replies describe it.
#[derive(Clone, Debug, Default)]
pub struct ModelInfo {
    /// The name that requests use.
    pub name: String,
    /// Library and format, for example `xgboost_ubj`.
    pub platform: String,
    /// Number of columns.
    pub features: usize,
    /// Names and types of the columns.
    pub columns: Columns,
    /// The boosting iterations that predict, of those in the file.
    pub iterations: IterationRange,
    /// Says which iterations are used and how to choose others, where none were chosen and the
    /// file's best iteration leaves a choice.
    pub iterations_notice: Option<String>,
    /// The outputs of the model; [`Kind::Value`] is first.
    pub outputs: Vec<OutputInfo>,
}

impl ModelInfo {
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&OutputInfo> {
        self.outputs.iter().find(|output| output.kind == kind)
    }

    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.outputs.iter().map(|output| output.kind).collect()
    }
}
