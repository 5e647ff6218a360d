//! `albacore partition`: assigns the models of a file to its sub-clusters.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use albacore_command::{Failure, print_json};
use albacore_partition::{
    Current, Limits, Measure, Method, Model, Problem, Solution, best_random, check, solve,
};
use serde::Deserialize;
use serde_json::{Value, json};
use serde_saphyr::Spanned;

/// Maximum size of a file: enough for a hundred thousand models.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Maximum nesting depth of a file; a valid one has three levels.
const DEPTH_MAX: usize = 8;

/// The arguments of `albacore partition`.
#[derive(Debug, clap::Args)]
pub(crate) struct PartitionArgs {
    /// File with models and sub-clusters; see examples/partition.yaml
    #[arg(short, long, value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Time limit of the search, in seconds
    #[arg(long, value_name = "N", default_value_t = 10,
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    pub(crate) seconds: u64,
    /// Also print the best of random partitions found in the same time, as a baseline
    #[arg(long = "random")]
    pub(crate) has_random: bool,
}

/// The parsed file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    clusters: Spanned<usize>,
    models: Vec<FileModel>,
    #[serde(default)]
    limits: FileLimits,
    weight: Option<Spanned<f64>>,
    #[serde(default)]
    current: BTreeMap<String, Spanned<usize>>,
    change_cost_max: Option<Spanned<f64>>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileModel {
    name: String,
    rate: Spanned<f64>,
    memory: Spanned<f64>,
    running_memory: Option<Spanned<f64>>,
    change_cost: Option<Spanned<f64>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct FileLimits {
    rate: Option<Spanned<f64>>,
    memory: Option<Spanned<f64>>,
}

/// Reads and solves the problem, and prints the solution.
///
/// # Errors
/// The file is rejected, with line and key, or the checker rejects the solution (a bug).
pub(crate) fn run(args: &PartitionArgs) -> Result<(), Failure> {
    let problem = read(&args.file)?;
    let until = |seconds| {
        let end = Instant::now() + Duration::from_secs(seconds);
        move || Instant::now() < end
    };
    let refused = |error| Failure::usage(&args.file.display().to_string(), &error);
    let solution = solve(&problem, &mut until(args.seconds)).map_err(refused)?;
    let judged = check(&problem, &solution.assignment);
    if judged.as_ref() != Ok(&solution.measure) {
        let what = format!("the checker returned {judged:?} for {:?}", solution.measure);
        return Err(Failure::Broken(what));
    }
    let mut value = as_json(&problem, &solution);
    if args.has_random {
        let seed = 1;
        let random = best_random(&problem, seed, &mut until(args.seconds));
        let random = random.and_then(|places| check(&problem, &places).ok());
        value["random"] = random.map_or(Value::Null, |measure| json_of(&measure));
    }
    print_json(&value)
}

fn json_of(measure: &Measure) -> Value {
    json!({
        "rate_imbalance": measure.rate_imbalance,
        "memory_imbalance": measure.memory_imbalance,
        "objective": measure.objective,
        "change_cost": measure.change_cost,
        "moved": measure.moved,
    })
}

fn as_json(problem: &Problem, solution: &Solution) -> Value {
    let mut value = json_of(&solution.measure);
    value["bound"] = json!(solution.bound);
    value["gap"] = json!(solution.gap());
    value["method"] = json!(match solution.method {
        Method::Search => "search",
        Method::Program => "program",
    });
    let clusters = (0..problem.clusters).map(|cluster| {
        let here = || {
            let pairs = problem.models.iter().zip(&solution.assignment);
            pairs
                .filter(|(_, place)| **place == cluster)
                .map(|(model, _)| model)
        };
        json!({
            "rate": here().map(|model| model.rate).sum::<f64>(),
            "memory": here().map(|model| model.memory).sum::<f64>(),
            "running_memory": here().map(|model| model.running_memory).fold(0.0, f64::max),
            "models": here().map(|model| model.name.as_str()).collect::<Vec<_>>(),
        })
    });
    value["clusters"] = json!(clusters.collect::<Vec<_>>());
    value
}

fn read(path: &Path) -> Result<Problem, Failure> {
    let usage = |what: String| Failure::Usage(format!("{}: {what}", path.display()));
    let length = fs::metadata(path).map_err(|e| usage(e.to_string()))?.len();
    if length > FILE_BYTES_MAX {
        return Err(usage(format!(
            "the file has {length} bytes, more than {FILE_BYTES_MAX}"
        )));
    }
    let text = fs::read_to_string(path).map_err(|e| usage(e.to_string()))?;
    parse(&text).map_err(usage)
}

/// Parses the problem; errors contain line and key.
fn parse(text: &str) -> Result<Problem, String> {
    let budget = serde_saphyr::budget! { max_depth: DEPTH_MAX };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    let file: File = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let error = error.without_snippet();
        let (line, column) = error
            .location()
            .map_or((1, 1), |place| (place.line(), place.column()));
        let problem = error.to_string();
        let problem = problem.lines().next().unwrap_or_default();
        format!("line {line}: {}{problem}", key_at(text, line, column))
    })?;
    if file.clusters.value == 0 {
        return Err(at(&file.clusters, "clusters: must be at least 1"));
    }
    let current = current(&file)?;
    let quantity = |key: &str, number: &Option<Spanned<f64>>, or: f64| match number {
        None => Ok(or),
        Some(number) if number.value.is_finite() && number.value >= 0.0 => Ok(number.value),
        Some(number) => {
            let what = format!("{key}: {} is not a number of at least 0", number.value);
            Err(at(number, &what))
        }
    };
    let limits = Limits {
        rate: quantity("limits.rate", &file.limits.rate, f64::INFINITY)?,
        memory: quantity("limits.memory", &file.limits.memory, f64::INFINITY)?,
    };
    let weight = quantity("weight", &file.weight, 1.0)?;
    let models = file.models.into_iter().enumerate().map(|(i, model)| {
        let key = |name: &str| format!("models[{i}].{name}");
        Ok(Model {
            name: model.name,
            rate: quantity(&key("rate"), &Some(model.rate), 0.0)?,
            memory: quantity(&key("memory"), &Some(model.memory), 0.0)?,
            running_memory: quantity(&key("running_memory"), &model.running_memory, 0.0)?,
            change_cost: quantity(&key("change_cost"), &model.change_cost, 1.0)?,
        })
    });
    Ok(Problem {
        models: models.collect::<Result<_, String>>()?,
        clusters: file.clusters.value,
        limits,
        weight,
        current,
    })
}

/// `KEY: ` of the value at this position, if any.
fn key_at(text: &str, line: u64, column: u64) -> String {
    let line = text.lines().nth(line.saturating_sub(1) as usize);
    let before: String = line
        .unwrap_or_default()
        .chars()
        .take((column as usize).saturating_sub(1))
        .collect();
    let Some((key, _)) = before.rsplit_once(':') else {
        return String::new();
    };
    let key = key.rsplit([' ', '{', ',']).next().unwrap_or_default();
    format!("{key}: ")
}

fn at<T>(value: &Spanned<T>, problem: &str) -> String {
    format!("line {}: {problem}", value.referenced.line())
}

fn current(file: &File) -> Result<Option<Current>, String> {
    let mut names: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, model) in file.models.iter().enumerate() {
        if names.insert(&model.name, index).is_some() {
            let what = format!("models[{index}].name: {} appears twice", model.name);
            return Err(at(&model.rate, &what));
        }
    }
    let cost_max = match &file.change_cost_max {
        None => f64::INFINITY,
        Some(cost) if cost.value >= 0.0 => cost.value,
        Some(cost) => {
            let what = format!(
                "change_cost_max: {} is not a number of at least 0",
                cost.value
            );
            return Err(at(cost, &what));
        }
    };
    if file.current.is_empty() {
        return Ok(None);
    }
    let mut clusters = vec![None; file.models.len()];
    for (name, place) in &file.current {
        let Some(&index) = names.get(name.as_str()) else {
            let what = format!("current.{name}: no such model: remove it");
            return Err(at(place, &what));
        };
        if place.value >= file.clusters.value {
            let what = format!(
                "current.{name}: {} is out of range: there are {} sub-clusters, counted from 0",
                place.value, file.clusters.value
            );
            return Err(at(place, &what));
        }
        clusters[index] = Some(place.value);
    }
    Ok(Some(Current { clusters, cost_max }))
}
