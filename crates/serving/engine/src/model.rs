//! Metadata of a loaded model.

use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use albacore_trees::{IterationRange, Predictor};
use albacore_worker::EditionId;

use super::{Kind, KindSet, OutputInfo};
use crate::columns::Columns;
use crate::image::PlacedImage;

/// One compiled state of a model: from its installation until no request needs it any more.
#[derive(Debug)]
pub struct Edition {
    pub(crate) id: EditionId,
    /// The model's place in the catalog, which determines its queues.
    pub(super) slot: usize,
    pub(super) info: ModelInfo,
    pub(super) kernels: Vec<KernelChoice>,
    pub(super) image: Arc<PlacedImage>,
    pub(super) usage: Usage,
}

/// Whether requests may still need an edition. Requests pin it without a lock.
///
/// A thread that pins adds a pin and then reads `is_retired`; the thread that retires writes
/// `is_retired` and then reads the pins: at least one of them sees the other. Aligned, so that who
/// reads the rest of an edition does not wait for those who pin it.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(super) struct Usage {
    pins: AtomicUsize,
    is_retired: AtomicBool,
}

impl Usage {
    /// Adds a pin; false if the edition is retired: then [`Usage::unpin`] it and look it up again.
    pub(super) fn pin(&self) -> bool {
        self.pins.fetch_add(1, Ordering::SeqCst);
        !self.is_retired.load(Ordering::SeqCst)
    }

    /// Removes a pin; returns whether nobody needs the edition any more.
    pub(super) fn unpin(&self) -> bool {
        let before = self.pins.fetch_sub(1, Ordering::SeqCst);
        before == 1 && self.is_retired.load(Ordering::SeqCst)
    }

    /// From now on no request gets this edition.
    pub(super) fn retire(&self) {
        self.is_retired.store(true, Ordering::SeqCst);
    }

    /// Whether a request may name the edition.
    pub(super) fn is_needed(&self) -> bool {
        !self.is_retired.load(Ordering::SeqCst) || self.pins.load(Ordering::SeqCst) > 0
    }
}

impl Edition {
    #[must_use]
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    /// Identifies it among the editions of all fronts of a server.
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

/// The kernels that compute a model on this cpu, as measured when it was loaded, by ascending
/// number of rows.
pub(super) fn kernel_choices(predictor: &Predictor<'_>) -> Vec<KernelChoice> {
    let choices = predictor.choices().iter().map(|choice| KernelChoice {
        rows: choice.rows,
        kernel: choice.kernel.name(),
        nanoseconds: choice.nanoseconds,
        reads_bytes: predictor.working_set(choice.kernel),
    });
    choices.collect()
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
    /// Whether a column that a request with named columns lacks is NaN, rather than refused.
    pub missing_is_nan: bool,
    /// The boosting iterations that predict, of those in the file.
    pub iterations: IterationRange,
    /// Says which iterations are used and how to choose others, where none were chosen and the
    /// file's best iteration leaves a choice.
    pub iterations_notice: Option<String>,
    /// How classes follow from values, of a classifier of scikit-learn's interface.
    pub classes: Option<Classes>,
    /// The names that the user gave to its classes.
    pub class_names: Option<ClassNames>,
    /// Whether answers in MLflow's protocol are probabilities, where a request does not say
    /// otherwise; classes else, of a classifier.
    pub predicts_probabilities: bool,
    /// The outputs of the model; [`Kind::Value`] is first.
    pub outputs: Vec<OutputInfo>,
}

/// The classes of a classifier.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    pub rule: ClassRule,
    /// Each as JSON; none where classes are the numbers from 0.
    pub labels: Vec<String>,
}

/// The names that a user gave to the classes of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassNames {
    pub rule: ClassRule,
    /// By the number of the class.
    pub names: Vec<String>,
}

/// How the class of a row follows from its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClassRule {
    /// The value is the number of the class.
    Given,
    /// The first of the largest numbers of the value.
    Largest,
    /// 1 if the value is above one half, else 0.
    AboveHalf,
    /// The same for each number of the value: several classes may be true at once.
    EachAboveHalf,
}

impl ClassRule {
    /// The number of the class that the numbers of a row's value mean; of several that may be true
    /// at once, the first of the largest.
    #[must_use]
    pub fn class_of(self, numbers: &[f64]) -> usize {
        let first = numbers.first().copied().unwrap_or_default();
        match self {
            Self::Given => first as usize,
            Self::AboveHalf => usize::from(first > 0.5),
            Self::Largest | Self::EachAboveHalf => first_of_largest(numbers),
        }
    }

    /// The rule of this number; they are numbered in the order of their declaration.
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
    for (place, value) in numbers.iter().enumerate() {
        if *value > numbers[largest] {
            largest = place;
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
