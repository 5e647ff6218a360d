//! The number of threads of a worker that compute one batch of a model: `auto` or a number.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::limits::THREADS_MAX;

/// The schema pattern for a string; numbers have their own bounds.
pub(crate) const PATTERN: &str = "^auto$";

/// Maximum threads for one batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(untagged, expecting = "threads must be auto or a whole number from 1")]
pub enum ModelThreads {
    Named(NamedThreads),
    Most(u16),
}

/// Named number of threads.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NamedThreads {
    /// All threads of a worker that are not used by busy workers.
    #[serde(rename = "auto")]
    Auto,
}

impl ModelThreads {
    /// The number, if set.
    pub fn most(self) -> Option<u16> {
        match self {
            Self::Named(NamedThreads::Auto) => None,
            Self::Most(threads) => Some(threads),
        }
    }
}

/// The schema of the field.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": PATTERN,
        "minimum": 1,
        "maximum": THREADS_MAX,
    })
}
