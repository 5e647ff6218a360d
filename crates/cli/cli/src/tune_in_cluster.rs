//! Command line arguments of `albacore tune NAME`, a search in a cluster.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use albacore_api::Timespan;
use albacore_command::Failure;
use albacore_laboratory_job::{JobRequest, JobSubject};
use clap::Parser;

use crate::args::ClusterArgs;
use crate::experiment_node::{bad_usage, connect_options};

/// Options of a search in a cluster; the help is that of `albacore-lab tune`, which has the same.
#[derive(Debug, Parser)]
#[command(name = "albacore tune", disable_help_flag = true)]
struct TuneInClusterArgs {
    name: Option<String>,
    #[arg(long)]
    node: Option<String>,
    #[arg(long)]
    image: Option<String>,
    #[arg(long)]
    output: Option<PathBuf>,
    #[arg(long)]
    cpus: Option<OsString>,
    #[arg(long)]
    apply: bool,
    #[arg(long, default_value = "60s", requires = "apply")]
    watch_time: Timespan,
    #[command(flatten)]
    measuring: MeasuringArgs,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Options of the measurements; `albacore-lab` checks the values.
#[derive(Debug, clap::Args)]
struct MeasuringArgs {
    #[arg(long)]
    latency: Option<OsString>,
    #[arg(long)]
    percentile: Option<OsString>,
    #[arg(long)]
    rate: Option<OsString>,
    #[arg(long)]
    arrivals: Option<OsString>,
    #[arg(long)]
    mix: Option<OsString>,
    #[arg(long)]
    time: Option<OsString>,
    #[arg(long)]
    seed: Option<OsString>,
}

impl MeasuringArgs {
    fn words(self) -> Vec<OsString> {
        let options = [
            ("--latency", self.latency),
            ("--percentile", self.percentile),
            ("--rate", self.rate),
            ("--arrivals", self.arrivals),
            ("--mix", self.mix),
            ("--time", self.time),
            ("--seed", self.seed),
        ];
        let given = options
            .into_iter()
            .filter_map(|(option, value)| Some([option.into(), value?]));
        given.flatten().collect()
    }
}

/// Whether these arguments of `albacore tune` select a deployment of a cluster. Without a file,
/// they do; a file is measured on this machine.
pub(crate) fn selects_cluster(arguments: &[OsString]) -> bool {
    let is_of_lab = |word: &OsString| {
        let word: &OsStr = word;
        let word = word.to_string_lossy();
        let is_long = word == "--file" || word.starts_with("--file=");
        let is_short = word.starts_with("-f") || word == "-h" || word == "--help";
        is_long || is_short
    };
    !arguments.iter().any(is_of_lab)
}

/// Runs the search, or attaches to the Job that already runs it, writes its results and applies
/// them if requested.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let program = OsString::from("albacore tune");
    let words = std::iter::once(&program).chain(arguments);
    let args = TuneInClusterArgs::try_parse_from(words).map_err(|e| bad_usage(&e))?;
    let Some(name) = args.name else {
        return Err(Failure::Usage(
            "what to tune is missing: --file FILE for a deployment on this machine, or the name of one of \
             a cluster"
                .to_owned(),
        ));
    };
    if let Some(cpus) = args.cpus {
        return Err(Failure::Usage(format!(
            "--cpus {}: a run in a cluster has the cpus of the deployment: leave it out and set \
             spec.resources, or tune a file on a machine with --file",
            cpus.display()
        )));
    }
    let done = albacore_laboratory_job::run(&JobRequest {
        subject: JobSubject::Tune {
            name,
            node: args.node,
            options: args.measuring.words(),
            watch_time: args.apply.then(|| args.watch_time.duration()),
        },
        output: args.output,
        image: args.image,
        namespace: args.cluster.namespace.clone(),
        cluster: connect_options(args.cluster),
    });
    done.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_measured_here_and_anything_else_in_a_cluster() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        for here in [
            "-f a.yaml",
            "--file=a",
            "-fa --time 8s",
            "fraud -f a",
            "--help",
        ] {
            assert!(!selects_cluster(&words(here)), "{here}");
        }
        for cluster in ["fraud", "fraud --node n", "--time 8s"] {
            assert!(selects_cluster(&words(cluster)), "{cluster}");
        }
        let failure = run(&words("--time 8s")).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert!(failure.text().contains("--file FILE"), "{}", failure.text());
        let failure = run(&words("fraud --cpus 0-3")).unwrap_err();
        let is_named = failure.text().starts_with("--cpus 0-3: ");
        assert!(
            is_named && failure.text().contains("spec.resources"),
            "{failure:?}"
        );
    }

    #[test]
    fn measurement_options_are_passed_to_the_job() {
        let words = ["tune", "fraud", "--time", "8s", "--mix=2", "--apply"];
        let args = TuneInClusterArgs::try_parse_from(words).unwrap();
        assert_eq!(args.measuring.words(), ["--mix", "2", "--time", "8s"]);
        assert_eq!(
            (args.apply, args.watch_time.to_string()),
            (true, "60s".to_owned())
        );
        let bad = TuneInClusterArgs::try_parse_from(["tune", "fraud", "--watch-time", "1m"]);
        assert!(
            bad.unwrap_err()
                .to_string()
                .contains("the units are us, ms and s")
        );
    }
}
