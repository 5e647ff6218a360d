//! `report.html` and CSV files, computed only from the results: equal results produce identical
//! files.

mod conclusions;
mod csv;
mod curves;
mod html;
mod intervals_chart;
mod page;
mod stages_chart;
mod tables;

use std::path::Path;

pub use page::report_page;

use crate::ExperimentError;
use crate::grid::{Arm, arms};
use crate::journal::Results;
use albacore_statistics::Interval;

/// Writes the report of a folder of results and returns its conclusions, one per line.
///
/// # Errors
/// There are no results, or the files cannot be written.
pub fn write_report(folder: &Path) -> Result<String, ExperimentError> {
    let results = Results::read(folder)?;
    let conclusions = conclusions::of(&results);
    let files = [
        ("report.html", html::page(&results, &conclusions)),
        ("windows.csv", csv::windows(&results)),
        ("comparisons.csv", csv::comparisons(&results)),
        ("stages.csv", csv::stages(&results)),
    ];
    for (name, text) in files {
        let path = folder.join(name);
        std::fs::write(&path, text).map_err(|source| ExperimentError::File { path, source })?;
    }
    Ok(conclusions.join("\n"))
}

/// The reference arm, and the others.
fn reference(results: &Results) -> (Arm, Vec<Arm>) {
    let mut arms = arms(&results.header.spec);
    let reference = match arms.contains(&Arm::Kernel) {
        true => Arm::Kernel,
        // infallible: a spec has two policies
        false => arms.first().copied().unwrap_or(Arm::Scatter),
    };
    arms.retain(|&arm| arm != reference);
    (reference, arms)
}

/// A ratio with its interval: `1.05x (0.98 to 1.12)`.
fn format_ratio(interval: &Interval) -> String {
    let Interval {
        ratio, low, high, ..
    } = interval;
    let bound = |bound: f64| match bound {
        low if low < 0.01 => "below 0.01".to_owned(),
        high if high > 100.0 => "above 100".to_owned(),
        bound => format!("{bound:.2}"),
    };
    format!("{ratio:.2}x ({} to {})", bound(*low), bound(*high))
}

#[cfg(test)]
mod tests;
