//! The command line, checked.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use albacore_batching::{Policy, Prefer};
use albacore_engine::limits::MODELS_MAX;
use albacore_engine::{BatchingParams, EngineConfig};
use albacore_settings::Source;
use albacore_storage::BYTES_DEFAULT;
use clap::{Parser, ValueEnum};

use crate::container_args::{ContainerArgs, PlatformRoutes};
use crate::kserve_args::KserveArgs;
use crate::limits::{
    BATCH_ROWS_MAX, CPUS_MAX, FRONT_THREAD_CPUS, FRONT_THREADS_AUTO_MAX, FRONT_THREADS_MAX,
    FRONT_THREADS_MIN, QUEUE_ROWS_MAX, THREADS_MAX, WORKERS_MAX,
};
use albacore_live_settings::cli_models::CliModel;
pub use albacore_params_client::ParamsEndpoint;

/// Serves tree models over the Open Inference Protocol v2.
///
/// Runs one front process, its standby, and W worker processes of T threads each; the threads are
/// named `albw<worker>.<rank>`.
#[derive(Debug, Parser)]
#[command(name = "albacore-server", version)]
pub struct Args {
    /// Listen address of HTTP, including `/metrics`.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "[::]:8080",
        env = "ALBACORE_HTTP"
    )]
    pub http: SocketAddr,
    /// Listen address of gRPC.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "[::]:8081",
        env = "ALBACORE_GRPC"
    )]
    pub grpc: SocketAddr,
    /// Number of worker processes.
    #[arg(long, value_name = "W", default_value_t = 1, env = "ALBACORE_WORKERS",
          value_parser = bounded(1, WORKERS_MAX))]
    pub workers: usize,
    /// Number of compute threads per worker.
    #[arg(long, value_name = "T", default_value_t = 1, env = "ALBACORE_THREADS",
          value_parser = bounded(1, THREADS_MAX))]
    pub threads: usize,
    /// Maximum number of CPUs to use. Set by `albacore run --cpus`: the server reads the cpuset and
    /// quota of its cgroup, but no affinity mask [default: no other limit].
    #[arg(long, value_name = "N", value_parser = bounded(1, CPUS_MAX))]
    pub cpus_max: Option<usize>,
    /// Number of front-end threads, which read requests and write replies [default: a quarter of
    /// the CPUs, at least 2 if there are 4 or more, at most 16].
    #[arg(long, value_name = "N", env = "ALBACORE_FRONT_THREADS")]
    pub front_threads: Option<usize>,
    /// A model and the name to serve it under; can be repeated. SOURCE is the path of a file or of
    /// a folder with one model file, or a URL: https://, s3://, gs://, az://, oci://.
    #[arg(long = "model", value_name = "NAME=SOURCE", value_parser = parse_model,
          required_unless_present_any = ["settings", "model_dir", "aip_storage_uri", "command"])]
    pub models: Vec<(String, Source)>,
    #[command(flatten)]
    pub kserve: KserveArgs,
    #[command(flatten)]
    pub container: ContainerArgs,
    /// File with models, objectives, batching and queue limit, instead of the arguments for them.
    /// The file is watched: an edit is applied at once, without a restart; an invalid edit changes
    /// nothing.
    #[arg(long, value_name = "FILE", env = "ALBACORE_SETTINGS", conflicts_with_all =
          ["models", "model_dir", "slo", "policy", "max_rows", "max_delay", "prefer", "queue_rows"])]
    pub settings: Option<PathBuf>,
    /// Maximum size of a model file, in bytes.
    #[arg(long, value_name = "BYTES", default_value_t = BYTES_DEFAULT,
          env = "ALBACORE_MODEL_BYTES_MAX")]
    pub model_bytes_max: u64,
    /// CA certificates (PEM) for the https servers that models are downloaded from, instead of the
    /// public ones.
    #[arg(long, value_name = "FILE", env = "ALBACORE_CA_FILE")]
    pub ca_file: Option<PathBuf>,
    /// Cache folder for models from object stores and registries, and from URLs with a checksum.
    /// Servers may share it; anyone who can write to it controls which models they serve.
    #[arg(long, value_name = "DIR", env = "ALBACORE_MODEL_CACHE")]
    pub model_cache: Option<PathBuf>,
    /// Maximum size of --model-cache, in bytes; the least recently used files are evicted.
    #[arg(long, value_name = "BYTES", default_value_t = 4 * BYTES_DEFAULT,
          requires = "model_cache", env = "ALBACORE_MODEL_CACHE_BYTES_MAX")]
    pub model_cache_bytes_max: u64,
    /// Interval at which object stores are polled for new versions of the models in the settings. A
    /// new version is loaded alongside the one in use and then replaces it.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_duration,
          env = "ALBACORE_MODEL_POLL")]
    pub model_poll: Duration,
    /// Whether clients can load and unload models by Triton's model repository extension: `none`,
    /// or `explicit` for the models of the settings or of --model, which are all loaded at startup.
    /// Any client that can reach the ports may then do so.
    #[arg(long, value_enum, default_value_t = ModelControlMode::None, env = "ALBACORE_MODEL_CONTROL")]
    pub model_control: ModelControlMode,
    /// When a batch is dispatched. `eager`: as soon as a worker is free; `timeout`: when its oldest
    /// request has waited for --max-delay; `deferred`: as late as the objective allows; `auto`:
    /// deferred or eager, chosen by the gain and cost of deferring.
    #[arg(long, value_enum, default_value_t = PolicyName::Auto, env = "ALBACORE_POLICY")]
    pub policy: PolicyName,
    /// Preference of --policy auto when both eager and deferred dispatch can sustain the load
    /// [default: short_waits].
    #[arg(long, value_enum, env = "ALBACORE_PREFER")]
    pub prefer: Option<PreferName>,
    /// Maximum number of rows per batch.
    #[arg(long, value_name = "ROWS", default_value_t = 1024, env = "ALBACORE_MAX_ROWS",
          value_parser = bounded(1, BATCH_ROWS_MAX))]
    pub max_rows: usize,
    /// How long a request waits for others to join its batch; only with --policy timeout.
    #[arg(long, value_name = "TIME", value_parser = parse_duration, env = "ALBACORE_MAX_DELAY")]
    pub max_delay: Option<Duration>,
    /// Maximum number of queued rows; further requests are rejected with 429 or RESOURCE_EXHAUSTED.
    #[arg(long, value_name = "ROWS", default_value_t = 65536, env = "ALBACORE_QUEUE_ROWS",
          value_parser = bounded(1, QUEUE_ROWS_MAX))]
    pub queue_rows: usize,
    /// Latency objective of one model, or of all models; later replies are counted as late.
    #[arg(long, value_name = "[NAME=]TIME", value_parser = parse_slo)]
    pub slo: Vec<(Option<String>, Duration)>,
    /// Address of albacore-params, which sends batching, queue limit and objectives while the
    /// server runs: http://HOST:PORT or unix:/PATH. They override the settings while it is
    /// connected; the server does not wait for the connection.
    #[arg(long, value_name = "URL", env = "ALBACORE_PARAMS")]
    pub params: Option<ParamsEndpoint>,
    /// Which replies carry a load report (ORCA) for routers: those to requests with the header
    /// endpoint-load-metrics-format (text, json or bin), all, or none; `never` also disables
    /// streams of reports.
    #[arg(long, value_enum, default_value_t = LoadReportMode::OnRequest,
          env = "ALBACORE_LOAD_REPORTS")]
    pub load_reports: LoadReportMode,
    /// Maximum total size, in bytes, of the system shared memory (/dev/shm) that clients may
    /// register for tensors; 0 disables the extension. Any client that can reach the ports can then
    /// read and write the files of /dev/shm that this server can access: enable it only for clients
    /// that share /dev/shm.
    #[arg(
        long,
        value_name = "BYTES",
        default_value_t = 0,
        env = "ALBACORE_SHARED_MEMORY_BYTES_MAX"
    )]
    pub shared_memory_bytes_max: u64,
    /// Idle timeout of a gRPC stream of infer calls: a stream is ended after this time without a
    /// request that is new or being computed.
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration,
          env = "ALBACORE_STREAM_IDLE_MAX")]
    pub stream_idle_max: Duration,
    /// How long a stopping server continues to accept requests while it reports not ready, so that
    /// routers notice; then it closes its ports [default: it closes them at once].
    #[arg(long, value_name = "TIME", value_parser = parse_duration, env = "ALBACORE_DRAIN_DELAY")]
    pub drain_delay: Option<Duration>,
    /// How long a stopping server may take, from then on, to answer the requests that it has
    /// accepted.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration,
          env = "ALBACORE_DRAIN_TIMEOUT")]
    pub drain_timeout: Duration,
    /// Send `x-envoy-immediate-health-check-fail` in the replies of a stopping server, so that an
    /// Envoy with health checks sends it no more requests. Use it only if every endpoint of Envoy
    /// is one server.
    #[arg(long, env = "ALBACORE_ENVOY_HEALTH_HEADER")]
    pub envoy_health_header: bool,
}

/// Names of `--policy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// Deferred or eager, chosen by the gain and cost of deferring.
    Auto,
    /// When the oldest request has waited for `--max-delay`.
    Timeout,
    /// As soon as a worker is free.
    Eager,
    /// As late as the objective allows; at once if there is no objective.
    Deferred,
}

/// Names of `--load-reports`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LoadReportMode {
    /// Replies to requests that ask for one.
    OnRequest,
    /// All replies, as text unless the request asks for another format.
    Always,
    /// No replies, and no streams.
    Never,
}

/// Names of `--model-control`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ModelControlMode {
    /// These calls are rejected.
    None,
    /// These calls load and unload models of the settings.
    Explicit,
}

/// Names of `--prefer`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum PreferName {
    /// Requests are answered as soon as possible.
    ShortWaits,
    /// Requests are held so that the number of busy workers is proportional to the load.
    IdleWorkers,
}

impl From<PreferName> for Prefer {
    fn from(name: PreferName) -> Self {
        match name {
            PreferName::ShortWaits => Self::ShortWaits,
            PreferName::IdleWorkers => Self::IdleWorkers,
        }
    }
}

/// Source of models and batching.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelSource {
    /// The command line; constant while the server runs.
    Arguments {
        /// The models; names are unique.
        models: Vec<CliModel>,
        batching: BatchingParams,
    },
    /// A settings file, which is watched.
    SettingsFile(PathBuf),
}

/// The validated command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerConfig {
    /// Listen address of HTTP.
    pub http: SocketAddr,
    /// Listen address of gRPC.
    pub grpc: SocketAddr,
    /// Number of worker processes.
    pub workers: usize,
    /// Compute threads per worker.
    pub threads: usize,
    /// Maximum number of cpus to use.
    pub cpus_max: Option<usize>,
    /// Number of front-end threads.
    pub front_threads: usize,
    pub models: ModelSource,
    /// Paths requested by Vertex AI.
    pub platform_routes: PlatformRoutes,
    /// Maximum size of a model file in bytes.
    pub model_bytes_max: u64,
    /// CA certificates of the servers that models are fetched from.
    pub ca_file: Option<PathBuf>,
    /// Folder and maximum size in bytes of the cache of fetched models.
    pub model_cache: Option<(PathBuf, u64)>,
    /// Interval at which object stores are polled for new versions of models.
    pub model_poll: Duration,
    /// Whether API calls can load and unload models.
    pub model_control: ModelControlMode,
    /// The `albacore-params` that sends parameters, if configured.
    pub params: Option<ParamsEndpoint>,
    /// Which replies carry a load report.
    pub load_reports: LoadReportMode,
    /// Maximum bytes of system shared memory that clients may register; 0 disables it.
    pub shared_memory_bytes_max: u64,
    /// Idle timeout of a stream of infer calls.
    pub stream_idle_max: Duration,
    /// How long a stopping server continues to accept requests while it is not ready.
    pub drain_delay: Option<Duration>,
    /// Timeout of draining after that.
    pub drain_timeout: Duration,
    /// Whether replies of a stopping server contain Envoy's health check header.
    pub envoy_health_header: bool,
}

impl Args {
    /// Checks constraints between arguments.
    ///
    /// # Errors
    /// A message with the name of the argument and the remedy.
    pub fn check(self) -> Result<ServerConfig, String> {
        let platform_routes = self.container.routes()?;
        let http = self.container.http(self.http);
        let models = match &self.settings {
            Some(file) => ModelSource::SettingsFile(file.clone()),
            None => ModelSource::Arguments {
                batching: self.batching()?,
                models: models_with_slos(
                    self.container
                        .models_or(self.kserve.models_or(self.models)?)?,
                    self.slo,
                )?,
            },
        };
        let (http, grpc) = self.kserve.addresses(http, self.grpc);
        Ok(ServerConfig {
            http,
            grpc,
            workers: self.workers,
            threads: self.threads,
            cpus_max: self.cpus_max,
            front_threads: front_threads(self.front_threads, cpus(self.cpus_max))?,
            models,
            platform_routes,
            model_bytes_max: self.model_bytes_max,
            ca_file: self.ca_file,
            model_cache: self
                .model_cache
                .map(|folder| (folder, self.model_cache_bytes_max)),
            model_poll: self.model_poll,
            model_control: self.model_control,
            params: self.params,
            load_reports: self.load_reports,
            shared_memory_bytes_max: self.shared_memory_bytes_max,
            stream_idle_max: self.stream_idle_max,
            drain_delay: self.drain_delay,
            drain_timeout: self.drain_timeout,
            envoy_health_header: self.envoy_health_header,
        })
    }

    fn batching(&self) -> Result<BatchingParams, String> {
        let policy = match (self.policy, self.max_delay) {
            (PolicyName::Timeout, Some(delay)) => Policy::Timeout { delay },
            (PolicyName::Timeout, None) => {
                return Err("--policy timeout needs --max-delay, for example 2ms".into());
            }
            (_, Some(_)) => {
                return Err(
                    "--max-delay needs --policy timeout: other policies have no delay".into(),
                );
            }
            (PolicyName::Auto, None) => {
                Policy::Auto(self.prefer.map(Prefer::from).unwrap_or_default())
            }
            (PolicyName::Deferred, None) => Policy::Deferred,
            (PolicyName::Eager, None) => Policy::Eager,
        };
        if self.prefer.is_some() && policy.prefer().is_none() {
            return Err("--prefer needs --policy auto: other policies have no preference".into());
        }
        Ok(BatchingParams {
            policy,
            batch_rows_max: self.max_rows,
            window: None,
            queue_rows_max: self.queue_rows,
        })
    }
}

impl ServerConfig {
    /// Returns the engine configuration of the front with this number.
    #[must_use]
    pub fn engine(&self, batching: BatchingParams, front: u64) -> EngineConfig {
        EngineConfig {
            workers: self.workers,
            threads: self.threads,
            cpus_max: self.cpus_max,
            batching,
            front,
        }
    }
}

/// Returns the number of cpus that this process may use.
fn cpus(max: Option<usize>) -> usize {
    let online = || std::thread::available_parallelism().map_or(1, usize::from);
    albacore_engine::usable_cpus(max).unwrap_or_else(online)
}

/// Returns the number of front-end threads, as requested or derived from the number of cpus.
fn front_threads(requested: Option<usize>, cpus: usize) -> Result<usize, String> {
    let max = cpus.clamp(1, FRONT_THREADS_MAX);
    match requested {
        None => {
            let least = (cpus / 2).clamp(1, FRONT_THREADS_MIN);
            Ok((cpus / FRONT_THREAD_CPUS).clamp(least, FRONT_THREADS_AUTO_MAX))
        }
        Some(count) if (1..=max).contains(&count) => Ok(count),
        Some(count) => Err(format!(
            "--front-threads {count} is not between 1 and {max}, the number of cpus that this \
             server may use (at most {FRONT_THREADS_MAX})"
        )),
    }
}

fn models_with_slos(
    models: Vec<(String, Source)>,
    slos: Vec<(Option<String>, Duration)>,
) -> Result<Vec<CliModel>, String> {
    if models.len() > MODELS_MAX {
        return Err(format!(
            "{} models are given, at most {MODELS_MAX} can be served",
            models.len()
        ));
    }
    let mut by_name = BTreeMap::new();
    for (name, slo) in slos {
        if by_name.insert(name.clone(), slo).is_some() {
            let name = name.unwrap_or_else(|| "all models".to_owned());
            return Err(format!("--slo is given twice for {name}: give it once"));
        }
    }
    let default_slo = by_name.remove(&None);
    let mut configs: Vec<CliModel> = Vec::with_capacity(models.len());
    for (name, source) in models {
        if configs.iter().any(|config| config.name == name) {
            return Err(format!("--model {name} is given twice: names must differ"));
        }
        let slo = by_name.remove(&Some(name.clone())).or(default_slo);
        configs.push(CliModel { name, source, slo });
    }
    match by_name.into_keys().flatten().next() {
        Some(name) => Err(format!("--slo {name}: no --model has this name")),
        None => Ok(configs),
    }
}

/// Returns a parser of whole numbers from `min` to `max`.
fn bounded(min: usize, max: usize) -> impl Fn(&str) -> Result<usize, String> + Clone {
    move |text| {
        let number = text
            .parse()
            .ok()
            .filter(|number| (min..=max).contains(number));
        number.ok_or_else(|| format!("expected a whole number from {min} to {max}"))
    }
}

fn parse_model(text: &str) -> Result<(String, Source), String> {
    let (name, location) = text.split_once('=').ok_or("expected NAME=SOURCE")?;
    let source = match location {
        "" => return Err(format!("model {name} has neither a path nor a URL")),
        url if url.contains("://") => Source::Url(url.to_owned()),
        path => Source::Path(path.to_owned()),
    };
    if let Source::Url(_) = source {
        source.check()?;
    }
    named_model(name, source)
}

/// Checks the name of a model and returns it with its source.
pub(crate) fn named_model(name: &str, source: Source) -> Result<(String, Source), String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty() || name.len() > 253 || !name.chars().all(is_word) {
        return Err(format!(
            "{name:?} is not a valid name: use up to 253 letters, digits, '-', '_' and '.'"
        ));
    }
    Ok((name.to_owned(), source))
}

/// Parses a duration such as `25ms`, `150us`, `2.5s` or `1m`; greater than zero, at most an hour.
fn parse_duration(text: &str) -> Result<Duration, String> {
    let digits = text
        .find(|c: char| c.is_ascii_alphabetic())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let unit = match unit {
        "us" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" => 60.0,
        _ => return Err("expected a number with a unit, for example 25ms, 150us, 2s".to_owned()),
    };
    let seconds = number.parse::<f64>().ok().map(|number| number * unit);
    match seconds.filter(|seconds| (1e-9..=3600.0).contains(seconds)) {
        Some(seconds) => Ok(Duration::from_secs_f64(seconds)),
        None => Err("expected a time above zero and of at most 60m, for example 25ms".into()),
    }
}

fn parse_slo(text: &str) -> Result<(Option<String>, Duration), String> {
    match text.split_once('=') {
        Some((name, slo)) => Ok((Some(name.to_owned()), parse_duration(slo)?)),
        None => Ok((None, parse_duration(text)?)),
    }
}

#[cfg(test)]
mod tests;
