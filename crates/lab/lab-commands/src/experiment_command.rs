//! `albacore experiment`: compares policies over a grid and writes a report.

use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use albacore_command::{Failure, print, sentence};
use albacore_experiment::{ExperimentError, Progress, Spec, Window, run as run_experiment};
use clap::Subcommand;

/// The arguments of `albacore experiment`.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    command: Option<ExperimentCommand>,
    /// Experiment file
    #[arg(short, long, value_name = "FILE", required = true)]
    file: Option<PathBuf>,
    /// Run the short version defined under `quick` in the file
    #[arg(long = "quick")]
    is_quick: bool,
    /// Folder for the results; an interrupted run continues with the results in it [default:
    /// experiment-NAME, with --quick experiment-NAME-quick]
    #[arg(long, value_name = "FOLDER")]
    output: Option<PathBuf>,
    #[command(flatten)]
    cluster: ClusterArgs,
}

/// Options that `albacore` itself handles before it starts this program; listed here for the help.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "On a node of a cluster")]
struct ClusterArgs {
    /// Run on this node of a cluster, as a Job, and fetch the results; the same command continues
    /// with an existing Job
    #[arg(long, value_name = "NAME")]
    node: Option<String>,
    /// Take resources, tolerations, priority and pull secrets from this InferenceDeployment
    /// [default: no requests and no limits]
    #[arg(long, value_name = "NAME", requires = "node")]
    deployment: Option<String>,
    /// Image that contains these programs [default: that of this version, from the registry of the
    /// deployment's server]
    #[arg(long, value_name = "IMAGE", requires = "node")]
    image: Option<String>,
    /// Namespace [default: that of the context]
    #[arg(short, long, value_name = "NAME", requires = "node")]
    namespace: Option<String>,
    /// Context of the kubeconfig [default: the current context]
    #[arg(long, value_name = "NAME", requires = "node")]
    context: Option<String>,
    /// Path of the kubeconfig [default: as for kubectl: KUBECONFIG, then ~/.kube/config]
    #[arg(long, value_name = "FILE", requires = "node")]
    kubeconfig: Option<PathBuf>,
}

#[derive(Debug, Subcommand)]
enum ExperimentCommand {
    /// Write report.html and CSV files next to the results in a folder
    Report {
        /// Folder with the results
        #[arg(value_name = "FOLDER")]
        folder: PathBuf,
    },
}

/// Runs an experiment and writes its report, or writes only the report.
///
/// # Errors
/// An invalid file or folder; a signal.
pub(crate) fn run(args: &ExperimentArgs) -> Result<(), Failure> {
    if let Some(ExperimentCommand::Report { folder }) = &args.command {
        return report(folder);
    }
    if args.cluster.node.is_some() {
        return Err(Failure::Usage(
            "--node: this program has no Kubernetes client: run `albacore experiment`".to_owned(),
        ));
    }
    let Some(file) = &args.file else {
        return Err(Failure::Usage(
            "--file is missing: give the file of the experiment".to_owned(),
        ));
    };
    let spec = Spec::read(file, args.is_quick).map_err(|e| usage_or_failed(&e))?;
    let folder = args.output.clone().unwrap_or_else(|| {
        let quick = if args.is_quick { "-quick" } else { "" };
        PathBuf::from(format!("experiment-{}{quick}", spec.name))
    });
    let is_terminal = std::io::stderr().is_terminal();
    let results = run_experiment(&spec, &folder, &mut |progress| {
        print_progress(&progress, is_terminal)
    });
    if is_terminal {
        clear_line();
    }
    results.map_err(|e| usage_or_failed(&e))?;
    report(&folder)
}

fn report(folder: &std::path::Path) -> Result<(), Failure> {
    let conclusions = albacore_experiment::write_report(folder).map_err(|e| usage_or_failed(&e))?;
    let file = folder.join("report.html");
    print(&format!("{conclusions}\nReport: {}\n", file.display()))
}

pub(crate) fn usage_or_failed(error: &ExperimentError) -> Failure {
    match error {
        ExperimentError::Spec { .. } | ExperimentError::Journal { .. } => {
            Failure::Usage(sentence(error))
        }
        _ => Failure::Failed(sentence(error)),
    }
}

/// On a terminal, updates one line in place; otherwise prints a line per window.
fn print_progress(progress: &Progress<'_>, is_terminal: bool) {
    let line = progress_line(progress);
    let is_passing = matches!(progress, Progress::Window { .. });
    match is_terminal {
        true if is_passing => {
            eprint!("\r\x1b[K{line}");
            // errors of the progress line are ignored
            let _ = std::io::stderr().flush();
        }
        true => {
            clear_line();
            eprintln!("{line}");
        }
        false => eprintln!("{line}"),
    }
}

pub(crate) fn progress_line(progress: &Progress<'_>) -> String {
    match progress {
        Progress::Start { done: 0, all, left } => {
            format!("{all} windows, {}", format_duration(*left))
        }
        Progress::Start { done, all, left } => {
            format!(
                "{done} of {all} windows are measured, {} left",
                format_duration(*left)
            )
        }
        Progress::Window {
            window,
            done,
            all,
            left,
        } => format!(
            "{done}/{all}  {}  {} left",
            figures(window),
            format_duration(*left)
        ),
        Progress::Failed(failed) => {
            let (cell, windows) = (&failed.cell, failed.windows);
            let name = format!("{} {} x {}", cell.model, cell.workers, cell.threads);
            format!("{name}: {windows} windows are missing: {}", failed.what)
        }
    }
}

fn clear_line() {
    eprint!("\r\x1b[K");
}

fn figures(window: &Window) -> String {
    let (cell, id) = (&window.id.cell, &window.id);
    let p99 = window
        .p99_ms()
        .map_or("no answer".to_owned(), |ms| format!("p99 {ms:.2} ms"));
    let disturbed = window.disturbed.as_ref();
    let mark = disturbed.map_or(String::new(), |what| format!(" ({what})"));
    format!(
        "{} {} x {}  {}  {}  {p99}{mark}",
        cell.model,
        cell.workers,
        cell.threads,
        id.request,
        id.arm.name()
    )
}

fn format_duration(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..=90 => format!("{seconds} s"),
        seconds @ 91..=5400 => format!("{} min", seconds.div_ceil(60)),
        seconds => format!("{:.1} h", seconds as f64 / 3600.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_shows_the_cause_once() {
        let path = PathBuf::from("/x/spec.yaml");
        let source = std::io::Error::other("the disk is full");
        let failure = usage_or_failed(&ExperimentError::File { path, source });
        let due = "/x/spec.yaml: the disk is full".to_owned();
        assert_eq!(failure, Failure::Failed(due));
    }
}
