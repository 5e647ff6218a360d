//! A run in a pod of a cluster, started by `albacore tune NAME`: the input sent to the pod, and the
//! journal that returns progress and results.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use albacore_experiment::{Description, InputFile, JOB_RESULTS};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::deployment::Deployment;
use crate::error::TuneError;
use crate::report::write_results;
use crate::request::{Place, TuneOptions, TuneRequest};
use crate::tune;

/// Name of the journal in the folder of results.
pub const TUNE_JOURNAL: &str = "tune.jsonl";

/// Path of the input, in the folder of the job.
const INPUT: &str = "input/tune.json";

/// Path of the deployment's file, in the folder of the job.
const DEPLOYMENT: &str = "input/deployment.yaml";

/// Characters of a result per line of the journal: a follower accepts lines of at most 1 MiB.
const PART_CHARS: usize = 1 << 16;

/// Time limit of a run in addition to the time of measurements: for servers to start, load models
/// and exit.
const TIME_MORE: Duration = Duration::from_secs(1_800);

#[derive(Serialize, Deserialize)]
struct JobInput {
    /// The object as YAML.
    deployment: String,
    options: TuneOptions,
}

/// A line of the journal.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "camelCase")]
enum Line {
    Progress { text: String },
    Part { of: ResultFile, text: String },
    Summary { text: String },
}

/// A file to be fetched; the pod cannot choose a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum ResultFile {
    Json,
    Report,
    Deployment,
}

impl ResultFile {
    const ALL: [Self; 3] = [Self::Json, Self::Report, Self::Deployment];

    fn path(self, folder: &Path, name: &str) -> PathBuf {
        folder.join(match self {
            Self::Json => "tune.json".to_owned(),
            Self::Report => "report.html".to_owned(),
            Self::Deployment => format!("{name}.yaml"),
        })
    }
}

/// Tuning request with these options, in a job's folder.
fn request(options: &TuneOptions, folder: &Path) -> TuneRequest {
    TuneRequest {
        file: folder.join(DEPLOYMENT),
        place: Place::Pod,
        folder: folder.join(JOB_RESULTS),
        cpus: None,
        options: options.clone(),
    }
}

/// Builds the input of a job; `object` is the InferenceDeployment from the API server.
///
/// # Errors
/// The object or an option cannot be tuned in a pod.
pub fn describe_job(
    object: &Value,
    options: &TuneOptions,
    output: Option<&Path>,
) -> Result<Description, TuneError> {
    let metadata = &object["metadata"];
    let name = metadata["name"].as_str().unwrap_or_default();
    let named = format!("InferenceDeployment {name}");
    let is_generated = options.arrivals == "poisson" || options.arrivals.starts_with("gamma:");
    if !is_generated {
        let arrivals = &options.arrivals;
        return Err(TuneError::Usage(format!(
            "--arrivals {arrivals}: a file of times cannot be sent to a pod: give poisson or \
             gamma:SHAPE"
        )));
    }
    let applied = json!({
        "apiVersion": object["apiVersion"],
        "kind": object["kind"],
        "metadata": {"name": metadata["name"], "namespace": metadata["namespace"]},
        "spec": object["spec"],
    });
    let failed = |what: String| TuneError::Failed(format!("{named}: {what}"));
    let deployment = yaml_serde::to_string(&applied).map_err(|e| failed(e.to_string()))?;
    let request = request(options, Path::new("/"));
    Deployment::of_text(deployment.clone(), &named, Path::new("/"), &request)?;
    let input = JobInput {
        deployment,
        options: options.clone(),
    };
    let text = serde_json::to_string(&input).map_err(|e| failed(e.to_string()))?;
    let file = InputFile::of_text(INPUT, &text);
    Ok(Description {
        name: name.to_owned(),
        output: output.map_or_else(|| format!("tune-{name}").into(), Path::to_owned),
        journal: TUNE_JOURNAL.to_owned(),
        spec: text,
        digest: file.sha256.clone(),
        files: vec![file],
        seconds_max: (options.time * 2 + TIME_MORE).as_secs(),
    })
}

/// Whether the folder of the job contains an input of this kind.
#[must_use]
pub fn has_tune_input(folder: &Path) -> bool {
    folder.join(INPUT).exists()
}

/// In the pod: runs the job; writes progress and results to the journal.
///
/// # Errors
/// Those of [`tune`] and [`write_results`]; the journal cannot be written.
pub fn run_job(folder: &Path) -> Result<(), TuneError> {
    let path = folder.join(INPUT);
    let text = std::fs::read_to_string(&path).map_err(TuneError::file(&path))?;
    let input: JobInput = serde_json::from_str(&text)
        .map_err(|e| TuneError::Failed(format!("{}: {e}", path.display())))?;
    let request = request(&input.options, folder);
    std::fs::write(&request.file, &input.deployment).map_err(TuneError::file(&request.file))?;
    let mut journal = Journal::create(&request.folder)?;
    let mut unwritten = None;
    let outcome = tune(&request, &mut |line| {
        let text = line.to_owned();
        if unwritten.is_none() {
            unwritten = journal.append(&Line::Progress { text }).err();
        }
    })?;
    if let Some(error) = unwritten {
        return Err(error);
    }
    let written = write_results(&outcome, &request.folder);
    for of in ResultFile::ALL {
        let path = of.path(&request.folder, &outcome.name);
        if path.exists() {
            journal.append_file(of, &path)?;
        }
    }
    let text = outcome.summary();
    journal.append(&Line::Summary { text })?;
    written.map(drop)
}

struct Journal {
    path: PathBuf,
    file: File,
}

impl Journal {
    fn create(folder: &Path) -> Result<Self, TuneError> {
        std::fs::create_dir_all(folder).map_err(TuneError::file(folder))?;
        let path = folder.join(TUNE_JOURNAL);
        let mut options = OpenOptions::new();
        let file = options.create_new(true).append(true).open(&path);
        let file = file.map_err(TuneError::file(&path))?;
        Ok(Self { path, file })
    }

    fn append(&mut self, line: &Line) -> Result<(), TuneError> {
        let failed = TuneError::file(&self.path);
        let mut text = match serde_json::to_vec(line) {
            Ok(text) => text,
            Err(error) => return Err(failed(error.into())),
        };
        text.push(b'\n');
        self.file.write_all(&text).map_err(failed)
    }

    fn append_file(&mut self, of: ResultFile, path: &Path) -> Result<(), TuneError> {
        let text = std::fs::read_to_string(path).map_err(TuneError::file(path))?;
        let mut chars = text.chars().peekable();
        // bound: the characters of the file.
        while chars.peek().is_some() {
            let text = chars.by_ref().take(PART_CHARS).collect();
            self.append(&Line::Part { of, text })?;
        }
        Ok(())
    }
}

/// User-visible text of a line of the journal; `None` if there is none.
#[must_use]
pub fn line_text(line: &str) -> Option<String> {
    match serde_json::from_str(line).ok()? {
        Line::Progress { text } => Some(text),
        Line::Part { .. } | Line::Summary { .. } => None,
    }
}

/// On the client: writes the results of a fetched journal as files beside it and removes it;
/// returns the summary, and the path of the file with the chosen values.
///
/// # Errors
/// The journal has another version or is incomplete; a file cannot be written.
pub fn write_fetched(folder: &Path, name: &str) -> Result<(String, PathBuf), TuneError> {
    let path = folder.join(TUNE_JOURNAL);
    let text = std::fs::read_to_string(&path).map_err(TuneError::file(&path))?;
    let mut files = ResultFile::ALL.map(|of| (of, String::new()));
    let mut summary = None;
    for line in text.lines() {
        let line = serde_json::from_str(line)
            .map_err(|e| TuneError::Failed(format!("{}: {e}", path.display())))?;
        match line {
            Line::Progress { .. } => {}
            Line::Part { of, text } => {
                let found = files.iter_mut().find(|(own, _)| *own == of);
                found.into_iter().for_each(|(_, whole)| *whole += &text);
            }
            Line::Summary { text } => summary = Some(text),
        }
    }
    let summary = summary.ok_or_else(|| {
        let what = "has no results: run the same command again";
        TuneError::Failed(format!("{}: {what}", path.display()))
    })?;
    let fetched = files.iter().filter(|(_, text)| !text.is_empty());
    for (of, text) in fetched.clone() {
        let path = of.path(folder, name);
        std::fs::write(&path, text).map_err(TuneError::file(&path))?;
    }
    std::fs::remove_file(&path).map_err(TuneError::file(&path))?;
    if !fetched.clone().any(|(of, _)| *of == ResultFile::Deployment) {
        let folder = folder.display();
        let what = format!("{summary}\nno values to apply; the measurements are in {folder}");
        return Err(TuneError::Failed(what));
    }
    Ok((summary, ResultFile::Deployment.path(folder, name)))
}

#[cfg(test)]
mod tests;
