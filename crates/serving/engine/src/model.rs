//! What the front may know about a loaded model.

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
    /// The model's place, and the number of its queue.
    pub(super) slot: usize,
    pub(super) info: ModelInfo,
    pub(super) kernels: Kernels,
    pub(super) image: SharedMemory,
}

impl Edition {
    /// What the front may know of it.
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// How it is computed on this cpu.
    #[must_use]
    pub fn kernels(&self) -> &Kernels {
        &self.kernels
    }
}

/// How a model is computed on this cpu, as it was found out when the model was loaded.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kernels {
    /// Which kernel takes how many rows of predictions, ascending.
    pub choices: Vec<KernelChoice>,
    /// Kernels that this cpu or this model does not allow.
    pub refused: Vec<&'static str>,
    /// What contributions of one row took, in nanoseconds, if that was measured.
    pub contribs_nanoseconds: Option<f64>,
}

/// The kernel for a number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelChoice {
    /// Up to this many rows, and above the number of the choice before; the last one has no end.
    pub rows: usize,
    pub kernel: &'static str,
    /// What a row took, in nanoseconds: it was the fastest. `None`: chosen by rule.
    pub nanoseconds: Option<f64>,
    /// Bytes of the model that it reads, and of what it makes of the rows.
    pub reads_bytes: usize,
}

impl Kernels {
    /// What a predictor says.
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

/// A latency objective: so many percent of the replies within so much time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Objective {
    /// From the arrival of a request to its reply.
    pub latency: Duration,
    /// Percent of the requests that must keep it.
    pub percentile: f64,
    /// As `latency`, of requests for contributions; `None`: as for values.
    pub contribs: Option<Duration>,
    /// The same, of requests for interactions.
    pub interactions: Option<Duration>,
}

impl Objective {
    /// The same time for all requests.
    #[must_use]
    pub fn of_all(latency: Duration, percentile: f64) -> Self {
        Self {
            latency,
            percentile,
            contribs: None,
            interactions: None,
        }
    }

    /// The time of requests whose costliest output is of this kind.
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
    /// Elements of one row's output.
    #[must_use]
    pub fn row_elements(&self) -> usize {
        self.row_shape.iter().product()
    }

    /// Bytes of one row's output.
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
    /// Columns of a row.
    pub features: usize,
    /// What the file says of them.
    pub columns: Columns,
    /// The boosting iterations that predict, of those in the file.
    pub iterations: IterationRange,
    /// Which ones are used and how to choose others, where nothing was chosen and the file's best
    /// iteration leaves a choice.
    pub iterations_notice: Option<String>,
    /// The outputs that this model gives; [`Kind::Value`] is first.
    pub outputs: Vec<OutputInfo>,
}

impl ModelInfo {
    /// The output of `kind`, if this model gives it.
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&OutputInfo> {
        self.outputs.iter().find(|output| output.kind == kind)
    }

    /// The kinds of output that this model gives.
    #[must_use]
    pub fn kinds(&self) -> KindSet {
        self.outputs.iter().map(|output| output.kind).collect()
    }
}
