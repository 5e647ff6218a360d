//! What `albacore-lab` measures as a Job in a cluster: `albacore experiment --node`, `albacore tune
//! NAME`.
//!
//! What an experiment or a search is, only `albacore-lab` knows: it checks what is asked for here,
//! runs in the pod, and writes the report here. This crate makes the Job, sends it the files and
//! fetches the results, all through `pods/exec`. The Job outlives this process; the same command
//! finds it again. What a search chose is applied here, with the rights of the user.
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

pub use subject::Subject;

use description::Description;
use run::{finish, follow, interrupted};

/// What is asked for at the prompt.
#[derive(Clone, Debug)]
pub struct JobRequest {
    pub subject: Subject,
    /// Where results are kept here; `None` for a folder with the name of what is run.
    pub output: Option<PathBuf>,
    pub image: Option<String>,
    /// `None` for that of the context.
    pub namespace: Option<String>,
    pub cluster: UserConnectOptions,
}

/// Runs the subject, or goes on with the Job that runs it; the folder of its results. Of a search
/// all is written and printed then, and applied if that is asked for.
///
/// # Errors
/// A bad file; what keeps the Job from running or from its end; Ctrl-C; values that cannot be
/// applied, or that are worse. What was fetched is kept.
pub fn run(request: &JobRequest) -> Result<PathBuf, Failure> {
    let output = request.output.as_ref();
    let described = match &request.subject {
        Subject::Experiment { file, is_quick, .. } => {
            Some(Description::of_experiment(file, *is_quick, output)?)
        }
        // the cluster has what is described
        Subject::Tune { .. } => None,
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    let running = RefCell::new(None);
    runtime.block_on(async {
        let followed = tokio::select! {
            done = follow(request, described, &running) => done?,
            _ = tokio::signal::ctrl_c() => return Err(interrupted(running.borrow().as_ref())),
        };
        if let Subject::Tune { name, .. } = &request.subject {
            finish(name, &followed).await?;
        }
        Ok(followed.output)
    })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod tune_tests;
