//! `settings.yaml` and the feed, the two forms in which a server's settings travel.
//!
//! `settings.yaml`: what a server serves and how it batches, in the one file that the controller
//! writes, a ConfigMap carries and the server reads and watches.
//!
//! [`feed`]: what the agent of a node tells `albacore-params`, line by line, and what that reports
//! back.
//!
//! Pure: text in, values out. A [`Settings`] that was read or checked is right in every field; what
//! is wrong is an [`Invalid`] that names the field, the value and the way out.
//!
//! ```yaml
//! models:
//! - name: "fraud"
//!   path: "/models/pvc/models/fraud.ubj"   # or url: "https://..."
//!   sha256: "9f86d0..."                    # optional, 64 hex digits
//!   iterations: best                      # optional: all, best or {begin: 0, end: 100}
//!   slo: {latency: "25ms", percentile: 99}
//!   outputs: ["output", "margin"]          # advertised in metadata; without: the value alone
//! batching: {policy: timeout, max_rows: 1024, max_delay: "2ms"}
//! queue: {max_rows: 65536}
//! ```
#![forbid(unsafe_code)]

mod check;
mod digest;
pub mod feed;
mod fields;
mod invalid;
mod limits;

mod read;
mod settings;
mod timespan;
mod yaml;

pub use digest::Digest;
pub use invalid::Invalid;
pub use limits::{
    BATCH_ROWS_MAX, FEED_LINE_BYTES_MAX, FEED_METRICS_BYTES_MAX, FEED_PODS_MAX, FILE_BYTES_MAX,
    MODEL_NAME_CHARS_MAX, MODELS_MAX, QUEUE_ROWS_MAX, REPORT_BUCKETS_MAX, REPORT_LINE_BYTES_MAX,
    SOURCE_CHARS_MAX,
};
pub use settings::{Batching, Iterations, Model, Output, Policy, Queue, Settings, Slo, Source};
