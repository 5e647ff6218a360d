//! Sends the files and fetches the results, reconnecting as often as needed.

use std::fs::File;
use std::io::{IsTerminal as _, Read as _, Write as _};
use std::path::Path;
use std::time::Instant;

use albacore_cluster::{ClusterError, ErrorClass, ExecOutput, ObjectKey};
use albacore_command::{Failure, sentence};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::description::{Description, InputFile};
use crate::job::JobClient;
use crate::limits::{
    EXPERIMENT_LOST_TIME_MAX, EXPERIMENT_PART_BYTES, EXPERIMENT_POLL, EXPERIMENT_SILENCE_MAX,
    POD_END_TIME_MAX,
};
use crate::local_results::LocalResults;
use crate::object::{CONTAINER, PROGRAM};
use crate::pod::{PodState, state, wait_until_running};

/// Message of the program in the pod while it is followed.
#[derive(Default, Deserialize)]
#[serde(default)]
struct PodMessage {
    /// A line of the results, including its line feed.
    line: Option<String>,
    /// The same for people.
    text: Option<String>,
    /// Whether the next text replaces it.
    is_passing: bool,
    end: Option<End>,
}

#[derive(Deserialize)]
struct End {
    failure: Option<String>,
}

/// Local results that a run keeps from earlier runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ResumePolicy {
    /// The lines of the journal: the next run appends to them.
    Append,
    Restart,
}

/// Runs the Job with this uid until all of its results are in the local directory, then deletes it.
pub(crate) async fn run(
    job: &JobClient,
    uid: &str,
    description: &Description,
) -> Result<(), Failure> {
    let mut results = LocalResults::open(&description.output, &description.journal)?;
    if job.subject.resume_policy() == ResumePolicy::Restart {
        results.clear()?;
    }
    let pod = match wait_until_running(job, uid).await {
        Ok(pod) => pod,
        Err(failure) => {
            // the reason why it did not start is reported, even if the deletion fails
            drop(job.delete(uid).await);
            return Err(failure);
        }
    };
    let session = Session { job, uid, pod };
    if session.is_waiting().await? {
        session.send(description).await?;
    }
    let failure = session.fetch_results(&mut results).await?;
    let released = session.run(&["release"], &[]).await;
    // if the user may not delete the Job, it is deleted automatically later
    if let Err(failure) = job.delete(uid).await {
        let kept = job.kubectl("delete");
        eprintln!(
            "cannot delete Job {}: {}; delete it: {kept}",
            job.key,
            failure.text()
        );
        released?;
    }
    match failure {
        None => Ok(()),
        Some(failure) => Err(Failure::Failed(format!("Job {}: {failure}", job.key))),
    }
}

/// A session with a running pod.
struct Session<'a> {
    job: &'a JobClient,
    uid: &'a str,
    pod: ObjectKey,
}

impl Session<'_> {
    /// Whether the pod waits for its files.
    async fn is_waiting(&self) -> Result<bool, Failure> {
        #[derive(Deserialize)]
        struct State {
            state: String,
        }
        let output = self.run(&["state"], &[]).await?;
        match serde_json::from_slice(&output) {
            Ok(State { state }) => Ok(state == "waiting"),
            Err(error) => Err(Failure::Failed(format!(
                "the program in pod {} is of another version: {}; give --image the image of version {}",
                self.pod,
                sentence(&error),
                env!("CARGO_PKG_VERSION")
            ))),
        }
    }

    /// Sends all files and starts the job.
    async fn send(&self, description: &Description) -> Result<(), Failure> {
        let bytes: u64 = description.files.iter().map(|file| file.bytes).sum();
        let files = description.files.len();
        eprintln!("sending {files} files, {} KiB", bytes.div_ceil(1024));
        for file in &description.files {
            match &file.source {
                None => self.send_part(file, 0, description.spec.as_bytes()).await?,
                Some(source) => self.send_file(file, source).await?,
            }
        }
        let list = description.files.iter();
        let list = list.map(|file| json!({"path": file.path, "sha256": file.sha256}));
        let list = Value::Array(list.collect()).to_string();
        self.run(&["begin"], list.as_bytes()).await.map(drop)
    }

    async fn send_file(&self, file: &InputFile, source: &Path) -> Result<(), Failure> {
        let failed = |error| Failure::file(source, &error);
        let mut reader = File::open(source).map_err(failed)?.take(file.bytes);
        let mut offset = 0;
        // bound: the bytes of the file. An empty file is sent as one part.
        loop {
            let mut part = Vec::new();
            let next = reader.by_ref().take(EXPERIMENT_PART_BYTES);
            let read = { next }.read_to_end(&mut part).map_err(failed)?;
            self.send_part(file, offset, &part).await?;
            offset += read as u64;
            if read == 0 || offset == file.bytes {
                return Ok(());
            }
        }
    }

    async fn send_part(&self, file: &InputFile, offset: u64, part: &[u8]) -> Result<(), Failure> {
        let (offset, bytes) = (offset.to_string(), part.len().to_string());
        let words = ["receive", &file.path, &offset, &bytes];
        self.run(&words, part).await.map(drop)
    }

    /// Fetches results until the job has ended; returns its failure, if any.
    async fn fetch_results(&self, results: &mut LocalResults) -> Result<Option<String>, Failure> {
        let mut screen = Screen {
            is_terminal: std::io::stderr().is_terminal(),
        };
        let mut lost: Option<Instant> = None;
        // bound: EXPERIMENT_LOST_TIME_MAX without a message.
        loop {
            let fetched = results.fetched()?;
            let (bytes, sha256) = (fetched.bytes.to_string(), fetched.sha256);
            let command = [&PROGRAM[..], &["follow", &bytes, &sha256]].concat();
            let (mut end, mut unwritten) = (None, None);
            let mut take = |line: &str| {
                lost = None;
                // a line of another version of the program is ignored
                let message: PodMessage = serde_json::from_str(line).unwrap_or_default();
                if let Some(line) = &message.line {
                    unwritten = results.append(line).err();
                }
                if let Some(text) = &message.text {
                    screen.print(text, message.is_passing);
                }
                end = message.end;
                end.is_none() && unwritten.is_none()
            };
            let (cluster, silence) = (&self.job.cluster, EXPERIMENT_SILENCE_MAX);
            let followed = cluster.exec_lines(&self.pod, CONTAINER, &command, silence, &mut take);
            let followed = followed.await;
            screen.clear();
            if let Some(failure) = unwritten {
                return Err(failure);
            }
            if let Some(End { failure }) = end {
                return Ok(failure);
            }
            self.explain(followed, "follow").await?;
            let since = *lost.get_or_insert_with(Instant::now);
            if since.elapsed() >= EXPERIMENT_LOST_TIME_MAX {
                return Err(Failure::Failed(format!(
                    "lost the connection to pod {}; Job {} keeps running, and the fetched files \
                     are kept: run the same command again to follow it",
                    self.pod, self.job.key
                )));
            }
            tokio::time::sleep(EXPERIMENT_POLL).await;
        }
    }

    /// Runs a short command of the program in the pod and returns its output; retries on a broken
    /// connection.
    async fn run(&self, words: &[&str], input: &[u8]) -> Result<Vec<u8>, Failure> {
        let command = [&PROGRAM[..], words].concat();
        let begin = Instant::now();
        // bound: EXPERIMENT_LOST_TIME_MAX.
        loop {
            let cluster = &self.job.cluster;
            let result = cluster.exec_with_input(&self.pod, CONTAINER, &command, input);
            let result = result.await;
            if let Ok(ExecOutput {
                output,
                failure: None,
                ..
            }) = result
            {
                return Ok(output);
            }
            let is_late = begin.elapsed() >= EXPERIMENT_LOST_TIME_MAX;
            match result {
                Err(error) if is_late => return Err(self.job.failed(&error)),
                result => self.explain(result, words[0]).await?,
            }
            tokio::time::sleep(EXPERIMENT_POLL).await;
        }
    }

    /// Returns the reason why a program ended early; `Ok` if only the connection broke.
    async fn explain(
        &self,
        result: Result<ExecOutput, ClusterError>,
        what: &str,
    ) -> Result<(), Failure> {
        if let Err(error) = &result
            && error.class() == ErrorClass::Forbidden
        {
            return Err(self.job.failed(error));
        }
        let begin = Instant::now();
        // bound: POD_END_TIME_MAX. The node reports an exit with a delay of some seconds.
        loop {
            if let Some(why) = self.end().await {
                return Err(Failure::Failed(format!(
                    "Job {} ended: {why}. The fetched files are kept: run the same command again \
                     to continue",
                    self.job.key
                )));
            }
            match &result {
                Ok(output) if begin.elapsed() >= POD_END_TIME_MAX => {
                    let error = output.error.trim();
                    let error = error.strip_prefix("albacore: ").unwrap_or(error);
                    let failure = output.failure.as_deref().unwrap_or("it ended too early");
                    let why = if error.is_empty() { failure } else { error };
                    return Err(Failure::Failed(format!("pod {}, {what}: {why}", self.pod)));
                }
                Ok(_) => tokio::time::sleep(EXPERIMENT_POLL).await,
                Err(_) => return Ok(()),
            }
        }
    }

    /// Why the pod has ended, if it has; `None` if the API server is unreachable.
    async fn end(&self) -> Option<String> {
        let job = async || self.job.end(self.uid).await.ok().flatten();
        match self.job.pod(self.uid).await.ok()? {
            Some(pod) => match state(&pod) {
                // the Job's deadline deletes the pod
                PodState::Ended(why) if pod.metadata.deletion_timestamp.is_some() => {
                    Some(job().await.unwrap_or(why))
                }
                PodState::Ended(why) => Some(why),
                _ => None,
            },
            None => job()
                .await
                .or_else(|| Some("its pod was deleted".to_owned())),
        }
    }
}

/// Writes to standard error; on a terminal, progress is shown on one changing line.
struct Screen {
    is_terminal: bool,
}

impl Screen {
    fn print(&mut self, text: &str, is_passing: bool) {
        self.clear();
        match self.is_terminal && is_passing {
            true => {
                eprint!("{text}");
                // an unwritable progress line is ignored
                let _ = std::io::stderr().flush();
            }
            false => eprintln!("{text}"),
        }
    }

    fn clear(&self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}
