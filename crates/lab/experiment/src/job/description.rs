//! Description of a job, built on the client machine, which has its files.

use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::Serialize;
use sha2::{Digest as _, Sha256};

use super::{INPUT, JOB_FOLDER, JOB_RESULTS, JOURNAL, MODELS, SPEC};
use crate::ExperimentError;
use crate::grid::windows;
use crate::journal::{self, Results, journal_file};
use crate::run::{REPEATS_MAX, STARTS_MAX};
use crate::server::{START_PATIENCE, STOP_PATIENCE, SWITCH_PATIENCE};
use crate::spec::Spec;

/// Input of a job.
#[derive(Debug, Serialize)]
pub struct Description {
    pub name: String,
    /// Folder of the results on this machine.
    pub output: PathBuf,
    /// The append-only file in [`Self::output`].
    pub journal: String,
    /// Text of the job's first file.
    pub spec: String,
    /// All files to be sent, including the results so far.
    pub files: Vec<InputFile>,
    /// SHA-256 of all files to be sent, without the results so far.
    pub digest: String,
    /// Upper bound of its duration, in seconds.
    pub seconds_max: u64,
}

#[derive(Debug, Serialize)]
pub struct InputFile {
    /// Path in the folder of the job.
    pub path: String,
    /// Path on the client; `None` for the first file, whose text is in the description.
    pub source: Option<PathBuf>,
    pub bytes: u64,
    pub sha256: String,
}

/// The complete lines of a journal on this machine.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct FetchedResults {
    pub bytes: u64,
    pub sha256: String,
}

/// Describes an experiment for a job; `output` is the folder of its results on the client.
///
/// # Errors
/// The file is invalid; the experiment has a custom server; a model cannot be read; `output`
/// contains results of another experiment.
pub fn describe(
    file: &Path,
    is_quick: bool,
    output: Option<&Path>,
) -> Result<Description, ExperimentError> {
    let mut spec = Spec::read(file, is_quick)?;
    let invalid = |what: &str| ExperimentError::Spec {
        path: file.to_owned(),
        what: what.to_owned(),
    };
    if spec.template.is_some() {
        return Err(invalid(
            "template: with --node only the built-in server is measured: remove template, or run \
             `albacore experiment` without --node on the machine that has your server",
        ));
    }
    let quick = if is_quick { "-quick" } else { "" };
    let output = output.map_or_else(
        || PathBuf::from(format!("experiment-{}{quick}", spec.name)),
        Path::to_owned,
    );
    let mut models = Vec::new();
    for model in &mut spec.models {
        let mut name = PathBuf::from(&model.name);
        if let Some(kind) = model.file.extension() {
            name.as_mut_os_string().push(".");
            name.as_mut_os_string().push(kind);
        }
        let path = Path::new(MODELS).join(name);
        let path = path.to_str().ok_or_else(|| {
            invalid("models: the extension of a model's file is not UTF-8: rename the file")
        })?;
        models.push(input_file(path, &model.file)?);
        let beside = Path::new(path)
            .strip_prefix(INPUT)
            .unwrap_or(Path::new(path));
        model.file = beside.to_owned();
    }
    spec.folder = PathBuf::new();
    let results = journal_file(&output);
    let fetched = fetched_results(&results)?;
    if fetched.bytes > 0 && Results::read(&output)?.header.spec != in_pod(&spec) {
        let what = "has results of another experiment: name another folder with --output";
        return Err(journal::journal(&results, what));
    }
    let seconds_max = time_max(&spec).as_secs();
    let name = format!("{}{quick}", spec.name);
    let text = serde_json::to_string(&spec).map_err(|error| invalid(&error.to_string()))?;
    let mut files = vec![InputFile::of_text(SPEC, &text)];
    files.extend(models);
    let mut all = Sha256::new();
    for file in &files {
        all.update(format!("{} {}\n", file.sha256, file.path));
    }
    if fetched.bytes > 0 {
        files.push(InputFile {
            path: format!("{JOB_RESULTS}/{JOURNAL}"),
            source: Some(results),
            bytes: fetched.bytes,
            sha256: fetched.sha256,
        });
    }
    Ok(Description {
        name,
        output,
        journal: JOURNAL.to_owned(),
        spec: text,
        files,
        digest: hex(&all.finalize()),
        seconds_max,
    })
}

/// The experiment as parsed in the pod.
fn in_pod(spec: &Spec) -> Spec {
    let mut spec = spec.clone();
    spec.folder = Path::new(JOB_FOLDER).join(INPUT);
    for model in &mut spec.models {
        model.file = spec.folder.join(&model.file);
    }
    spec
}

/// Size and digest of a journal on this machine; zero if there is no such file.
///
/// # Errors
/// It cannot be read.
pub fn fetched_results(journal: &Path) -> Result<FetchedResults, ExperimentError> {
    let failed = super::file_error(journal);
    let (mut bytes, mut line) = (0, Vec::new());
    if journal.exists() {
        let mut reader = BufReader::new(File::open(journal).map_err(&failed)?);
        // bound: the length of the file. After a crash the last line is incomplete.
        while reader.read_until(b'\n', &mut line).map_err(&failed)? > 0 && line.ends_with(b"\n") {
            bytes += line.len() as u64;
            line.clear();
        }
    }
    let sha256 = match bytes {
        0 => hex(&Sha256::digest([])),
        _ => sum(journal, Some(bytes))?,
    };
    Ok(FetchedResults { bytes, sha256 })
}

impl InputFile {
    /// A file whose text is in the description.
    #[must_use]
    pub fn of_text(path: &str, text: &str) -> Self {
        Self {
            path: path.to_owned(),
            source: None,
            bytes: text.len() as u64,
            sha256: hex(&Sha256::digest(text)),
        }
    }
}

fn input_file(path: &str, source: &Path) -> Result<InputFile, ExperimentError> {
    let bytes = std::fs::metadata(source).map_err(super::file_error(source))?;
    Ok(InputFile {
        path: path.to_owned(),
        source: Some(source.to_owned()),
        bytes: bytes.len(),
        sha256: sum(source, None)?,
    })
}

/// SHA-256 of a file, or of its first `bytes`.
pub(super) fn sum(path: &Path, bytes: Option<u64>) -> Result<String, ExperimentError> {
    let failed = super::file_error(path);
    let file = File::open(path).map_err(&failed)?;
    let mut sum = Sha256::new();
    let mut part = file.take(bytes.unwrap_or(u64::MAX));
    let mut buffer = vec![0; 1 << 16];
    // bound: the length of the file.
    loop {
        let read = part.read(&mut buffer).map_err(&failed)?;
        if read == 0 {
            return Ok(hex(&sum.finalize()));
        }
        sum.update(&buffer[..read]);
    }
}

fn hex(sum: &[u8]) -> String {
    sum.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Upper bound: every window is repeated, every server is restarted, and each takes its timeout.
fn time_max(spec: &Spec) -> Duration {
    let cells = windows(spec);
    let count: usize = cells.iter().map(|(_, windows)| windows.len()).sum();
    let window = spec.window.0 + spec.settle.0 + SWITCH_PATIENCE;
    let starts = (START_PATIENCE + STOP_PATIENCE) * STARTS_MAX as u32;
    window * (1 + REPEATS_MAX) * count as u32 + starts * cells.len() as u32
}
