//! `albacore model show`: prints the contents of a model file, its size in memory, and the kernels
//! that the engine uses for it on this machine.

use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

use albacore_trees::{Image, Iterations, Kernel, Kind, Model, Predictor};

use crate::predict_command::read_model;
use albacore_command::Failure;
use albacore_command::print;

/// Most columns whose names are shown.
const COLUMNS_SHOWN: usize = 100;

pub(crate) fn show(path: &Path) -> Result<(), Failure> {
    let model = read_model(path)?;
    let image = Image::compile(&model);
    let predictor = Predictor::open(image.bytes())
        .map_err(|e| Failure::Broken(format!("cannot open a new model image: {e}")))?
        .tuned(&mut nanoseconds());
    let mut text = String::new();
    let mut line = |name: &str, what: String| {
        let _ = writeln!(text, "{name:<12}{what}");
    };
    show_file(&model, &mut line);
    line("trees", model.parts().trees.len().to_string());
    line("leaves", predictor.leaves().to_string());
    line("depth", predictor.depth().to_string());
    line(
        "memory",
        format!("{} bytes, shared by all workers", image.bytes().len()),
    );
    let refused = Kernel::ALL
        .into_iter()
        .filter(|&kernel| predictor.with_kernel(kernel).is_none());
    for kernel in refused {
        line(
            "kernel",
            format!("{kernel}: not supported by this cpu or this model"),
        );
    }
    for choice in predictor.choices() {
        let why = match choice.nanoseconds {
            Some(time) => format!("the fastest here, {time:.0} ns a row"),
            None => "by rule, not measured".to_owned(),
        };
        let (kernel, rows) = (choice.kernel, choice.rows);
        let near = predictor.working_set(kernel) / 1024;
        line(
            "kernel",
            format!("{kernel} for {rows} rows: {why}; reads {near} KiB"),
        );
    }
    line(
        "contribs",
        match predictor.row_nanoseconds(Kind::Contribs, 1) {
            Some(time) => format!("{:.1} us for 1 row", time / 1000.0),
            None => "not measured".to_owned(),
        },
    );
    print(&text)
}

/// Prints the contents of the file with one `line(name, text)` per property.
fn show_file(model: &Model, mut line: impl FnMut(&str, String)) {
    let parts = model.parts();
    let version = match parts.version.as_str() {
        "" => String::new(),
        version => format!(" {version}"),
    };
    line("format", format!("{}{version}", parts.format));
    for notice in &parts.notices {
        line("notice", notice.clone());
    }
    line("objective", parts.objective.clone());
    line("features", parts.features.to_string());
    for (column, name) in parts.feature_names.iter().enumerate() {
        if column == COLUMNS_SHOWN {
            let more = parts.features - column;
            line("column", format!("... and {more} more"));
            break;
        }
        let kind = parts.feature_types.get(column);
        let kind = kind.map_or_else(String::new, |kind| format!(" ({kind})"));
        let table = parts.categories.iter().find(|it| it.column == column);
        let texts = table.map_or_else(String::new, |table| {
            format!(", {} categories", table.texts.len())
        });
        line("column", format!("{column} {name:?}{kind}{texts}"));
    }
    line("outputs", parts.groups.to_string());
    line("iterations", model.iterations().to_string());
    if let Some(best) = parts.best_iteration {
        line("best", format!("iteration {best}"));
    }
    line(
        "used",
        match model.iterations_of(Iterations::AsSaved) {
            Err(error) => format!("none: {error}"),
            Ok(range) => match model.iterations_notice(range) {
                Some(notice) => format!("iterations {range}: {notice}"),
                None => format!("iterations {range}"),
            },
        },
    );
}

/// A clock for the engine.
fn nanoseconds() -> impl FnMut() -> u64 {
    let start = Instant::now();
    move || u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
