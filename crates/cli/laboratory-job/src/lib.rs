//! Runs measurements of `albacore-lab` as a Job in a cluster: `albacore experiment --node`,
//! `albacore tune NAME`.
//!
//! Only `albacore-lab` knows the format of experiments and searches: it validates the request
//! locally, runs in the pod, and writes the report locally. This crate creates the Job, sends the
//! files and fetches the results through `pods/exec`. The Job outlives this process; running the
//! same command again attaches to it. The values chosen by a search are applied from here, with the
//! permissions of the user.
#![forbid(unsafe_code)]

mod apply;
mod description;
mod job;
mod limits;
mod local_results;
mod object;
mod pod;
mod pod_settings;
mod run;
mod subject;
mod transfer;

use std::cell::RefCell;
use std::path::PathBuf;

use albacore_cluster::UserConnectOptions;
use albacore_command::Failure;

pub use subject::JobSubject;

use description::Description;
use run::{finish, interrupted, run_to_end};

/// A request from the command line.
#[derive(Clone, Debug)]
pub struct JobRequest {
    pub subject: JobSubject,
    /// Local directory of the results; `None` for a directory named after the experiment or search.
    pub output: Option<PathBuf>,
    pub image: Option<String>,
    /// `None` for the namespace of the kubeconfig context.
    pub namespace: Option<String>,
    pub cluster: UserConnectOptions,
}

/// Runs the subject, or attaches to the Job that already runs it; returns the directory of the
/// results. The files of a search are also written, its findings printed, and its values applied if
/// requested.
///
/// # Errors
/// An invalid file; a Job that cannot start or that fails; Ctrl-C; values that cannot be applied or
/// that are worse. Fetched results are kept.
pub fn run(request: &JobRequest) -> Result<PathBuf, Failure> {
    let output = request.output.as_ref();
    let described = match &request.subject {
        JobSubject::Experiment { file, is_quick, .. } => {
            Some(Description::of_experiment(file, *is_quick, output)?)
        }
        // the input of the description is in the cluster
        JobSubject::Tune { .. } => None,
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    let running = RefCell::new(None);
    runtime.block_on(async {
        let fetched = tokio::select! {
            done = run_to_end(request, described, &running) => done?,
            _ = tokio::signal::ctrl_c() => return Err(interrupted(running.borrow().as_ref())),
        };
        if let JobSubject::Tune { name, .. } = &request.subject {
            finish(name, &fetched).await?;
        }
        Ok(fetched.output)
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tune_tests;
