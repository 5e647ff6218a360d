//! Settings of a server, in the two formats in which they are transferred.
//!
//! `settings.yaml`: the models of a server and its batching, in one file that the controller writes
//! into a ConfigMap and the server watches.
//!
//! [`agent_stream`]: the lines that the agent of a node sends to `albacore-params`, and the latency
//! reports sent back.
//!
//! [`yaml_tree`]: a YAML tree with the line number of each value, for readers of other files.
//!
//! Pure: parses text into values. A [`Settings`] that was parsed or checked is valid in every
//! field; a [`ValidationError`] names the field, the value and the expected format.
//!
//! ```yaml
//! models:
//! - name: "fraud"
//!   path: "/models/pvc/models/fraud.ubj"   # or url: "https://..."
//!   sha256: "9f86d0..."                    # optional, 64 hex digits
//!   iterations: best                      # optional: all, best or {begin: 0, end: 100}
//!   slo: {latency: "25ms", percentile: 99}
//!   outputs: ["output", "margin"]          # advertised in metadata; default: the value alone
//!   missing: nan                         # optional: refuse or nan, for columns not in a request
//!   classes: ["legit", "fraud"]           # optional: class names, by class number
//!   threads: 2                            # maximum threads per batch; default: all of a worker
//!   weight: 200                           # share of the server under overload; default: 100
//!   batching: {policy: deferred, max_rows: 64, window: "5ms"}   # default: that of the file
//! batching: {policy: timeout, max_rows: 1024, max_delay: "2ms"}
//! queue: {max_rows: 65536}
//! ```
//!
//! The batching of a model is complete: an omitted field has its default, not the value of the
//! file's batching.
#![forbid(unsafe_code)]

pub mod agent_stream;
mod digest;
mod limits;
mod object_reader;
mod oci;
mod validate;
mod validation_error;
pub mod yaml_tree;

mod parse_yaml;
mod print_yaml;
mod settings;
mod timespan;

pub use albacore_batching::{BatchingParams, ModelBatching, Policy, Prefer, Slo};
pub use digest::Digest;
pub use limits::{
    BATCH_ROWS_MAX, CATEGORIES_MAX, CATEGORY_CHARS_MAX, CATEGORY_COLUMNS_MAX, CLASS_CHARS_MAX,
    CLASSES_MAX, FILE_BYTES_MAX, MODEL_NAME_CHARS_MAX, MODELS_MAX, QUEUE_ROWS_MAX,
    REPORT_BUCKETS_MAX, REPORT_LINE_BYTES_MAX, SNAPSHOT_LINE_BYTES_MAX, SNAPSHOT_METRICS_BYTES_MAX,
    SNAPSHOT_PODS_MAX, SOURCE_CHARS_MAX, WEIGHT_DEFAULT, WEIGHT_MAX,
};
pub use oci::OciReference;
pub use settings::{
    IterationsSetting, MissingColumnPolicy, ModelSettings, Output, SchemaNames, Settings, Source,
};
pub use validate::is_bucket_and_key;
pub use validation_error::ValidationError;
