//! Reads an `InferenceDeployment` from YAML text, and reports every violation with its line, its
//! field and the remedy.
//!
//! The text is parsed to a tree with lines, validated against the schema of the custom resource,
//! deserialized, and validated by the rules. Nothing is skipped: an unknown field is rejected at
//! any depth, also in the pod template.

mod nearest;
mod walk;

#[cfg(test)]
mod tests;

use std::fmt;
use std::path::Path;
use std::sync::LazyLock;

use albacore_settings::yaml_tree::{YamlNode, YamlValue};
use kube::Resource;
use serde_json::{Value, json};

pub(crate) use self::walk::SchemaWalk;
use crate::deployment::InferenceDeployment;
use crate::limits::{FILE_BYTES_MAX, FILE_DEPTH_MAX, VIOLATIONS_MAX};
use crate::local_deployment::{LocalDeployment, for_one_machine};
use crate::rules::validate;
use crate::schema::openapi_schema;
use crate::versions::API_VERSIONS;
use crate::violation::{Violation, quoted};

/// Reason why a file is not a valid `InferenceDeployment`. Each message contains the file name;
/// each of several violations is printed on its own line.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ReadError {
    /// Exceeds the size limit of an object.
    #[error("{file}: has {bytes} bytes; an InferenceDeployment has at most {FILE_BYTES_MAX}")]
    TooLarge { file: String, bytes: usize },
    /// Contains only white space and comments.
    #[error("{file}: is empty; it must hold an InferenceDeployment (albacore.dev/v1beta1)")]
    Empty { file: String },
    /// More than one document.
    #[error(
        "{file}: holds several YAML documents; leave one InferenceDeployment in it and put the \
         others into files of their own"
    )]
    SeveralDocuments { file: String },
    #[error("{file}{}: is not valid YAML: {problem}", LineSuffix(*.line))]
    NotYaml {
        file: String,
        /// The line, from 1, where known.
        line: Option<u64>,
        /// The message of the parser.
        problem: String,
    },
    /// Another kind of object.
    #[error(
        "{file}{}: {field} is {found}; expected kind InferenceDeployment of apiVersion \
         albacore.dev/v1beta1", LineSuffix(Some(*.line))
    )]
    OtherKind {
        file: String,
        /// The line, from 1.
        line: u64,
        /// `apiVersion` or `kind`.
        field: &'static str,
        /// The value found, quoted, or "missing".
        found: String,
    },
    /// Fields that are unknown, missing, of a wrong type, out of range or in conflict.
    #[error("{}", listed(file, violations))]
    Invalid {
        file: String,
        violations: Vec<Violation>,
    },
}

struct LineSuffix(Option<u64>);

impl fmt::Display for LineSuffix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ":{line}"))
    }
}

fn listed(file: &str, violations: &[Violation]) -> String {
    let mut lines: Vec<String> = violations
        .iter()
        .take(VIOLATIONS_MAX)
        .map(|violation| format!("{file}{}: {violation}", LineSuffix(violation.line)))
        .collect();
    if violations.len() > VIOLATIONS_MAX {
        lines.push(format!(
            "{file}: and {} more",
            violations.len() - VIOLATIONS_MAX
        ));
    }
    lines.join("\n")
}

/// Reads one `InferenceDeployment` from `text`; `file` is its name in messages. The status is
/// ignored, because only a cluster writes it.
///
/// # Errors
/// [`ReadError`], with every violation in the order of the file.
pub fn read_deployment(text: &str, file: &str) -> Result<InferenceDeployment, ReadError> {
    read_document(text, file).map(|(deployment, _)| deployment)
}

/// Reads one `InferenceDeployment` and converts it for one machine. Relative paths in it are
/// resolved against `folder`, that of the file.
///
/// # Errors
/// [`ReadError`]; a field that cannot be honored on one machine is a violation.
pub fn read_for_one_machine(
    text: &str,
    file: &str,
    folder: &Path,
) -> Result<LocalDeployment, ReadError> {
    let (deployment, document) = read_document(text, file)?;
    for_one_machine(&deployment, folder)
        .map_err(|violations| invalid(file, with_lines(violations, &document)))
}

fn read_document(text: &str, file: &str) -> Result<(InferenceDeployment, YamlNode), ReadError> {
    let document = parse(text, file)?;
    check_kind(&document, file)?;
    let mut walk = SchemaWalk::new(&FILE_SCHEMA);
    walk.check(&FILE_SCHEMA, &document, "");
    if !walk.violations.is_empty() {
        return Err(invalid(file, walk.violations));
    }
    let mut value = document.to_json();
    if let Some(fields) = value.as_object_mut() {
        fields.remove("status");
    }
    let deployment: InferenceDeployment = serde_json::from_value(value).map_err(|error| {
        invalid(
            file,
            vec![Violation::new("spec", format!("cannot be read: {error}"))],
        )
    })?;
    let violations = validate(&deployment);
    if !violations.is_empty() {
        return Err(invalid(file, with_lines(violations, &document)));
    }
    Ok((deployment, document))
}

fn invalid(file: &str, violations: Vec<Violation>) -> ReadError {
    ReadError::Invalid {
        file: file.to_owned(),
        violations,
    }
}

/// Adds the lines of the document to violations of its typed value, and sorts them by line.
fn with_lines(mut violations: Vec<Violation>, document: &YamlNode) -> Vec<Violation> {
    for violation in &mut violations {
        violation.line = Some(document.line_of(&violation.field));
    }
    violations.sort_by_key(|v| v.line);
    violations
}

fn parse(text: &str, file: &str) -> Result<YamlNode, ReadError> {
    let file = file.to_owned();
    if text.len() > FILE_BYTES_MAX {
        return Err(ReadError::TooLarge {
            file,
            bytes: text.len(),
        });
    }
    let budget = serde_saphyr::budget! { max_depth: FILE_DEPTH_MAX };
    let options = serde_saphyr::options! { budget: budget, with_snippet: false };
    match serde_saphyr::from_str_with_options::<YamlNode>(text, options) {
        Ok(YamlNode {
            kind: YamlValue::Null,
            ..
        }) => Err(ReadError::Empty { file }),
        Ok(node) => Ok(node),
        Err(error) => match error.without_snippet() {
            serde_saphyr::Error::MultipleDocuments { .. } => {
                Err(ReadError::SeveralDocuments { file })
            }
            serde_saphyr::Error::Eof { .. } if text.trim().is_empty() => {
                Err(ReadError::Empty { file })
            }
            error => Err(ReadError::NotYaml {
                file,
                line: error.location().map(|l| l.line()).filter(|&line| line > 0),
                problem: error
                    .to_string()
                    .lines()
                    .next()
                    .unwrap_or_default()
                    .to_owned(),
            }),
        },
    }
}

fn check_kind(document: &YamlNode, file: &str) -> Result<(), ReadError> {
    let kind = InferenceDeployment::kind(&());
    for (field, taken) in [("apiVersion", &API_VERSIONS[..]), ("kind", &[&*kind])] {
        let found = document.get(field).and_then(YamlNode::text);
        if !found.is_some_and(|found| taken.contains(&found)) {
            return Err(ReadError::OtherKind {
                file: file.to_owned(),
                line: document.line_of(field),
                field,
                found: found.map_or_else(|| "missing".to_owned(), quoted),
            });
        }
    }
    Ok(())
}

/// The schema of the custom resource with the metadata, which the API server itself adds. The
/// status accepts any value, because only a cluster writes it. Computed once, because that takes
/// milliseconds.
static FILE_SCHEMA: LazyLock<Value> = LazyLock::new(|| {
    let mut schema = openapi_schema();
    let properties = &mut schema["properties"];
    let template = &properties["spec"]["properties"]["template"];
    properties["metadata"] = template["properties"]["metadata"].clone();
    properties["apiVersion"] = json!({ "type": "string" });
    properties["kind"] = json!({ "type": "string" });
    properties["status"] =
        json!({ "type": "object", "x-kubernetes-preserve-unknown-fields": true });
    schema["required"] = json!(["metadata", "spec"]);
    schema
});
