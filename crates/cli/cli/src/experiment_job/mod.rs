//! `albacore experiment --node`: the experiment as a Job on a node of a cluster.
//!
//! What an experiment is, only `albacore-lab` knows: it checks the file here, runs in the pod, and
//! writes the report here. This module makes the Job, sends it the files and fetches the results,
//! all through `pods/exec`. The Job outlives this process; the same command finds it again.

mod description;
mod job;
mod local_results;
mod object;
mod pod;
mod transfer;

use std::cell::RefCell;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use albacore_cluster::ObjectKey;
use albacore_command::Failure;
use clap::Parser;

use crate::args::ClusterArgs;
use crate::cluster_access::{block_on, connect};
use crate::laboratory;
use description::Description;
use job::JobClient;

/// The command line; its help is that of `albacore-lab experiment`, which has the same options.
#[derive(Debug, Parser)]
#[command(name = "albacore experiment", disable_help_flag = true)]
struct ExperimentJobArgs {
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

/// Whether these arguments of `albacore experiment` mean a node of a cluster.
pub(crate) fn is_meant(arguments: &[OsString]) -> bool {
    let is_option = |word: &OsStr, name: &str| {
        let word = word.to_string_lossy();
        word.strip_prefix(name)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with('='))
    };
    let has = |name: &str| arguments.iter().any(|word| is_option(word, name));
    has("--node") && !has("--help") && !has("-h")
}

/// Runs the experiment, or goes on with the Job that runs it, and writes the report.
pub(crate) fn run(arguments: &[OsString]) -> Result<(), Failure> {
    let program = OsString::from("albacore experiment");
    let words = std::iter::once(&program).chain(arguments);
    let args = ExperimentJobArgs::try_parse_from(words).map_err(|e| bad_usage(&e))?;
    let description = Description::read(&args.file, args.is_quick, args.output.as_ref())?;
    let running = RefCell::new(None);
    block_on(async {
        tokio::select! {
            done = follow(&args, &description, &running) => done,
            _ = tokio::signal::ctrl_c() => Err(interrupted(running.borrow().as_ref())),
        }
    })?;
    let report = [OsString::from("report"), description.output.into()];
    laboratory::run("experiment", &report)
}

/// Until all results are here; `running` is set while there is a Job.
async fn follow(
    args: &ExperimentJobArgs,
    description: &Description,
    running: &RefCell<Option<ObjectKey>>,
) -> Result<(), Failure> {
    let options = &args.cluster;
    let cluster = connect(options.kubeconfig.as_ref(), options.context.as_ref()).await?;
    let namespace = options.namespace.as_deref();
    let namespace = namespace.unwrap_or_else(|| cluster.namespace()).to_owned();
    let name = object::job_name(&description.name)?;
    let key = ObjectKey::new(namespace, name);
    let job = JobClient {
        cluster,
        key: key.clone(),
    };
    job.check_node(&args.node).await?;
    let uid = match job.find(&args.node, &description.digest).await? {
        Some(uid) => {
            eprintln!("Job {key} runs this experiment already; following it");
            uid
        }
        None => {
            let settings = job.settings(args.deployment.as_deref()).await?;
            let object = object::job(&object::JobSpec {
                key: &key,
                node: &args.node,
                image: args.image.as_deref(),
                settings: &settings,
                digest: &description.digest,
                seconds_max: description.seconds_max,
            });
            let uid = job.create(&object).await?;
            eprintln!(
                "Job {key} is made; waiting for its pod on node {}",
                args.node
            );
            uid
        }
    };
    running.replace(Some(key));
    transfer::run(&job, &uid, description).await
}

fn interrupted(job: Option<&ObjectKey>) -> Failure {
    let Some(ObjectKey { namespace, name }) = job else {
        return Failure::Failed("interrupted: no Job was made".to_owned());
    };
    Failure::Failed(format!(
        "interrupted: Job {namespace}/{name} goes on, and what was fetched is kept. Run the same command \
         again to follow it, or end it: kubectl delete job {name} -n {namespace}"
    ))
}

/// clap's message in one line.
fn bad_usage(error: &clap::Error) -> Failure {
    let text = error.to_string();
    let text = text.split("\n\nUsage").next().unwrap_or_default();
    let words: Vec<&str> = text.split_whitespace().collect();
    let text = words.join(" ");
    Failure::Usage(text.strip_prefix("error: ").unwrap_or(&text).to_owned())
}

#[cfg(test)]
mod tests;
