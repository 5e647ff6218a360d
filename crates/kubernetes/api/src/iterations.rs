//! Which boosting iterations of a model's file predict: `All`, `Best` or `{begin, end}`.
//!
//! A structural schema has no union of a text and an object, so the field has no type there and two
//! alternatives that need none: `not: {maxProperties: 1}` holds for objects alone. That `begin` is
//! below `end` cannot be said so; it is a rule.

use std::fmt;

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most iterations of a model, as `albacore-formats` bounds its trees.
const ITERATIONS_MAX: u32 = 1 << 22;

/// The iterations that predict.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(
    untagged,
    expecting = "iterations must be All, Best or begin and end, as in {begin: 0, end: 100}"
)]
pub enum Iterations {
    Named(NamedIterations),
    Range(IterationRange),
}

/// Iterations that have a name.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum NamedIterations {
    /// All of the file.
    All,
    /// Up to the best one, which early stopping noted in the file.
    Best,
}

/// The iterations from `begin` up to `end`, exclusive.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct IterationRange {
    /// The first one, counted from 0.
    pub begin: u32,
    /// One beyond the last.
    pub end: u32,
}

impl fmt::Display for IterationRange {
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

/// What is added to the schema once kube has rewritten it: kube would move the names out of their
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
