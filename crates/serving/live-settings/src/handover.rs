//! State that a front stores with the supervisor for its successor: listening sockets, settings,
//! and models with their metadata. The successor reads no file and compiles nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpListener;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use albacore_engine::{
    CategoryTable, ClassNames, ClassRule, Columns, IterationRange, LoadedModel, ModelClasses,
    ModelInfo, ModelRevision, UnknownCategory,
};
use albacore_os::{OsError, SharedMemory};
use albacore_settings::Digest;
use albacore_supervision::{CONNECTIONS, FrontMessage, LISTENERS, Link};
use serde::{Deserialize, Serialize};

use crate::config_watcher::{FileStamp, LoadedSettings, parse_settings};
use crate::model_status::ModelLoadStatus;

const SETTINGS: &str = "settings";

/// Key of the effective message of the params stream.
const PARAMETERS: &str = "parameters";

/// Key of the names of models unloaded by API calls.
const UNLOADED: &str = "unloaded";

/// Prefix of the keys of models.
const MODEL: &str = "model/";

/// The listening sockets of one event loop.
#[derive(Debug)]
pub struct Listeners {
    pub http: TcpListener,
    pub grpc: TcpListener,
}

/// Metadata of a served model, without its image.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ModelRecord {
    // Fronts of earlier builds that hand over to this one write the old name.
    #[serde(rename = "edition")]
    revision: u64,
    pub name: String,
    platform: String,
    column_names: Vec<String>,
    column_types: Vec<String>,
    /// Column, categories in order of their numbers, and whether unknown categories are missing
    /// values.
    categories: Vec<(usize, Vec<String>, bool)>,
    /// Whether columns that are missing from a request are missing values.
    missing_is_nan: bool,
    iterations: (usize, usize, usize, Option<usize>),
    iterations_notice: Option<String>,
    /// Number of the rule, and the labels.
    classes: Option<(u8, Vec<String>)>,
    /// Number of the rule, and the names.
    class_names: Option<(u8, Vec<String>)>,
    /// Whether replies in MLflow's protocol are probabilities.
    predicts_probabilities: bool,
    /// SHA-256 of the model file.
    sha256: String,
    /// Installation time in milliseconds since 1970.
    pub loaded_at: u64,
    /// Fingerprint of the load request; empty for a model of the command line.
    pub request: String,
    /// Stamp of the file that the model was read from.
    pub stamp: Option<FileStamp>,
}

impl ModelRecord {
    /// Creates the record of a model with this status; `None` if it is not served.
    pub fn new(
        revision: &ModelRevision,
        status: &ModelLoadStatus,
        request: String,
        stamp: Option<FileStamp>,
    ) -> Option<Self> {
        let (sha256, loaded_at) = status.serving?;
        let info = revision.info();
        let range = info.iterations;
        Some(Self {
            revision: revision.number(),
            name: info.name.clone(),
            platform: info.platform.clone(),
            column_names: info.columns.names.clone(),
            column_types: info.columns.types.clone(),
            categories: categories_of(&info.columns),
            missing_is_nan: info.missing_is_nan,
            iterations: (range.begin, range.end, range.in_file, range.best),
            iterations_notice: info.iterations_notice.clone(),
            classes: info
                .classes
                .as_ref()
                .map(|classes| (classes.rule as u8, classes.labels.clone())),
            class_names: info
                .class_names
                .as_ref()
                .map(|classes| (classes.rule as u8, classes.names.clone())),
            predicts_probabilities: info.predicts_probabilities,
            sha256: sha256.to_string(),
            loaded_at,
            request,
            stamp,
        })
    }

    /// Returns the digest and the installation time.
    pub fn serving(&self) -> Option<(Digest, u64)> {
        Some((self.sha256.parse().ok()?, self.loaded_at))
    }

    fn info(&self) -> ModelInfo {
        let (begin, end, in_file, best) = self.iterations;
        ModelInfo {
            name: self.name.clone(),
            platform: self.platform.clone(),
            columns: Columns {
                names: self.column_names.clone(),
                types: self.column_types.clone(),
                categories: tables_of(&self.categories),
            },
            missing_is_nan: self.missing_is_nan,
            iterations: IterationRange {
                begin,
                end,
                in_file,
                best,
            },
            iterations_notice: self.iterations_notice.clone(),
            classes: self.classes.clone().map(|(rule, labels)| ModelClasses {
                rule: ClassRule::from_number(rule),
                labels,
            }),
            class_names: self.class_names.clone().map(|(rule, names)| ClassNames {
                rule: ClassRule::from_number(rule),
                names,
            }),
            predicts_probabilities: self.predicts_probabilities,
            ..ModelInfo::default()
        }
    }
}

/// Converts the categories of columns to the format of a record.
fn categories_of(columns: &Columns) -> Vec<(usize, Vec<String>, bool)> {
    let of_column = |(&column, table): (&usize, &Arc<CategoryTable>)| {
        let texts = table.texts().iter().map(|text| text.as_ref().to_owned());
        let is_missing = table.unknown() == UnknownCategory::Missing;
        (column, texts.collect(), is_missing)
    };
    columns.categories.iter().map(of_column).collect()
}

fn tables_of(categories: &[(usize, Vec<String>, bool)]) -> BTreeMap<usize, Arc<CategoryTable>> {
    let of_record = |(column, texts, is_missing): &(usize, Vec<String>, bool)| {
        let unknown = match is_missing {
            true => UnknownCategory::Missing,
            false => UnknownCategory::Refused,
        };
        (
            *column,
            Arc::new(CategoryTable::new(texts.clone(), unknown)),
        )
    };
    categories.iter().map(of_record).collect()
}

/// Stores state for the next front with the supervisor; written by the serving front.
#[derive(Clone, Debug)]
pub struct Handover(Arc<Link>);

impl Handover {
    pub fn new(link: Arc<Link>) -> Self {
        Self(link)
    }

    /// Sends a message. A failure is only logged, because the end of the supervisor ends this
    /// process.
    pub fn send(&self, message: &FrontMessage, fds: &[BorrowedFd<'_>]) {
        if let Err(error) = self.0.send(message, fds) {
            tracing::error!(%error, "the supervisor cannot be reached");
        }
    }

    fn keep(&self, key: impl Into<String>, fds: &[BorrowedFd<'_>]) {
        self.send(&FrontMessage::Store { key: key.into() }, fds);
    }

    pub fn store_listeners(&self, listeners: &[Listeners]) {
        let pairs = listeners.iter();
        let fds = pairs.flat_map(|pair| [pair.http.as_fd(), pair.grpc.as_fd()]);
        self.keep(LISTENERS, &fds.collect::<Vec<_>>());
    }

    /// Keeps the memory in which this front counts its connections.
    pub fn store_connections(&self, memory: &SharedMemory) {
        self.keep(CONNECTIONS, &[memory.as_fd()]);
    }

    pub fn store_settings(&self, text: &[u8]) {
        self.keep_bytes(SETTINGS, &[], text);
    }

    /// Keeps the effective message of the params stream.
    pub fn store_parameters(&self, message: &[u8]) {
        self.keep_bytes(PARAMETERS, &[], message);
    }

    /// Records that no parameters of a params stream are effective.
    pub fn remove_parameters(&self) {
        let key = PARAMETERS.to_owned();
        self.send(&FrontMessage::Remove { key }, &[]);
    }

    /// Does nothing if `record` is `None`, for a model that is not served.
    pub fn store_model(&self, revision: &ModelRevision, record: Option<&ModelRecord>) {
        let Some(record) = record else {
            return;
        };
        match serde_json::to_vec(record) {
            Ok(text) => {
                let key = format!("{MODEL}{}", record.name);
                self.keep_bytes(&key, &[revision.image()], &text);
            }
            Err(error) => tracing::error!(%error, "the record of a model cannot be serialized"),
        }
    }

    /// Replaces the set of models that must stay unloaded.
    pub fn store_unloaded(&self, names: &BTreeSet<String>) {
        match serde_json::to_vec(names) {
            Ok(text) => self.keep_bytes(UNLOADED, &[], &text),
            Err(error) => {
                tracing::error!(%error, "the names of unloaded models cannot be serialized");
            }
        }
    }

    pub fn remove_model(&self, name: &str) {
        let key = format!("{MODEL}{name}");
        self.send(&FrontMessage::Remove { key }, &[]);
    }

    fn keep_bytes(&self, key: &str, fds: &[BorrowedFd<'_>], bytes: &[u8]) {
        match SharedMemory::create_sealed("albacore-handover", bytes) {
            Ok(memory) => {
                let all: Vec<_> = fds.iter().copied().chain([memory.as_fd()]).collect();
                self.keep(key, &all);
            }
            Err(error) => tracing::error!(%error, "{key} cannot be stored for the next front"),
        }
    }
}

/// A model installed by the previous front.
pub struct StoredModel {
    pub model: LoadedModel,
    pub record: ModelRecord,
}

/// A value stored by the previous front.
pub enum StoredValue {
    Listeners(Vec<Listeners>),
    Settings(Box<LoadedSettings>),
    Model(Box<StoredModel>),
    /// A message of the params stream.
    Parameters(Vec<u8>),
    /// Names of models unloaded by API calls.
    Unloaded(BTreeSet<String>),
    /// A value that only the supervisor reads.
    Other,
}

/// Why a stored value cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StoredValueError {
    #[error(transparent)]
    Memory(#[from] OsError),
    #[error("a stored record cannot be parsed")]
    Record(#[from] serde_json::Error),
    #[error("the settings: {0}")]
    Settings(String),
    #[error("model {name:?}: {reason}")]
    Model { name: String, reason: String },
    #[error("a descriptor is missing")]
    Descriptor,
}

impl StoredValue {
    /// Returns whether `key` is the key of params stream parameters.
    pub fn is_parameters(key: &str) -> bool {
        key == PARAMETERS
    }

    /// Returns the name of the model stored under `key`.
    pub fn model_name(key: &str) -> Option<&str> {
        key.strip_prefix(MODEL)
    }

    /// Reads the value stored under `key`. Models are checked.
    pub fn read(key: &str, fds: Vec<OwnedFd>) -> Result<Self, StoredValueError> {
        let mut fds = fds.into_iter();
        if key == LISTENERS {
            return Ok(Self::Listeners(listeners(fds)?));
        }
        if key == SETTINGS {
            let text = fds.next().ok_or(StoredValueError::Descriptor)?;
            let text = SharedMemory::open(text)?.map_read()?;
            let sha256 = albacore_storage::sha256(text.as_slice());
            let settings = parse_settings(text.as_slice(), sha256);
            return Ok(Self::Settings(Box::new(
                settings.map_err(StoredValueError::Settings)?,
            )));
        }
        if key == PARAMETERS {
            let message = fds.next().ok_or(StoredValueError::Descriptor)?;
            let message = SharedMemory::open(message)?.map_read()?;
            return Ok(Self::Parameters(message.as_slice().to_vec()));
        }
        if key == UNLOADED {
            let names = fds.next().ok_or(StoredValueError::Descriptor)?;
            let names = SharedMemory::open(names)?.map_read()?;
            return Ok(Self::Unloaded(serde_json::from_slice(names.as_slice())?));
        }
        if !key.starts_with(MODEL) {
            return Ok(Self::Other);
        }
        let (Some(image), Some(record)) = (fds.next(), fds.next()) else {
            return Err(StoredValueError::Descriptor);
        };
        let record = SharedMemory::open(record)?.map_read()?;
        let record: ModelRecord = serde_json::from_slice(record.as_slice())?;
        let model = LoadedModel::reopen(image, record.info());
        let model = model.map_err(|reason| StoredValueError::Model {
            name: record.name.clone(),
            reason,
        })?;
        Ok(Self::Model(Box::new(StoredModel { model, record })))
    }
}

fn listeners(mut fds: impl Iterator<Item = OwnedFd>) -> Result<Vec<Listeners>, StoredValueError> {
    let mut all = Vec::new();
    // bound: the number of descriptors of one message
    while let Some(http) = fds.next() {
        let grpc = fds.next().ok_or(StoredValueError::Descriptor)?;
        all.push(Listeners {
            http: TcpListener::from(http),
            grpc: TcpListener::from(grpc),
        });
    }
    Ok(all)
}

impl ModelRecord {
    /// Returns the revision number of the model.
    pub fn revision(&self) -> u64 {
        self.revision
    }
}

/// Metadata of the models of the previous front.
#[derive(Clone, Debug, Default)]
pub struct RestoredModels {
    /// Served models by name.
    pub records: BTreeMap<String, ModelRecord>,
    /// Names of the models unloaded by API calls.
    pub unloaded: BTreeSet<String>,
}
