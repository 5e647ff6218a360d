//! The boosting iterations of a file that predict.
//!
//! Early stopping leaves iterations after the best one in the file, and the objects of one library
//! disagree on them: XGBoost's scikit-learn classes predict up to the best iteration, its `Booster`
//! with all. `docs/reference/iterations.md` lists what each library does.

use std::str::FromStr;

use thiserror::Error;

use crate::model::{IterationRange, Library, Model};

/// A choice of iterations, counted from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Iterations {
    /// As the object that saved the file predicts: up to the best iteration if XGBoost's
    /// scikit-learn interface saved it and it names one, else all.
    #[default]
    AsSaved,
    /// All of the file.
    All,
    /// Up to the file's `best_iteration`, inclusive.
    Best,
    /// XGBoost's `iteration_range`; LightGBM's `start_iteration` and `num_iteration`.
    Range {
        begin: usize,
        /// One beyond the last; greater than `begin`.
        end: usize,
    },
}

impl FromStr for Iterations {
    type Err = String;

    /// Reads `all`, `best` or `BEGIN:END`.
    ///
    /// # Errors
    /// A sentence with the accepted forms.
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

/// A model cannot predict with the chosen iterations.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum IterationsError {
    /// The file names no best iteration.
    #[error(
        "iterations is Best, but the file names no best iteration{hint}: choose All or a range \
         within its {in_file} iterations"
    )]
    NoBest {
        /// The reason, if the library never writes one.
        hint: &'static str,
        /// Iterations of the file.
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
        /// Iterations of the file.
        in_file: usize,
    },
    /// No iteration at all.
    #[error(
        "iterations from {begin} to {end} are none: end must be above begin (XGBoost's end 0 is \
         not taken; the file's end is {in_file})"
    )]
    Empty {
        begin: usize,
        end: usize,
        /// Iterations of the file.
        in_file: usize,
    },
    /// Beyond the end of the file.
    #[error(
        "iterations from {begin} to {end} are not within the file, which holds {in_file}: choose an \
         end of at most {in_file}"
    )]
    Beyond {
        begin: usize,
        end: usize,
        /// Iterations of the file.
        in_file: usize,
    },
}

impl Model {
    /// Drops the trees of all iterations but the chosen ones, for all kinds of predictions: values,
    /// margins, contributions with their bias, interactions and leaves (one column per remaining
    /// tree). `self` is the parsed model.
    ///
    /// # Errors
    /// The file does not hold the chosen iterations, or they are none.
    pub fn with_iterations(mut self, chosen: Iterations) -> Result<Self, IterationsError> {
        let IterationRange { begin, end, .. } = self.iterations_of(chosen)?;
        self.keep_iterations(begin, end);
        Ok(self)
    }

    /// The iterations of a choice; `self` is the parsed model.
    ///
    /// # Errors
    /// The file does not hold them, or they are none.
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

    /// Whether the object that saved the file predicts up to the best iteration.
    fn predicts_to_best(&self) -> bool {
        self.parts().is_saved_by_sklearn && self.parts().best_iteration.is_some()
    }

    /// A sentence for a user who chose no iterations, if the best iteration is not the last: which
    /// iterations are used and how to choose others.
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
