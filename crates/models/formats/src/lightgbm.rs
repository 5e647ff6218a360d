//! LightGBM's text format: `key=value` lines, first of the model, then of each tree.
//!
//! Splits and leaves are numbered separately: a nonnegative child is a split, a negative one is the
//! complement of a leaf. Numbers are parsed exactly, thresholds in `f64`, as in the library.

mod categories;
mod tree;

use std::str::FromStr;

use self::tree::LightgbmTreeFields;
use crate::error::{ModelError, ModelResult, excerpt};
use crate::limits::{FEATURES_MAX, GROUPS_MAX, TREES_MAX};
use crate::model::{Format, Model, ModelParts};
use crate::transform::Transform;
use crate::tree::Tree;
use crate::value_reader::{put_once, required};

/// Lines of the file, with the offset for error messages.
struct TextLines<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> TextLines<'a> {
    /// Returns the next line without its line break.
    fn next(&mut self) -> Option<&'a str> {
        let rest = &self.text[self.at..];
        if rest.is_empty() {
            return None;
        }
        let length = rest.find('\n').unwrap_or(rest.len());
        self.at = (self.at + length + 1).min(self.text.len());
        Some(rest[..length].trim_end_matches('\r'))
    }

    fn error<T>(&self, reason: impl Into<String>) -> ModelResult<T> {
        let path = "LightGBM text".to_owned();
        Err(ModelError::Syntax {
            path,
            offset: self.at,
            reason: reason.into(),
        })
    }
}

/// Header fields of the model.
#[derive(Default)]
struct LightgbmHeader<'a> {
    version: Option<&'a str>,
    groups: Option<&'a str>,
    last_feature: Option<&'a str>,
    objective: Option<&'a str>,
    feature_names: Option<&'a str>,
    feature_infos: Option<&'a str>,
    average_output: Option<&'a str>,
}

pub(crate) fn parse(bytes: &[u8]) -> ModelResult<Model> {
    let text = std::str::from_utf8(bytes).map_err(|error| ModelError::Syntax {
        path: "LightGBM text".to_owned(),
        offset: error.valid_up_to(),
        reason: "not UTF-8".to_owned(),
    })?;
    let mut lines = TextLines { text, at: 0 };
    let mut header = LightgbmHeader::default();
    let mut trees = Vec::new();
    let mut is_tree = read_fields(&mut lines, &mut header, LightgbmHeader::slot)?;
    // bound: each iteration consumes the lines of a tree.
    while is_tree {
        if trees.len() >= TREES_MAX {
            return Err(ModelError::too_large(format!("{} trees", trees.len())));
        }
        let mut fields = LightgbmTreeFields::default();
        let path = format!("Tree={}", trees.len());
        is_tree = read_fields(&mut lines, &mut fields, LightgbmTreeFields::slot)
            .map_err(|error| error.inside(&path))?;
        trees.push(fields.tree().map_err(|error| error.inside(&path))?);
    }
    let trailer = read_trailer(&mut lines)?;
    header.finish(trees, &trailer)
}

/// Reads fields into the slots of their keys, up to the next tree; returns whether one follows.
fn read_fields<'a, F>(
    lines: &mut TextLines<'a>,
    fields: &mut F,
    slot: for<'b> fn(&'b mut F, &str) -> Option<&'b mut Option<&'a str>>,
) -> ModelResult<bool> {
    // bound: each iteration consumes a line.
    while let Some(line) = lines.next() {
        if line.starts_with("Tree=") {
            return Ok(true);
        }
        if line == "end of trees" {
            return Ok(false);
        }
        let (key, value) = line.split_once('=').unwrap_or((line, ""));
        if let Some(slot) = slot(fields, key) {
            put_once(slot, value).map_err(|error| error.inside(key))?;
        }
    }
    lines.error("the file ends before 'end of trees'")
}

/// Used fields of the lines after the trees.
#[derive(Default)]
struct Trailer<'a> {
    /// Comma-separated numbers of the categorical columns.
    categorical_columns: Option<&'a str>,
    /// JSON: a list for each categorical column of pandas.
    pandas_categories: Option<&'a str>,
}

/// Reads the lines after the trees; checks that the list of parameters is complete.
fn read_trailer<'a>(lines: &mut TextLines<'a>) -> ModelResult<Trailer<'a>> {
    let mut trailer = Trailer::default();
    let mut is_open = false;
    // bound: each iteration consumes a line.
    while let Some(line) = lines.next() {
        match line {
            "parameters:" => is_open = true,
            "end of parameters" => is_open = false,
            _ => {}
        }
        let parameter = line.strip_prefix("[categorical_feature:");
        if let Some(columns) = parameter.and_then(|rest| rest.strip_suffix(']')) {
            trailer.categorical_columns = Some(columns.trim());
        }
        if let Some(lists) = line.strip_prefix("pandas_categorical:") {
            trailer.pandas_categories = Some(lists);
        }
    }
    match is_open {
        false => Ok(trailer),
        true => lines.error("the file ends before 'end of parameters'"),
    }
}

fn number<T: FromStr>(text: &str, key: &str) -> ModelResult<T> {
    let text = text.trim();
    let shown = excerpt(text);
    text.parse()
        .map_err(|_| ModelError::inconsistent(key, format!("'{shown}' is not a number")))
}

/// Parses a required count.
fn count(field: Option<&str>, key: &str) -> ModelResult<usize> {
    number(required(field, key)?, key)
}

/// Parses a list of exactly `length` numbers.
fn list<T: FromStr>(field: Option<&str>, key: &str, length: usize) -> ModelResult<Vec<T>> {
    let text = required(field, key)?;
    let numbers: ModelResult<Vec<T>> = text
        .split_ascii_whitespace()
        .map(|item| number(item, key))
        .collect();
    let numbers = numbers?;
    if numbers.len() != length {
        let reason = format!("{} numbers instead of {length}", numbers.len());
        return Err(ModelError::inconsistent(key, reason));
    }
    Ok(numbers)
}

impl<'a> LightgbmHeader<'a> {
    fn slot(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
        Some(match key {
            "version" => &mut self.version,
            "num_tree_per_iteration" => &mut self.groups,
            "max_feature_idx" => &mut self.last_feature,
            "objective" => &mut self.objective,
            "feature_names" => &mut self.feature_names,
            "feature_infos" => &mut self.feature_infos,
            "average_output" => &mut self.average_output,
            _ => return None,
        })
    }

    fn finish(self, trees: Vec<Tree>, trailer: &Trailer<'_>) -> ModelResult<Model> {
        let version = self.version.unwrap_or("").to_owned();
        if version != "v3" && version != "v4" {
            let shown = excerpt(&version);
            let reason = format!("LightGBM text version '{shown}': save it with LightGBM 3 or 4");
            return Err(ModelError::Unsupported(reason));
        }
        let groups = count(self.groups, "num_tree_per_iteration")?;
        let features = count(self.last_feature, "max_feature_idx")?.saturating_add(1);
        if groups > GROUPS_MAX || features > FEATURES_MAX {
            return Err(ModelError::too_large(format!(
                "{features} features, {groups} groups"
            )));
        }
        if groups == 0 || !trees.len().is_multiple_of(groups) {
            let reason = format!(
                "{} trees are not a multiple of {groups} trees per iteration",
                trees.len()
            );
            return Err(ModelError::inconsistent("num_tree_per_iteration", reason));
        }
        let (objective, transform) = objective_of(self.objective.unwrap_or("custom"))?;
        let mut trees = trees;
        for (index, tree) in trees.iter_mut().enumerate() {
            tree.group = Some((index % groups) as u32);
        }
        let names = self.feature_names.unwrap_or("");
        let infos = self.feature_infos.unwrap_or("");
        let mut notices = Vec::new();
        let categories = categories::read(trailer, infos, &mut notices)?;
        Model::new(ModelParts {
            format: Format::LightgbmText,
            version,
            objective,
            feature_names: names.split_ascii_whitespace().map(str::to_owned).collect(),
            feature_types: infos.split_ascii_whitespace().map(type_of).collect(),
            categories,
            best_iteration: None,
            is_saved_by_sklearn: false,
            classes: None,
            features,
            groups,
            transform,
            base: vec![0.0; groups],
            is_averaged: self.average_output.is_some(),
            iteration_starts: (0..=trees.len())
                .step_by(groups)
                .map(|tree| tree as u32)
                .collect(),
            trees,
            notices,
        })
    }
}

/// Returns the type of a feature from its entry in `feature_infos`: `[smallest:largest]`, the
/// categories as in `3:1:2`, or `none` if the feature had a single value in training.
fn type_of(info: &str) -> String {
    match info {
        "none" => "none",
        _ if info.starts_with('[') => "numerical",
        _ => "categorical",
    }
    .to_owned()
}

/// Parses name and transform of an objective such as `binary sigmoid:1` or `regression sqrt`.
fn objective_of(line: &str) -> ModelResult<(String, Transform)> {
    let mut words = line.split([' ', ',']).filter(|word| !word.is_empty());
    let name = words.next().unwrap_or("custom");
    let mut sigmoid = 1.0;
    let mut is_sqrt = false;
    for word in words {
        match word.split_once(':') {
            Some(("sigmoid", value)) => sigmoid = number(value, "objective")?,
            None if word == "sqrt" => is_sqrt = true,
            _ => {}
        }
    }
    let transform = match name {
        "regression" | "regression_l1" | "quantile" | "mape" | "fair" if is_sqrt => {
            Transform::SignedSquare
        }
        "regression" | "regression_l1" | "huber" | "fair" | "quantile" | "mape" | "lambdarank"
        | "rank_xendcg" | "custom" | "none" => Transform::Identity,
        "binary" | "multiclassova" => Transform::Sigmoid(sigmoid),
        "cross_entropy" => Transform::Sigmoid(1.0),
        "cross_entropy_lambda" => Transform::Softplus,
        "multiclass" => Transform::Softmax,
        "poisson" | "gamma" | "tweedie" => Transform::Exp,
        _ => {
            let name = excerpt(name);
            let reason = format!("objective {name} is not known, so its values cannot be computed");
            return Err(ModelError::Unsupported(reason));
        }
    };
    Ok((name.to_owned(), transform))
}
