//! From a request to the Job that runs it, and to the handling of a search's results.

use std::cell::RefCell;
use std::path::{Path, PathBuf};

use albacore_cluster::{Cluster, ObjectKey};
use albacore_command::{Failure, print, sentence};

use crate::apply::Apply;
use crate::description::{Description, finish_tune};
use crate::job::JobClient;
use crate::subject::JobSubject;
use crate::{JobRequest, object, transfer};

/// A Job whose results have been fetched.
pub(crate) struct FetchedJob {
    /// The local directory of the results.
    pub(crate) output: PathBuf,
    /// Set for a search whose values are to be applied.
    apply: Option<Apply>,
}

/// Runs until all results have been fetched; `running` is set once the Job exists.
pub(crate) async fn run_to_end(
    request: &JobRequest,
    described: Option<Description>,
    running: &RefCell<Option<ObjectKey>>,
) -> Result<FetchedJob, Failure> {
    let cluster = Cluster::connect_as_user(&request.cluster).await;
    let cluster = cluster.map_err(|error| Failure::Failed(sentence(&error)))?;
    let namespace = request.namespace.as_deref();
    let namespace = namespace.unwrap_or_else(|| cluster.namespace()).to_owned();
    let subject = &request.subject;
    let mut apply = None;
    let (job, description) = match (described, subject) {
        (Some(description), _) => {
            let key = ObjectKey::new(namespace, subject.job_name(&description.name)?);
            (client(cluster, key, subject), description)
        }
        (
            None,
            JobSubject::Tune {
                name,
                options,
                watch_time,
                ..
            },
        ) => {
            let key = ObjectKey::new(&namespace, subject.job_name(name)?);
            let job = client(cluster, key, subject);
            let read = job.deployment(name).await?;
            let object = serde_json::to_value(&read);
            let object = object.map_err(|error| Failure::Failed(format!("{name}: {error}")))?;
            let output = request.output.as_ref();
            let description = Description::of_tune(&object, options, output)?;
            apply = watch_time.map(|time| Apply {
                job: job.clone(),
                key: ObjectKey::new(namespace, name),
                read,
                time,
            });
            (job, description)
        }
        (None, JobSubject::Experiment { file, .. }) => {
            let file = file.display();
            return Err(Failure::Broken(format!("{file} was not described")));
        }
    };
    if let Some(node) = subject.node() {
        job.check_node(node).await?;
    }
    if let Some(apply) = &apply {
        apply.check().await?;
    }
    let uid = find_or_make(&job, request, &description).await?;
    running.replace(Some(job.key.clone()));
    transfer::run(&job, &uid, &description).await?;
    Ok(FetchedJob {
        output: description.output,
        apply,
    })
}

/// Writes the output files of a search, prints its findings, and applies its values if requested.
pub(crate) async fn finish(name: &str, fetched: &FetchedJob) -> Result<(), Failure> {
    let folder: &Path = &fetched.output;
    let summary = finish_tune(folder, name)?;
    let file = folder.join(format!("{name}.yaml"));
    let (report, values) = (folder.join("report.html"), file.display());
    print(&format!("{summary}\nReport: {}\n", report.display()))?;
    match &fetched.apply {
        None => print(&format!(
            "To apply these values: kubectl apply -f {values}\n"
        )),
        Some(apply) => {
            print(&format!("The deployment with these values: {values}\n"))?;
            let applied = apply.run(&file).await?;
            print(&(applied + "\n"))
        }
    }
}

fn client(cluster: Cluster, key: ObjectKey, subject: &JobSubject) -> JobClient {
    JobClient {
        cluster,
        key,
        subject: subject.clone(),
    }
}

/// Finds or creates the Job and returns its uid.
async fn find_or_make(
    job: &JobClient,
    request: &JobRequest,
    description: &Description,
) -> Result<String, Failure> {
    let (key, subject) = (&job.key, &request.subject);
    if let Some(uid) = job.find(&description.digest).await? {
        let noun = subject.noun();
        eprintln!("Job {key} runs this {noun} already; following it");
        return Ok(uid);
    }
    let settings = job.settings().await?;
    let object = object::job(&object::JobSpec {
        key,
        label: subject.label(),
        node: subject.node(),
        image: request.image.as_deref(),
        settings: &settings,
        digest: &description.digest,
        seconds_max: description.seconds_max,
    });
    let uid = job.create(&object).await?;
    let place = subject.node().map(|node| format!(" on node {node}"));
    let place = place.unwrap_or_default();
    eprintln!("Job {key} is created; waiting for its pod{place}");
    Ok(uid)
}

pub(crate) fn interrupted(job: Option<&ObjectKey>) -> Failure {
    let Some(ObjectKey { namespace, name }) = job else {
        return Failure::Failed("interrupted: no Job was created".to_owned());
    };
    Failure::Failed(format!(
        "interrupted: Job {namespace}/{name} keeps running, and the fetched files are kept. Run \
         the same command again to follow it, or delete it: kubectl delete job {name} -n \
         {namespace}"
    ))
}
