//! Lists in separate files: profiles of models as CSV, arrivals with one per line.

use super::invalid::{Invalid, Place};
use super::model;
use crate::arrivals::Arrival;
use crate::scenario::Model;

/// Maximum number of models of a table.
pub(super) const MODELS_MAX: usize = 10_000;

/// Maximum number of listed arrivals: they are all held in memory.
const ARRIVALS_MAX: usize = 50_000_000;

/// Column names; the suffix `_ms` is optional.
const COLUMNS: [&str; 4] = ["name", "alpha_ms", "beta_ms", "slo_ms"];

/// Reads a table with the columns name, `alpha_ms`, `beta_ms` and `slo_ms`.
///
/// # Errors
/// The first error, with its line and column.
pub fn read_profiles(text: &str) -> Result<Vec<Model>, Invalid> {
    let mut lines = text.lines().enumerate();
    let header: Vec<&str> = match lines.next() {
        Some((_, line)) => line.split(',').map(str::trim).collect(),
        None => Vec::new(),
    };
    let mut places = [0; COLUMNS.len()];
    for (place, name) in places.iter_mut().zip(COLUMNS) {
        let is_it = |column: &&str| *column == name || Some(*column) == name.strip_suffix("_ms");
        *place = header.iter().position(is_it).ok_or_else(|| {
            let problem = format!("the column is missing: the first line must name {COLUMNS:?}");
            Invalid::new(Place::Line(1), name, problem)
        })?;
    }
    let mut models: Vec<Model> = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let place = Place::Line(index as u64 + 1);
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        let field = |column: usize| {
            fields.get(places[column]).copied().ok_or_else(|| {
                Invalid::new(place.clone(), COLUMNS[column], "is missing in this line")
            })
        };
        let number = |column: usize| {
            let text = field(column)?;
            text.parse::<f64>().map_err(|_| {
                let problem = format!("{text:?} is not a number");
                Invalid::new(place.clone(), COLUMNS[column], problem)
            })
        };
        let profile = [number(1)?, number(2)?, number(3)?];
        let keys = [COLUMNS[1], COLUMNS[2], COLUMNS[3]].map(|key| (key.to_owned(), place.clone()));
        models.push(model::check(field(0)?, profile, &keys)?);
        if models.len() > MODELS_MAX {
            let problem = format!("more than {MODELS_MAX} models");
            return Err(Invalid::new(place, "name", problem));
        }
    }
    match models.is_empty() {
        true => Err(Invalid::new(
            Place::Line(1),
            "name",
            "the file has no models",
        )),
        false => Ok(models),
    }
}

/// Reads arrivals, one per line: nanoseconds since the start, and the index of the model.
///
/// # Errors
/// The first error, with its line.
pub fn read_arrivals(text: &str, models: usize) -> Result<Vec<Arrival>, Invalid> {
    let mut arrivals: Vec<Arrival> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let place = || Place::Line(index as u64 + 1);
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let mut fields = line.split_whitespace();
        let (at, model, rest) = (fields.next(), fields.next(), fields.next());
        let at = at.and_then(|at| at.parse().ok());
        let model = model.and_then(|model| model.parse().ok());
        let (Some(at), Some(model), None) = (at, model, rest) else {
            let problem = format!("{line:?} is not \"NANOSECONDS MODEL\"");
            return Err(Invalid::new(place(), "arrival", problem));
        };
        if model >= models {
            let problem =
                format!("{model} is out of range: there are {models} models, counted from 0");
            return Err(Invalid::new(place(), "model", problem));
        }
        if arrivals.last().is_some_and(|last| last.at > at) {
            let problem = "is before that of the line above: sort the lines";
            return Err(Invalid::new(place(), "time", problem));
        }
        if arrivals.len() == ARRIVALS_MAX {
            let problem = format!("more than {ARRIVALS_MAX} arrivals");
            return Err(Invalid::new(place(), "arrival", problem));
        }
        arrivals.push(Arrival { at, model });
    }
    match arrivals.is_empty() {
        true => Err(Invalid::new(
            Place::Line(1),
            "arrival",
            "the file has no arrivals",
        )),
        false => Ok(arrivals),
    }
}
