//! One attempt to load a model on a separate thread: fetch, compile, install in the workers.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};

use albacore_engine::{Engine, InstallError, Iterations, ModelInfo};
use albacore_settings as settings;
use albacore_settings::{Digest, Source};
use albacore_storage::{CacheUse, Fetched, PythonModel, Storage};

use super::file_stamp::{FileStamp, stamp};
use crate::mlflow;
use crate::model_control::LoopMessage;

/// Logs which iterations are used if the file records a best iteration and the user chose none.
pub fn log_iterations_notice(model: &ModelInfo) {
    if let Some(notice) = &model.iterations_notice {
        tracing::warn!(model = model.name, "{notice}");
    }
}

/// Logs the fetched version and the use of the cache.
pub(crate) fn log_fetched(model: &str, source: &Source, fetched: &Fetched) {
    let source = albacore_storage::redacted(source);
    let sha256 = fetched.sha256.to_string();
    if let CacheUse::Failed(error) = &fetched.cache {
        tracing::warn!(
            model,
            source,
            error,
            "cannot be stored in the cache: it is fetched again at each start"
        );
    }
    let is_of_cache = fetched.cache == CacheUse::Read;
    match &fetched.version {
        Some(version) => tracing::info!(
            model,
            source,
            version,
            sha256,
            is_of_cache,
            "fetched from a store"
        ),
        None if is_of_cache => tracing::info!(model, source, sha256, "read from the cache"),
        None => {}
    }
}

/// State shared by the loading threads.
#[derive(Debug)]
pub(super) struct LoadContext {
    pub(super) engine: Arc<Engine>,
    pub(super) storage: Arc<Storage>,
    pub(super) runtime: tokio::runtime::Handle,
    /// Held from compilation to installation: bounds the memory of compiled models and preserves
    /// the order in which loads started.
    pub(super) install_lock: Mutex<()>,
}

/// A model file to load.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoadRequest {
    pub(super) name: String,
    pub(super) source: Source,
    pub(super) sha256: Option<Digest>,
    pub(super) iterations: Option<settings::IterationsSetting>,
    pub(super) schema_names: settings::SchemaNames,
}

impl LoadRequest {
    /// Returns a text that is equal only for equal requests.
    pub(super) fn fingerprint(&self) -> String {
        format!("{self:?}")
    }
}

/// The file that a model was compiled from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LoadedFile {
    pub(super) digest: Digest,
    /// Content of the `MLmodel` file next to it, if present.
    pub(super) python: Option<PythonModel>,
}

impl LoadedFile {
    pub(super) const fn from_fetched(fetched: &Fetched) -> Self {
        Self {
            digest: fetched.sha256,
            python: fetched.python,
        }
    }
}

/// A served version.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServedVersion {
    pub(super) file: LoadedFile,
    /// Iterations of the load request.
    iterations: Option<settings::IterationsSetting>,
    schema_names: settings::SchemaNames,
}

impl ServedVersion {
    pub(super) fn new(file: LoadedFile, request: &LoadRequest) -> Self {
        Self {
            file,
            iterations: request.iterations,
            schema_names: request.schema_names.clone(),
        }
    }

    /// Returns whether the request would give this version if the file is the same.
    fn has_settings_of(&self, request: &LoadRequest) -> bool {
        (self.iterations, &self.schema_names) == (request.iterations, &request.schema_names)
    }
}

/// The currently served version of a model.
#[derive(Clone, Debug, Default)]
pub(super) struct CurrentVersion {
    pub(super) version: Option<ServedVersion>,
    /// Version that the object store reported for the last fetched file.
    pub(super) store_version: Option<String>,
}

/// A completed attempt.
#[derive(Debug)]
pub(crate) struct LoadAttempt {
    /// Identifies the attempt; results of superseded attempts are ignored.
    pub(super) number: u64,
    pub(super) request: LoadRequest,
    /// Stamp of the file before it was read; `None` for a URL.
    pub(super) stamp: Option<FileStamp>,
    /// Version reported by the object store, if the file is in one.
    pub(super) version: Option<String>,
    /// The file of the served version, or why loading failed.
    pub(super) result: Result<LoadedFile, String>,
}

/// Returns the stamp of a model file; `None` for a URL.
pub(super) fn stamp_of(source: &Source) -> Option<FileStamp> {
    match source {
        // For a folder, use the stamp of the most recently changed model file, because files may be
        // rewritten in place. If the folder has no model file or several, use the stamp of the
        // folder: loading then reports the error.
        Source::Path(path) => {
            let path = Path::new(path);
            let files = albacore_storage::watched_files(path);
            let files = files.unwrap_or_else(|_| vec![path.to_owned()]);
            let stamps: Option<Vec<FileStamp>> = files.iter().map(|file| stamp(file)).collect();
            stamps?.into_iter().max_by_key(FileStamp::changed)
        }
        Source::Url(_) => None,
    }
}

/// Returns whether the source is polled for new versions while it is served: true for object
/// stores, unless the settings require a digest.
pub(super) fn is_polled(request: &LoadRequest) -> bool {
    request.sha256.is_none() && albacore_storage::is_versioned(&request.source)
}

/// Starts an attempt and sends its result to `finished`. If file and settings equal those of the
/// `current` version, it is not installed again, and not fetched again if the object store can
/// tell.
pub(super) fn start(
    context: &Arc<LoadContext>,
    number: u64,
    request: LoadRequest,
    current: CurrentVersion,
    is_wanted: Arc<AtomicBool>,
    finished: SyncSender<LoopMessage>,
) -> std::io::Result<()> {
    let context = Arc::clone(context);
    let attempt = move || {
        // Taken before the file is read, so that a change during the read is detected later.
        let stamp = stamp_of(&request.source);
        let loaded = load(&context, &request, current, &is_wanted);
        let (result, version) = match loaded {
            Ok((file, version)) => (Ok(file), version),
            Err(error) => (Err(error), None),
        };
        // The receiver is dropped when the server stops.
        let _ = finished.send(LoopMessage::Finished(Box::new(LoadAttempt {
            number,
            request,
            stamp,
            version,
            result,
        })));
    };
    let thread = std::thread::Builder::new().name("albf.load".to_owned());
    thread.spawn(attempt).map(drop)
}

/// Returns the file of the version that is now served, and its version in the object store.
fn load(
    context: &LoadContext,
    request: &LoadRequest,
    current: CurrentVersion,
    is_wanted: &AtomicBool,
) -> Result<(LoadedFile, Option<String>), String> {
    let is_wanted = || is_wanted.load(Ordering::Relaxed);
    let same = current
        .version
        .filter(|version| version.has_settings_of(request));
    let same = same.map(|version| version.file);
    let known = current.store_version.filter(|_| same.is_some());
    let fetched = context
        .storage
        .fetch_if_changed(
            &request.source,
            known.as_deref(),
            request.sha256,
            &is_wanted,
        )
        .map_err(|error| error.to_string())?;
    let fetched = match (fetched, same) {
        (Some(fetched), _) => fetched,
        (None, Some(file)) => return Ok((file, known)),
        (None, None) => {
            return Err("is unchanged, but was not served: it is retried".into());
        }
    };
    let version = fetched.version.clone();
    log_fetched(&request.name, &request.source, &fetched);
    let file = LoadedFile::from_fetched(&fetched);
    if same == Some(file) {
        return Ok((file, version));
    }
    let _guard = context
        .install_lock
        .lock()
        .unwrap_or_else(PoisonError::into_inner);
    if !is_wanted() {
        return Err("loading was canceled".to_owned());
    }
    let installed = install(context, request, fetched).map_err(|problem| {
        let source = albacore_storage::redacted(&request.source);
        format!("{source}: {problem}")
    });
    installed?;
    Ok((file, version))
}

fn install(context: &LoadContext, request: &LoadRequest, fetched: Fetched) -> Result<(), String> {
    let iterations = iterations(request.iterations);
    let mut model = mlflow::compile(&request.name, &fetched, iterations)?;
    if request.schema_names.missing == settings::MissingColumnPolicy::Nan {
        model = model.with_missing_as_nan();
    }
    if !request.schema_names.classes.is_empty() {
        model = model.with_class_names(request.schema_names.classes.clone())?;
    }
    model = model.with_categories(request.schema_names.categories.clone())?;
    log_iterations_notice(model.info());
    drop(fetched);
    let installed = context.runtime.block_on(context.engine.install(model));
    installed
        .map(drop)
        .map_err(|error: InstallError| error.to_string())
}

fn iterations(requested: Option<settings::IterationsSetting>) -> Iterations {
    match requested {
        None => Iterations::AsSaved,
        Some(settings::IterationsSetting::All) => Iterations::All,
        Some(settings::IterationsSetting::Best) => Iterations::Best,
        Some(settings::IterationsSetting::Range { begin, end }) => Iterations::Range {
            begin: begin as usize,
            end: end as usize,
        },
    }
}
