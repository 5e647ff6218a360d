//! Selection of the boosting iterations of a file that are used for prediction.
//!
//! With early stopping the file contains iterations after the best one, and the classes of one
//! library treat them differently: XGBoost's scikit-learn classes predict up to the best iteration,
//! its `Booster` with all. `docs/reference/iterations.md` lists the behavior of each library.

use std::str::FromStr;

use thiserror::Error;

use crate::model::{IterationRange, Library, Model};

/// A selection of iterations, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Iterations {
    /// The default of the object that saved the file: up to the best iteration if XGBoost's
    /// scikit-learn interface saved the file and it records one, else all.
    #[default]
    AsSaved,
    /// All iterations of the file.
    All,
    /// Up to the file's `best_iteration`, inclusive.
    Best,
    /// XGBoost's `iteration_range`; LightGBM's `start_iteration` and `num_iteration`.
    Range {
        begin: usize,
        /// One past the last; greater than `begin`.
        end: usize,
    },
}

impl FromStr for Iterations {
    type Err = String;

    /// Parses `all`, `best` or `BEGIN:END`.
    ///
    /// # Errors
    /// A message with the accepted formats.
    fn from_str(text: &str) -> Result<Self, String> {
        let range = || {
            let (begin, end) = text.split_once(':')?;
            Some(Self::Range {
                begin: begin.parse().ok()?,
                end: end.parse().ok()?,
            })
        };
        match text {
            "all" => Ok(Self::All),
            "best" => Ok(Self::Best),
            _ => range().ok_or_else(|| {
                "write all, best, or BEGIN:END, two whole numbers as in 0:100 (END is exclusive)"
                    .to_owned()
            }),
        }
    }
}

/// The selected iterations cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IterationsError {
    /// The file records no best iteration.
    #[error(
        "iterations is Best, but the file names no best iteration{hint}: choose All or a range \
         within its {in_file} iterations"
    )]
    NoBest {
        /// Explanation, if the library never writes one.
        hint: &'static str,
        /// Number of iterations in the file.
        in_file: usize,
    },
    /// The best iteration is not in the file.
    #[error(
        "the file's best_iteration is {best}, but it holds {in_file} iterations: choose All or a \
         range within them"
    )]
    BestBeyond {
        /// `best_iteration` of the file.
        best: usize,
        /// Number of iterations in the file.
        in_file: usize,
    },
    /// The range is empty.
    #[error(
        "iterations from {begin} to {end} are an empty range: end must be above begin (unlike in \
         XGBoost, an end of 0 does not mean all; the file's end is {in_file})"
    )]
    Empty {
        begin: usize,
        end: usize,
        /// Number of iterations in the file.
        in_file: usize,
    },
    /// The range exceeds the iterations of the file.
    #[error(
        "iterations from {begin} to {end} are not within the file, which holds {in_file}: choose an \
         end of at most {in_file}"
    )]
    Beyond {
        begin: usize,
        end: usize,
        /// Number of iterations in the file.
        in_file: usize,
    },
}

impl Model {
    /// Drops the trees of all iterations except the selected ones, for all kinds of predictions:
    /// values, margins, contributions with their bias, interactions and leaves (one column per
    /// remaining tree). `self` must be the parsed model.
    ///
    /// # Errors
    /// The file does not contain the selected iterations, or the selection is empty.
    pub fn with_iterations(mut self, chosen: Iterations) -> Result<Self, IterationsError> {
        let IterationRange { begin, end, .. } = self.iterations_of(chosen)?;
        self.keep_iterations(begin, end);
        Ok(self)
    }

    /// Returns the iterations of a selection; `self` must be the parsed model.
    ///
    /// # Errors
    /// The file does not contain them, or the selection is empty.
    pub fn iterations_of(&self, chosen: Iterations) -> Result<IterationRange, IterationsError> {
        let in_file = self.iterations();
        let best = || match self.parts().best_iteration {
            Some(best) if best < in_file => Ok((0, best + 1)),
            Some(best) => Err(IterationsError::BestBeyond { best, in_file }),
            None => Err(IterationsError::NoBest {
                hint: match self.library() {
                    Library::Xgboost => "",
                    Library::Lightgbm => {
                        " (LightGBM writes none; save_model leaves out what follows the best one)"
                    }
                    Library::Sklearn => " (scikit-learn has none)",
                },
                in_file,
            }),
        };
        let (begin, end) = match chosen {
            Iterations::AsSaved if self.predicts_to_best() => best()?,
            Iterations::Best => best()?,
            Iterations::AsSaved | Iterations::All => (0, in_file),
            Iterations::Range { begin, end } if begin >= end => {
                return Err(IterationsError::Empty {
                    begin,
                    end,
                    in_file,
                });
            }
            Iterations::Range { begin, end } if end > in_file => {
                return Err(IterationsError::Beyond {
                    begin,
                    end,
                    in_file,
                });
            }
            Iterations::Range { begin, end } => (begin, end),
        };
        Ok(IterationRange {
            begin,
            end,
            in_file,
            best: self.parts().best_iteration,
        })
    }

    /// Returns whether the object that saved the file predicts up to the best iteration.
    fn predicts_to_best(&self) -> bool {
        self.parts().is_saved_by_sklearn && self.parts().best_iteration.is_some()
    }

    /// Returns a notice for a user who selected no iterations, if the best iteration is not the
    /// last: the iterations used and how to select others.
    #[must_use]
    pub fn iterations_notice(&self, range: IterationRange) -> Option<String> {
        let best = range.best.filter(|best| best + 1 != range.in_file)?;
        let (who, other, same) = match self.predicts_to_best() {
            true => ("scikit-learn class", "All to use all of them", "Best"),
            false => ("Booster", "Best to stop after the best one", "All"),
        };
        Some(format!(
            "the file's best_iteration is {best}; iterations {range} are used, as the {who} that \
             saved the file predicts: set iterations to {other}, or to {same} to keep this without \
             this message"
        ))
    }
}
