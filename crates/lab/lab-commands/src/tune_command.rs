//! `albacore tune`: finds workers, threads, placement and batching for a latency objective.

use std::path::PathBuf;
use std::time::Duration;

use albacore_command::{Failure, print, sentence};
use albacore_topology::CpuSet;
use albacore_tune::{
    ApplyRequest, Place, TuneError, TuneOptions, TuneRequest, Watching, apply, tune, write_results,
};

use crate::bench_serve::{parse_percentile, parse_time};

/// The arguments of `albacore tune`.
#[derive(Debug, clap::Args)]
pub(crate) struct TuneArgs {
    /// InferenceDeployment of a cluster; a pod of its shape is measured. Only --apply changes the
    /// deployment
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// InferenceDeployment file, measured on this machine; only --apply changes it
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// With --file: CPUs for the servers, such as 0-3,8; the load generator runs on the other CPUs
    /// that this process may use [default: both share all of them]
    #[arg(long, value_name = "LIST", requires = "file")]
    cpus: Option<CpuSet>,
    #[command(flatten)]
    measuring: MeasuringArgs,
    /// Folder for the results [default: tune-NAME]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    /// Write the chosen values into the file, or into the deployment of the cluster. In a cluster
    /// its pods are then watched under their clients' load, and the former values are restored
    /// unless the new ones are found to be no worse
    #[arg(long)]
    apply: bool,
    /// With --file and --apply: URL of the server that runs from the file, under its clients' load,
    /// http://HOST:PORT. The file is restored if the server becomes worse
    #[arg(long, value_name = "URL", requires_all = ["file", "apply"])]
    watch: Option<String>,
    /// How long the server or the pods are watched before the change, and again after it
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = parse_time,
          requires = "apply")]
    watch_time: Duration,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Options of the measurements.
#[derive(Debug, clap::Args)]
pub(crate) struct MeasuringArgs {
    /// Latency objective [default: the strictest of the models]
    #[arg(long, value_name = "TIME", value_parser = parse_time)]
    latency: Option<Duration>,
    /// Percentage of requests that must meet the objective [default: that of the deployment]
    #[arg(long, value_name = "P", value_parser = parse_percentile)]
    percentile: Option<f64>,
    /// Requests per second that all pods together must sustain [default: as many as possible]
    #[arg(long, value_name = "N", value_parser = parse_rate)]
    rate: Option<f64>,
    /// Arrival process: poisson, gamma:SHAPE (bursty below 1), or, with --file, a file with one
    /// time in seconds per line
    #[arg(long, value_name = "HOW", default_value = "poisson")]
    arrivals: String,
    /// Request mix: [MODEL/][OUTPUT:]ROWS[=SHARE], separated by commas, such as
    /// output:1=9,contribs:10=1. An entry without MODEL applies to every model in equal parts
    #[arg(long, value_name = "LIST", default_value = "1")]
    mix: String,
    /// Time available for measurements
    #[arg(long, value_name = "TIME", default_value = "90s", value_parser = parse_time)]
    time: Duration,
    /// Seed of the arrivals and rows
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

/// Options that `albacore` itself handles before it starts this program; listed here for the help.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "With the name of a deployment of a cluster")]
struct ClusterArgs {
    /// Node to measure on [default: a node where the deployment's pods may run]
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Image that contains these programs [default: that of this version, from the registry of the
    /// deployment's server]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME")]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Path of the kubeconfig [default: as for kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
}

impl ClusterArgs {
    /// The first given option that applies only to clusters.
    fn first(&self) -> Option<&'static str> {
        let given = [
            (self.node.is_some(), "--node"),
            (self.image.is_some(), "--image"),
            (self.namespace.is_some(), "--namespace"),
            (self.context.is_some(), "--context"),
            (self.kubeconfig.is_some(), "--kubeconfig"),
        ];
        let found = given.into_iter().find(|(is_given, _)| *is_given);
        found.map(|(_, option)| option)
    }
}

impl MeasuringArgs {
    pub(crate) fn options(&self) -> TuneOptions {
        TuneOptions {
            latency: self.latency,
            percentile: self.percentile,
            mix: self.mix.clone(),
            arrivals: self.arrivals.clone(),
            rate: self.rate,
            time: self.time,
            seed: self.seed,
        }
    }
}

fn parse_rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok();
    let rate = rate.filter(|rate| (0.1..=1e7).contains(rate));
    rate.ok_or_else(|| "expected a number of requests per second from 0.1 to 10000000".to_owned())
}

/// Tunes and writes the results.
///
/// # Errors
/// An invalid file or option, an objective that no configuration meets, a server that does not
/// start, a signal.
pub(crate) fn run(args: &TuneArgs) -> Result<(), Failure> {
    let file = local_file(args)?;
    let stem = file.file_stem().unwrap_or_default();
    let folder = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("tune-{}", stem.to_string_lossy())));
    let request = TuneRequest {
        file: file.clone(),
        place: Place::Machine,
        folder: folder.clone(),
        cpus: args.cpus.clone(),
        options: args.measuring.options(),
    };
    let changes = ApplyRequest {
        file: file.clone(),
        server: args.watch.clone(),
        time: args.watch_time,
    };
    let watching = Watching::check(&changes).map_err(failure)?;
    let outcome = tune(&request, &mut |line| eprintln!("{line}")).map_err(failure)?;
    print(&(outcome.summary() + "\n"))?;
    let patched = write_results(&outcome, &folder).map_err(failure)?;
    print(&format!(
        "Report: {}\nThe file with these values: {}\n",
        folder.join("report.html").display(),
        patched.display()
    ))?;
    if !args.apply {
        return Ok(());
    }
    let applied = apply(&changes, &watching, &outcome, &mut |line| {
        eprintln!("{line}")
    });
    print(&(applied.map_err(failure)? + "\n"))
}

/// The file of a local run.
fn local_file(args: &TuneArgs) -> Result<&PathBuf, Failure> {
    let refused = |text: String| Err(Failure::Usage(text));
    match (&args.name, &args.file, args.cluster.first()) {
        (None, Some(file), None) => Ok(file),
        (Some(name), Some(_), _) => refused(format!(
            "{name} is a deployment of a cluster and --file one on this machine: give only one of \
             them"
        )),
        (None, Some(_), Some(option)) => refused(format!(
            "{option} applies to a cluster, but --file is measured on this machine: give the name \
             of a deployment of the cluster instead of --file, or remove {option}"
        )),
        (Some(_), None, _) => refused(
            "this program has no Kubernetes client: run `kubectl albacore tune NAME`".to_owned(),
        ),
        (None, None, _) => refused(
            "the deployment is missing: give --file FILE for one on this machine, or the name of \
             one of a cluster"
                .to_owned(),
        ),
    }
}

pub(crate) fn failure(error: TuneError) -> Failure {
    match error {
        TuneError::Usage(_) | TuneError::Deployment(_) | TuneError::Patch { .. } => {
            Failure::Usage(sentence(&error))
        }
        TuneError::Bench(error) => error.into(),
        _ => Failure::Failed(sentence(&error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_cause_once() {
        let path = PathBuf::from("/x/fraud.yaml");
        let source = std::io::Error::other("the disk is full");
        let due = "/x/fraud.yaml: the disk is full".to_owned();
        let failure = failure(TuneError::File { path, source });
        assert_eq!(failure, Failure::Failed(due));
    }
}
