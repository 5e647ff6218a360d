//! Metadata of a loaded model.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use albacore_trees::{IterationRange, Predictor};
use albacore_worker::RevisionId;

use super::{Kind, KindSet, OutputInfo};
use crate::columns::Columns;
use crate::image::PlacedImage;

/// One compiled version of a model: from its installation until no request needs it.
#[derive(Debug)]
pub struct ModelRevision {
    pub(crate) id: RevisionId,
    /// The model's slot in the catalog, which determines its queues.
    pub(super) slot: usize,
    pub(super) info: ModelInfo,
    pub(super) kernels: Vec<KernelChoice>,
    pub(super) image: Arc<PlacedImage>,
    pub(super) usage: Usage,
}

/// Reference count of a revision, maintained by requests without a lock.
///
/// A thread that pins adds a pin and then reads `is_retired`; the thread that retires writes
/// `is_retired` and then reads the pins: with sequentially consistent ordering at least one of them
/// sees the other's write. Aligned, so that pinning does not slow down readers of the rest of an
/// revision (false sharing).
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Usage {
    pins: AtomicUsize,
    is_retired: AtomicBool,
}

impl Usage {
    /// Adds a pin; returns false if the revision is retired: then [`Usage::unpin`] it and repeat
    /// the lookup.
    pub(super) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Ordering::SeqCst);
        !self.is_retired.load(Ordering::SeqCst)
    }

    /// Removes a pin; returns whether the revision is retired and this was its last pin.
    pub(super) fn unpin(&self) -> bool {
        let before = self.pins.fetch_sub(1, Ordering::SeqCst);
        before == 1 && self.is_retired.load(Ordering::SeqCst)
    }

    /// Retires the revision: no new request gets it.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
    }

    /// Whether requests may use the revision.
    pub(super) fn is_needed(&self) -> bool {
        !self.is_retired.load(Ordering::SeqCst) || self.pins.load(Ordering::SeqCst) > 0
    }
}

impl ModelRevision {
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Unique among the revisions of all fronts of a server.
    #[must_use]
    pub fn number(&self) -> u64 {
        self.id.0
    }

    /// The memory file of its image.
    #[must_use]
    pub fn image(&self) -> BorrowedFd<'_> {
        self.image.fd()
    }

    #[must_use]
    pub fn kernels(&self) -> &[KernelChoice] {
        &self.kernels
    }
}

/// The kernel chosen for a number of rows.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelChoice {
    /// The largest number of rows of this choice; the last choice has no limit.
    pub rows: usize,
    pub kernel: &'static str,
    /// Measured time per row in nanoseconds. `None`: chosen by a rule.
    pub nanoseconds: Option<f64>,
    /// Bytes of the model that the kernel reads, plus the rows in its layout.
    pub reads_bytes: usize,
}

/// The kernels chosen for a model on this cpu, as measured when it was loaded, by ascending number
/// of rows.
pub(super) fn kernel_choices(predictor: &Predictor<'_>) -> Vec<KernelChoice> {
    let choices = predictor.choices().iter().map(|choice| KernelChoice {
        rows: choice.rows,
        kernel: choice.kernel.name(),
        nanoseconds: choice.nanoseconds,
        reads_bytes: predictor.working_set(choice.kernel),
    });
    choices.collect()
}

/// A loaded model, as described by metadata replies.
#[derive(Clone, Debug, Default)]
pub struct ModelInfo {
    /// Name in requests.
    pub name: String,
    /// Library and format, for example `xgboost_ubj`.
    pub platform: String,
    /// Number of columns.
    pub features: usize,
    /// Names and types of the columns.
    pub columns: Columns,
    /// Whether a column missing from a request with named columns is NaN; otherwise the request is
    /// rejected.
    pub missing_is_nan: bool,
    /// The boosting iterations used for predictions, of those in the file.
    pub iterations: IterationRange,
    /// A notice of the iterations used and how to choose others, if none were chosen and the file's
    /// best iteration leaves a choice.
    pub iterations_notice: Option<String>,
    /// How classes are derived from values, for a classifier with scikit-learn's interface.
    pub classes: Option<ModelClasses>,
    /// Class names given by the user.
    pub class_names: Option<ClassNames>,
    /// Whether replies in MLflow's protocol are probabilities by default; otherwise they are
    /// classes, for a classifier.
    pub predicts_probabilities: bool,
    /// Outputs of the model; [`Kind::Value`] is first.
    pub outputs: Vec<OutputInfo>,
}

/// The classes of a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelClasses {
    pub rule: ClassRule,
    /// Labels as JSON; empty if the classes are the numbers from 0.
    pub labels: Vec<String>,
}

/// Class names given by the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNames {
    pub rule: ClassRule,
    /// By class number.
    pub names: Vec<String>,
}

/// How the class of a row is derived from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRule {
    /// The value is the class number.
    Given,
    /// The index of the largest number of the value; of equal ones the first.
    Largest,
    /// 1 if the value is above one half, else 0.
    AboveHalf,
    /// Like [`ClassRule::AboveHalf`] for each number of the value: several classes may apply at
    /// once.
    EachAboveHalf,
}

impl ClassRule {
    /// The class number of a row's value; if several classes may apply, the first of the largest.
    #[must_use]
    pub fn class_of(self, numbers: &[f64]) -> usize {
        let first = numbers.first().copied().unwrap_or_default();
        match self {
            Self::Given => first as usize,
            Self::AboveHalf => usize::from(first > 0.5),
            Self::Largest | Self::EachAboveHalf => first_of_largest(numbers),
        }
    }

    /// The rule with this number; rules are numbered in declaration order.
    #[must_use]
    pub const fn from_number(number: u8) -> Self {
        match number {
            0 => Self::Given,
            1 => Self::Largest,
            2 => Self::AboveHalf,
            _ => Self::EachAboveHalf,
        }
    }
}

fn first_of_largest(numbers: &[f64]) -> usize {
    let mut largest = 0;
    for (index, value) in numbers.iter().enumerate() {
        if *value > numbers[largest] {
            largest = index;
        }
    }
    largest
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
