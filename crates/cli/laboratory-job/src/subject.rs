//! Work of a Job.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use albacore_command::Failure;

use crate::limits::JOB_NAME_BYTES_MAX;
use crate::transfer::ResumePolicy;

/// The work to run, and where.
#[derive(Clone, Debug)]
pub enum JobSubject {
    Experiment {
        file: PathBuf,
        is_quick: bool,
        node: String,
        /// The InferenceDeployment whose resources the pod gets.
        deployment: Option<String>,
    },
    /// A search for the configuration of an InferenceDeployment, in a pod like its pods.
    Tune {
        name: String,
        /// `None` for any node on which the deployment's pods may run.
        node: Option<String>,
        /// Options of `albacore tune` that define the measurement.
        options: Vec<OsString>,
        /// If the values are to be applied, how long the serving pods are measured, once before and
        /// once after that.
        watch_time: Option<Duration>,
    },
}

impl JobSubject {
    /// Noun for messages.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Self::Experiment { .. } => "experiment",
            Self::Tune { .. } => "search",
        }
    }

    pub(crate) fn node(&self) -> Option<&str> {
        match self {
            Self::Experiment { node, .. } => Some(node),
            Self::Tune { node, .. } => node.as_deref(),
        }
    }

    /// `app.kubernetes.io/name` of Job and pod, and prefix of the Job's name.
    pub(crate) fn label(&self) -> &'static str {
        match self {
            Self::Experiment { .. } => "albacore-experiment",
            Self::Tune { .. } => "albacore-tune",
        }
    }

    /// Permissions that a user needs.
    pub(crate) fn rights(&self) -> &'static str {
        match self {
            Self::Experiment { .. } => {
                "`albacore experiment --node` needs the rights to get, create, patch and delete jobs, to list \
                 pods, and to get and create pods/exec in the namespace"
            }
            Self::Tune { .. } => {
                "`albacore tune NAME` needs the rights to get inferencedeployments and deployments, to get, \
                 create, patch and delete jobs, to list pods, and to get and create pods/exec in the namespace; \
                 with --apply also to patch inferencedeployments and to get pods/proxy"
            }
        }
    }

    /// Advice for running another subject under the name of an existing Job.
    pub(crate) fn remedy(&self) -> &'static str {
        match self {
            Self::Experiment { .. } => "change name in the experiment's file",
            Self::Tune { .. } => "repeat its options to follow it",
        }
    }

    /// An experiment continues after the local results; a search restarts.
    pub(crate) fn resume_policy(&self) -> ResumePolicy {
        match self {
            Self::Experiment { .. } => ResumePolicy::Append,
            Self::Tune { .. } => ResumePolicy::Restart,
        }
    }

    /// The name of the Job for an experiment or deployment `name`.
    pub(crate) fn job_name(&self, name: &str) -> Result<String, Failure> {
        let job = format!("{}-{}", self.label(), name.replace(['_', '.'], "-"));
        let ends_well = job.ends_with(|c: char| c.is_ascii_alphanumeric());
        if job.len() <= JOB_NAME_BYTES_MAX && ends_well {
            return Ok(job);
        }
        let remedy = match self {
            Self::Experiment { .. } => self.remedy(),
            Self::Tune { .. } => "tune its file with `albacore tune -f FILE`",
        };
        Err(Failure::Usage(format!(
            "name: {name}: its Job would be {job}, but the name of a Job has at most \
             {JOB_NAME_BYTES_MAX} characters and ends with a letter or digit: {remedy}"
        )))
    }
}
