//! Parses the YAML of a [`Scenario`]. Errors contain line and key.

mod fields;
mod invalid;
mod model;
mod node;
mod tables;

use albacore_batching::deadlines::Delays;
use albacore_batching::{Nanos, Prefer};

pub use self::invalid::{Invalid, Place};
pub use self::tables::{read_arrivals, read_profiles};

use self::fields::{Field, Fields};
use self::node::{Kind, Node};
use crate::arrivals::{ArrivalProcess, Popularity};
use crate::drop_rule::{DropRule, Target};
use crate::scenario::{DropPolicy, Model, Policy, Scenario, Source, Wait};

/// Maximum number of workers.
const WORKERS_MAX: u64 = 100_000;
/// Maximum requests per second.
const RATE_MAX: f64 = 1e9;
/// Maximum requests of a run: an hour of simulation.
const REQUESTS_MAX: u64 = 20_000_000_000;
/// Default number of requests: enough to estimate a bad rate of 1 % to a few hundredths.
const REQUESTS_DEFAULT: u64 = 1_000_000;
/// Maximum number of closed-loop clients.
const CLIENTS_MAX: u64 = 1_000_000;
/// Default share of the objective by which the window opens before frontrun: the best value on the
/// model zoos.
const EARLY_DEFAULT: f64 = 0.05;
/// Maximum target of the drop rule, in rows.
const TARGET_MAX: u64 = 1_000_000;

/// Reads a file referenced by a scenario.
pub type ReadFile<'a> = dyn Fn(&str) -> Result<String, String> + 'a;

/// Errors of reading a scenario.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScenarioError {
    /// The scenario is invalid.
    #[error(transparent)]
    Scenario(#[from] Invalid),
    /// A referenced file is invalid.
    #[error("{file}: {invalid}")]
    File {
        /// The file name in the scenario.
        file: String,
        invalid: Invalid,
    },
}

impl Scenario {
    /// Reads a scenario. Each of `sets` is `key=value` with a dotted key, and overrides the file's
    /// value. `read_file` returns the text of a referenced file.
    ///
    /// # Errors
    /// The first error.
    pub fn read(
        text: &str,
        sets: &[String],
        read_file: &ReadFile<'_>,
    ) -> Result<Self, ScenarioError> {
        let mut node = Node::read(text)?;
        for set in sets {
            match set.split_once('=') {
                Some((key, value)) => node.set(key.trim(), value)?,
                None => {
                    let place = Place::Set(set.clone());
                    return Err(Invalid::new(place, set, "write key=value").into());
                }
            }
        }
        let mut file = Fields::of(node, "")?;
        let Some(workers) = file.take("workers") else {
            return Err(file
                .missing("workers", "write the number of workers")
                .into());
        };
        let workers = workers.count(1, WORKERS_MAX)? as usize;
        let models = models(&mut file, read_file)?;
        let source = source(&mut file, models.len(), read_file)?;
        let seed = match file.take("seed") {
            Some(seed) => seed.count(0, 1 << 53)?,
            None => 1,
        };
        let policy = policy(&mut file)?;
        let drop = drop_rule(file.map("drop")?, policy)?;
        let delays = delays(file.map("delays")?)?;
        let early = file
            .take("early")
            .map_or(Ok(EARLY_DEFAULT), |f| f.share())?;
        let eager_from = file.take("eager_from").map(|f| f.time()).transpose()?;
        file.end()?;
        Ok(Self {
            workers,
            models,
            source,
            seed,
            policy,
            drop,
            delays,
            early,
            eager_from,
        })
    }
}

fn models(file: &mut Fields, read_file: &ReadFile<'_>) -> Result<Vec<Model>, ScenarioError> {
    let beside = file.take("profiles");
    let Some(models) = file.take("models") else {
        let none = "write a list of name, alpha, beta and slo in ms, or profiles: FILE.csv";
        let profiles = beside.ok_or_else(|| file.missing("models", none))?;
        return profiles_of(&profiles, read_file);
    };
    if let Some(profiles) = beside {
        let problem = "cannot be combined with models: write one of them";
        return Err(profiles.invalid(problem).into());
    }
    match models.node.kind {
        Kind::Map(_) => {
            let mut fields = Fields::of(models.node, &models.key)?;
            let Some(profiles) = fields.take("profiles") else {
                return Err(fields
                    .missing("profiles", "write the name of a CSV file")
                    .into());
            };
            fields.end()?;
            profiles_of(&profiles, read_file)
        }
        Kind::List(items) if !items.is_empty() && items.len() <= tables::MODELS_MAX => {
            let item = |(i, node)| Ok(model::read(node, &format!("models[{i}]"))?);
            items.into_iter().enumerate().map(item).collect()
        }
        _ => {
            let most = tables::MODELS_MAX;
            let problem = format!("must be a list of 1 to {most} models");
            Err(Invalid::new(models.node.place, &models.key, problem).into())
        }
    }
}

fn profiles_of(field: &Field, read_file: &ReadFile<'_>) -> Result<Vec<Model>, ScenarioError> {
    let file = field.text()?;
    let text = read_file(&file).map_err(|e| field.invalid(format!("{file}: {e}")))?;
    read_profiles(&text).map_err(|invalid| ScenarioError::File { file, invalid })
}

#[derive(Clone, Copy)]
enum Kinds {
    Poisson,
    Gamma,
    Uniform,
    Closed,
    File,
}

fn source(
    file: &mut Fields,
    models: usize,
    read_file: &ReadFile<'_>,
) -> Result<Source, ScenarioError> {
    let mut arrivals = file.map("arrivals")?;
    let kinds = [
        ("poisson", Kinds::Poisson),
        ("gamma", Kinds::Gamma),
        ("uniform", Kinds::Uniform),
        ("closed", Kinds::Closed),
        ("file", Kinds::File),
    ];
    let kind = arrivals.take("process");
    let kind = kind.map_or(Ok(Kinds::Poisson), |f| f.word(&kinds))?;
    let shape = arrivals.take("shape");
    let shape = shape.map(|f| f.number(1e-3, 1e6)).transpose()?;
    let popularity = popularity(&mut arrivals)?;
    let list = arrivals.take("file");
    let (clients, think) = (arrivals.take("clients"), arrivals.take("think"));
    let (rate, requests) = (file.take("rate"), file.take("requests"));
    let process = match kind {
        Kinds::Poisson => ArrivalProcess::Poisson,
        Kinds::Uniform => ArrivalProcess::Uniform,
        Kinds::Gamma => ArrivalProcess::Gamma {
            shape: shape.ok_or_else(|| arrivals.missing("shape", "gamma needs a shape"))?,
        },
        Kinds::Closed => {
            let none = "write the number of clients";
            let clients = clients.ok_or_else(|| arrivals.missing("clients", none))?;
            if let Some(rate) = rate {
                let what = "cannot be combined with process: closed: remove it";
                return Err(rate.invalid(what).into());
            }
            arrivals.end()?;
            return Ok(Source::Closed {
                clients: clients.count(1, CLIENTS_MAX)? as u32,
                think: think.map_or(Ok(Nanos(0)), |field| field.time())?,
                popularity,
                requests: count_of(requests)?,
            });
        }
        Kinds::File => {
            let list = list.ok_or_else(|| {
                arrivals.missing("file", "write the name of the list of arrivals")
            })?;
            arrivals.end()?;
            let file = list.text()?;
            let text = read_file(&file).map_err(|e| list.invalid(format!("{file}: {e}")))?;
            let read = read_arrivals(&text, models);
            let read = read.map_err(|invalid| ScenarioError::File { file, invalid })?;
            return Ok(Source::Listed(read));
        }
    };
    if let Some(list) = list {
        return Err(list.invalid("needs process: file").into());
    }
    if let Some(field) = clients.or(think) {
        return Err(field.invalid("needs process: closed").into());
    }
    arrivals.end()?;
    let Some(rate) = rate else {
        let what = "write the requests per second of all models together";
        return Err(file.missing("rate", what).into());
    };
    Ok(Source::Drawn {
        process,
        popularity,
        rate: rate.number(1e-6, RATE_MAX)?,
        requests: count_of(requests)?,
    })
}

fn count_of(requests: Option<Field>) -> Result<u64, Invalid> {
    requests.map_or(Ok(REQUESTS_DEFAULT), |field| field.count(1, REQUESTS_MAX))
}

fn popularity(arrivals: &mut Fields) -> Result<Popularity, Invalid> {
    let exponent = arrivals.take("exponent");
    let exponent = exponent.map(|f| f.number(0.0, 100.0)).transpose()?;
    let zipf = arrivals.take("popularity");
    let is_zipf = zipf.map_or(Ok(false), |f| f.word(&[("equal", false), ("zipf", true)]))?;
    match (is_zipf, exponent) {
        (false, _) => Ok(Popularity::Equal),
        (true, Some(exponent)) => Ok(Popularity::Zipf { exponent }),
        (true, None) => Err(arrivals.missing("exponent", "zipf needs one, such as 0.9")),
    }
}

fn policy(file: &mut Fields) -> Result<Policy, Invalid> {
    let preferences = Prefer::ALL.map(|prefer| (prefer.name(), prefer));
    let preference = file.take("prefer");
    let prefer = preference.map_or(Ok(Prefer::default()), |f| f.word(&preferences))?;
    let words = [
        ("deferred", Policy::Deferred),
        ("auto", Policy::Auto(prefer)),
        ("eager", Policy::Eager),
        ("timeout", Policy::Timeout(Wait::Fixed(Nanos(0)))),
    ];
    let policy = file.take("policy");
    let policy = policy.map_or(Ok(Policy::Auto(prefer)), |f| f.word(&words))?;
    let timeout = file.take("timeout");
    if !matches!(policy, Policy::Timeout(_)) {
        return Ok(policy);
    }
    let Some(timeout) = timeout else {
        return Err(file.missing("timeout", "the policy needs one, such as 10% or 2ms"));
    };
    let is_share = timeout.text()?.ends_with('%');
    Ok(Policy::Timeout(match is_share {
        true => Wait::Share(timeout.share()?),
        false => Wait::Fixed(timeout.time()?),
    }))
}

fn drop_rule(mut fields: Fields, policy: Policy) -> Result<DropPolicy, Invalid> {
    let rule = fields.take("rule");
    let is_head = rule.map_or(Ok(false), |f| f.word(&[("window", false), ("head", true)]))?;
    let is_auto = matches!(policy, Policy::Auto(_));
    let window = match fields.take("target") {
        None if is_auto => DropPolicy::Auto,
        None => DropPolicy::window(Target::Own),
        Some(field) => match field.text()?.as_str() {
            "own" => DropPolicy::window(Target::Own),
            "auto" if is_auto => DropPolicy::Auto,
            "half" => DropPolicy::window(Target::Half),
            text if text.parse::<f64>().is_ok() => {
                DropPolicy::window(Target::Rows(field.count(1, TARGET_MAX)?))
            }
            text => {
                let auto = if is_auto { "auto, " } else { "" };
                let problem = format!("{text:?} is not {auto}own, half or a number of rows");
                return Err(field.invalid(problem));
            }
        },
    };
    fields.end()?;
    Ok(match is_head {
        true => DropPolicy::Rule(DropRule::Head),
        false => window,
    })
}

fn delays(mut fields: Fields) -> Result<Delays, Invalid> {
    let mut time = |key| fields.take(key).map_or(Ok(Nanos(0)), |f| f.time());
    let delays = Delays {
        control: time("control")?,
        data: time("data")?,
    };
    fields.end()?;
    Ok(delays)
}

#[cfg(test)]
mod tests;
