//! Rows of a call, and their conversion to the values that the training library compares.

use std::ops::Range;

use albacore_formats::Library;

/// LightGBM's zero threshold: values of at most this magnitude count as 0 (its constant is the
/// `f32` 1e-35).
pub(crate) const ZERO_MAX: f64 = 1e-35_f32 as f64;

/// Rows x features, row-major; NaN is a missing value.
#[derive(Debug, Clone, Copy)]
pub enum Rows<'a> {
    /// Single precision; widened for LightGBM's models.
    F32(&'a [f32]),
    /// Double precision; rounded to `f32` for XGBoost's models.
    F64(&'a [f64]),
}

impl<'a> Rows<'a> {
    #[must_use]
    pub fn values(&self) -> usize {
        match self {
            Self::F32(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Returns a range of the rows.
    pub(crate) fn rows(&self, rows: Range<usize>, features: usize) -> Rows<'a> {
        let values = rows.start * features..rows.end * features;
        match self {
            Self::F32(all) => Rows::F32(&all[values]),
            Self::F64(all) => Rows::F64(&all[values]),
        }
    }

    /// Returns a value as the engines compare it.
    pub(crate) fn prepared(&self, library: Library, index: usize) -> f64 {
        match (library, self) {
            (Library::Xgboost, Self::F32(x)) => f64::from(x[index]),
            (Library::Xgboost, Self::F64(x)) => rounded(x[index]),
            (Library::Lightgbm, Self::F32(x)) => flushed(f64::from(x[index])),
            (Library::Lightgbm, Self::F64(x)) => flushed(x[index]),
            (Library::Sklearn, Self::F32(x)) => f64::from(x[index]),
            (Library::Sklearn, Self::F64(x)) => x[index],
        }
    }

    /// Fills `prepared` with the values as the engines compare them.
    pub(crate) fn prepare(&self, library: Library, prepared: &mut Vec<f64>) {
        prepared.clear();
        match (library, self) {
            (Library::Xgboost | Library::Sklearn, Self::F32(values)) => {
                prepared.extend(values.iter().map(|&x| f64::from(x)));
            }
            (Library::Xgboost, Self::F64(values)) => {
                prepared.extend(values.iter().map(|&x| rounded(x)));
            }
            (Library::Lightgbm, Self::F32(values)) => {
                prepared.extend(values.iter().map(|&x| flushed(f64::from(x))));
            }
            (Library::Lightgbm, Self::F64(values)) => {
                prepared.extend(values.iter().map(|&x| flushed(x)));
            }
            (Library::Sklearn, Self::F64(values)) => prepared.extend(values.iter()),
        }
    }
}

/// Rounds to `f32`, because XGBoost stores rows in `f32`.
pub(crate) fn rounded(x: f64) -> f64 {
    f64::from(x as f32)
}

/// Flushes tiny magnitudes to 0, as LightGBM's reader does; keeps NaN.
pub(crate) fn flushed(x: f64) -> f64 {
    if x.abs() <= ZERO_MAX { 0.0 } else { x }
}
