//! Command line arguments of `albacore experiment --node`, an experiment in a cluster.

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use albacore_cluster::UserConnectOptions;
use albacore_command::Failure;
use albacore_laboratory_job::{JobRequest, JobSubject};
use clap::Parser;

use crate::args::ClusterArgs;
use crate::laboratory;

/// Options of a run in a cluster; the help is that of `albacore-lab experiment`, which has them
/// too.
#[derive(Debug, Parser)]
#[command(name = "albacore experiment", disable_help_flag = true)]
struct ExperimentNodeArgs {
    #[arg(short, long)]
    file: PathBuf,
    #[arg(long = "quick")]
    is_quick: bool,
    #[arg(long)]
    output: Option<PathBuf>,
    #[arg(long)]
    node: String,
    #[arg(long)]
    deployment: Option<String>,
    #[arg(long)]
    image: Option<String>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Whether these arguments of `albacore experiment` select a node of a cluster.
pub(crate) fn selects_cluster(arguments: &[OsString]) -> bool {
    let is_option = |word: &OsStr, name: &str| {
        let word = word.to_string_lossy();
        word.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let has = |name: &str| arguments.iter().any(|word| is_option(word, name));
    has("--node") && !has("--help") && !has("-h")
}

/// Runs the experiment, or attaches to the Job that already runs it, and writes the report.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let program = OsString::from("albacore experiment");
    let words = std::iter::once(&program).chain(arguments);
    let args = ExperimentNodeArgs::try_parse_from(words).map_err(|e| bad_usage(&e))?;
    let folder = albacore_laboratory_job::run(&JobRequest {
        subject: JobSubject::Experiment {
            file: args.file,
            is_quick: args.is_quick,
            node: args.node,
            deployment: args.deployment,
        },
        output: args.output,
        image: args.image,
        namespace: args.cluster.namespace.clone(),
        cluster: connect_options(args.cluster),
    })?;
    laboratory::run("experiment", &[OsString::from("report"), folder.into()])
}

pub(crate) fn connect_options(args: ClusterArgs) -> UserConnectOptions {
    UserConnectOptions {
        kubeconfig: args.kubeconfig,
        context: args.context,
        manager: "kubectl-albacore",
    }
}

/// Converts clap's message to one line.
pub(crate) fn bad_usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_node_option_selects_a_cluster() {
        let words = |text: &str| -> Vec<OsString> { text.split(' ').map(OsString::from).collect() };
        assert!(selects_cluster(&words("-f a --node n")));
        assert!(selects_cluster(&words("--node=n -f a")));
        for other in ["-f a", "-f a --nodes n", "--node n --help", "report node"] {
            assert!(!selects_cluster(&words(other)), "{other}");
        }
        let failure = run(&words("--node n")).unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure:?}");
        assert!(failure.text().contains("--file"), "{}", failure.text());
    }
}
