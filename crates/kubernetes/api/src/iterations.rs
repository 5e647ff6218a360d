//! The boosting iterations of a model's file that are used for prediction: `All`, `Best` or
//! `{begin, end}`.
//!
//! A structural schema cannot express a union of a string and an object, so the field has no type
//! there and two alternatives that do not require one: `not: {maxProperties: 1}` matches objects
//! only. It cannot express that `begin` is less than `end` either; that is a rule.

use std::fmt;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Maximum iterations of a model; `albacore-formats` bounds its trees to the same number.
const ITERATIONS_MAX: u32 = 1 << 22;

/// The iterations that are used for prediction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "iterations must be All, Best or begin and end, as in {begin: 0, end: 100}"
)]
pub enum IterationsSpec {
    Named(NamedIterations),
    Range(IterationRangeSpec),
}

/// Named sets of iterations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NamedIterations {
    /// All iterations of the file.
    All,
    /// Up to the best iteration, which early stopping recorded in the file.
    Best,
}

/// The iterations from `begin` up to `end`, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IterationRangeSpec {
    /// The first iteration, counted from 0.
    pub begin: u32,
    /// One past the last iteration.
    pub end: u32,
}

impl fmt::Display for IterationRangeSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{begin: {}, end: {}}}", self.begin, self.end)
    }
}

/// The schema of the field.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "begin": {
                "description": "First iteration to use, counted from 0.",
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "maximum": ITERATIONS_MAX,
            },
            "end": {
                "description": "End of the iterations, exclusive; above begin.",
                "type": "integer",
                "format": "int32",
                "minimum": 1,
                "maximum": ITERATIONS_MAX,
            },
        },
    })
}

/// Added to the schema after kube has rewritten it, because kube would move the names out of their
/// alternative.
pub(crate) fn alternatives() -> Value {
    json!([
        { "enum": ["All", "Best"] },
        {
            "required": ["begin", "end"],
            "maxProperties": 2,
            "not": { "maxProperties": 1 },
        },
    ])
}
