//! Options of a prediction other than its kind, with XGBoost's names.

use std::ops::Range;
use std::path::{Path, PathBuf};

use albacore_trees::{Iterations, PredictionOptions, Predictor};

use albacore_command::Failure;

use super::npy::{self, Floats};

#[derive(Debug, clap::Args)]
pub(crate) struct PredictOptions {
    /// Boosting iterations to use: all, best, or from BEGIN up to END, exclusive [default: as for
    /// the object that saved the file: best if a scikit-learn class of XGBoost saved it after early
    /// stopping, else all]
    #[arg(
        long,
        value_name = "all|best|BEGIN:END",
        conflicts_with = "iteration_range"
    )]
    iterations: Option<Iterations>,
    /// Use the boosting iterations from START up to END, exclusive; END 0 means up to the last one
    #[arg(long, value_name = "START,END", value_parser = range, alias = "iteration_range")]
    iteration_range: Option<(usize, usize)>,
    /// Margins to use instead of the base score: a float array of shape (rows) or (rows, outputs)
    #[arg(long, value_name = "FILE.npy", alias = "base_margin")]
    base_margin: Option<PathBuf>,
    /// Use XGBoost's approximation of contributions and interactions: one walk per tree, not exact
    /// SHAP values
    #[arg(long, alias = "approx_contribs")]
    approx_contribs: bool,
}

fn range(text: &str) -> Result<(usize, usize), String> {
    let numbers = text.split_once(',').map(|(start, end)| {
        let number = |text: &str| text.trim().parse::<usize>();
        Ok::<_, std::num::ParseIntError>((number(start)?, number(end)?))
    });
    match numbers {
        Some(Ok(range)) => Ok(range),
        _ => Err("expected two numbers with a comma between, as in 0,10".to_owned()),
    }
}

/// The options, resolved for a model.
pub(super) struct ResolvedOptions {
    iterations: Range<usize>,
    base_margin: Option<Vec<f32>>,
    pub(super) is_approximate: bool,
    /// Number of trees in the iterations.
    pub(super) trees: usize,
}

impl PredictOptions {
    /// The iterations of the file that are kept.
    pub(super) fn iterations(&self) -> Iterations {
        match (self.iterations, self.iteration_range) {
            (Some(chosen), _) => chosen,
            (None, Some(_)) => Iterations::All,
            (None, None) => Iterations::AsSaved,
        }
    }

    /// Reads the options that are files and resolves them for this model and number of rows.
    pub(super) fn read(
        &self,
        predictor: &Predictor<'_>,
        rows: usize,
    ) -> Result<ResolvedOptions, Failure> {
        let all = predictor.iterations();
        let iterations = match self.iteration_range {
            None | Some((0, 0)) => 0..all,
            Some((start, 0)) => start..all,
            Some((start, end)) => start..end,
        };
        let Some(trees) = predictor.trees_of(iterations.clone()) else {
            let Range { start, end } = iterations;
            let what = format!("--iteration-range {start},{end}: the model has {all} iterations");
            return Err(Failure::Usage(what));
        };
        let base_margin = self.base_margin.as_deref();
        Ok(ResolvedOptions {
            iterations,
            base_margin: base_margin
                .map(|path| margins(path, rows, predictor.groups()))
                .transpose()?,
            is_approximate: self.approx_contribs,
            trees,
        })
    }
}

/// Reads margins, rows x outputs, from a file.
fn margins(path: &Path, rows: usize, outputs: usize) -> Result<Vec<f32>, Failure> {
    let table = npy::read_vector_or_table(path)?;
    if (table.rows, table.columns) != (rows, outputs) {
        return Err(Failure::Failed(format!(
            "{}: {} x {} margins, but {rows} rows of {outputs} outputs need one for each",
            path.display(),
            table.rows,
            table.columns
        )));
    }
    Ok(match table.floats {
        Floats::F32(margins) => margins,
        // XGBoost also stores them as float32.
        Floats::F64(margins) => margins.into_iter().map(|x| x as f32).collect(),
    })
}

impl ResolvedOptions {
    /// The options for a range of rows.
    pub(super) fn options(&self, rows: Range<usize>, outputs: usize) -> PredictionOptions<'_> {
        let margins = self.base_margin.as_deref();
        PredictionOptions {
            iterations: Some(self.iterations.clone()),
            base_margin: margins.map(|all| &all[rows.start * outputs..rows.end * outputs]),
        }
    }
}
