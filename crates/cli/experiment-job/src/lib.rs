//! `albacore experiment --node`: the experiment as a Job on a node of a cluster.
//!
//! What an experiment is, only `albacore-lab` knows: it checks the file here, runs in the pod, and
//! writes the report here. This crate makes the Job, sends it the files and fetches the results,
//! all through `pods/exec`. The Job outlives this process; the same command finds it again.
#![forbid(unsafe_code)]

mod description;
mod job;
mod limits;
mod local_results;
mod object;
mod pod;
mod transfer;

use std::cell::RefCell;
use std::path::PathBuf;

use albacore_cluster::{Cluster, ObjectKey, UserConnectOptions};
use albacore_command::{Failure, sentence};

use description::Description;
use job::JobClient;

/// What is asked for at the prompt.
#[derive(Clone, Debug)]
pub struct JobRequest {
    /// The experiment.
    pub file: PathBuf,
    pub is_quick: bool,
    /// Where results are kept here; `None` for the experiment's own folder.
    pub output: Option<PathBuf>,
    pub node: String,
    /// The InferenceDeployment whose resources the pod has.
    pub deployment: Option<String>,
    pub image: Option<String>,
    /// `None` for that of the context.
    pub namespace: Option<String>,
    pub cluster: UserConnectOptions,
}

/// Runs the experiment, or goes on with the Job that runs it; the folder of its results.
///
/// # Errors
/// A bad file; what keeps the Job from running or from its end; Ctrl-C. What was fetched is kept.
pub fn run(request: &JobRequest) -> Result<PathBuf, Failure> {
    let output = request.output.as_ref();
    let description = Description::read(&request.file, request.is_quick, output)?;
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    let running = RefCell::new(None);
    runtime.block_on(async {
        tokio::select! {
            done = follow(request, &description, &running) => done,
            _ = tokio::signal::ctrl_c() => Err(interrupted(running.borrow().as_ref())),
        }
    })?;
    Ok(description.output)
}

/// Until all results are here; `running` is set while there is a Job.
async fn follow(
    request: &JobRequest,
    description: &Description,
    running: &RefCell<Option<ObjectKey>>,
) -> Result<(), Failure> {
    let cluster = Cluster::connect_as_user(&request.cluster).await;
    let cluster = cluster.map_err(|error| Failure::Failed(sentence(&error)))?;
    let namespace = request.namespace.as_deref();
    let namespace = namespace.unwrap_or_else(|| cluster.namespace()).to_owned();
    let name = object::job_name(&description.name)?;
    let key = ObjectKey::new(namespace, name);
    let job = JobClient {
        cluster,
        key: key.clone(),
    };
    job.check_node(&request.node).await?;
    let uid = match job.find(&request.node, &description.digest).await? {
        Some(uid) => {
            eprintln!("Job {key} runs this experiment already; following it");
            uid
        }
        None => {
            let settings = job.settings(request.deployment.as_deref()).await?;
            let object = object::job(&object::JobSpec {
                key: &key,
                node: &request.node,
                image: request.image.as_deref(),
                settings: &settings,
                digest: &description.digest,
                seconds_max: description.seconds_max,
            });
            let uid = job.create(&object).await?;
            eprintln!(
                "Job {key} is made; waiting for its pod on node {}",
                request.node
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

#[cfg(test)]
mod tests;
