//! The annotation `albacore.dev/place`, which opts in a pod without an `InferenceDeployment` for
//! placement: a pod of a Deployment, StatefulSet, Job or of a KServe predictor.

use albacore_settings::yaml_tree::YamlNode;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::deployment::{EnforcementPolicy, InferenceDeploymentSpec, PlacementMode};
use crate::limits::{PLACE_BYTES_MAX, SLOTS_MAX, THREADS_MAX, VIOLATIONS_MAX, WORKERS_MAX};
use crate::read::SchemaWalk;
use crate::rules::SERVER_CONTAINER;
use crate::violation::quoted;

/// Name of the annotation.
pub const PLACE_ANNOTATION: &str = "albacore.dev/place";

/// The request in the annotation of a pod.
#[derive(Clone, PartialEq, Eq, Default, Debug, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlaceAnnotation {
    /// The container whose processes are placed; `None`: the only container, or the default
    /// container of kubectl.
    pub container: Option<String>,
    /// Worker processes, 1 to 256; `None`: counted in the process tree.
    pub workers: Option<u16>,
    /// Compute threads of each worker, 1 to 256; `None`: `OMP_NUM_THREADS` of the container, or
    /// counted in the process tree.
    pub threads: Option<u16>,
    /// Default: Scatter.
    pub mode: Option<PlacementMode>,
    /// Default: Enforce.
    pub enforcement: Option<EnforcementPolicy>,
}

/// Reason why an annotation is rejected. The message names the annotation, the field, its value and
/// the valid values.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum PlaceAnnotationError {
    /// Longer than any valid annotation.
    #[error(
        "{PLACE_ANNOTATION} has {bytes} bytes; at most {PLACE_BYTES_MAX} are read, so shorten it"
    )]
    TooLong { bytes: usize },
    #[error(
        "{PLACE_ANNOTATION} is {found}, which is not JSON ({problem}); write for example \
         '{{\"workers\": 4, \"threads\": 4}}', or '{{}}' to detect both"
    )]
    NotJson {
        /// Its text, quoted and truncated.
        found: String,
        /// The message of the parser.
        problem: String,
    },
    #[error("{PLACE_ANNOTATION} is {found}; it must be a JSON object, as in '{{\"workers\": 4}}'")]
    NotAnObject {
        /// Its text, quoted and truncated.
        found: String,
    },
    /// Fields that are unknown, of a wrong type or out of range.
    #[error("{PLACE_ANNOTATION}: {}", problems.join("; "))]
    Invalid {
        /// One sentence for each field.
        problems: Vec<String>,
    },
}

impl PlaceAnnotation {
    /// Parses the text of the annotation.
    ///
    /// # Errors
    /// [`PlaceAnnotationError`], with every invalid field.
    pub fn read(text: &str) -> Result<Self, PlaceAnnotationError> {
        let bytes = text.len();
        if bytes > PLACE_BYTES_MAX {
            return Err(PlaceAnnotationError::TooLong { bytes });
        }
        let found = quoted(text);
        let not_json = |problem: String| PlaceAnnotationError::NotJson {
            found: found.clone(),
            problem,
        };
        let value: Value = serde_json::from_str(text).map_err(|e| not_json(e.to_string()))?;
        if !value.is_object() {
            return Err(PlaceAnnotationError::NotAnObject { found });
        }
        // JSON is YAML: the parser of files rejects duplicate names.
        let tree: YamlNode = serde_saphyr::from_str(text).map_err(|e| {
            let problem = e.without_snippet().to_string();
            not_json(problem.lines().next().unwrap_or_default().to_owned())
        })?;
        let schema = schema();
        let mut walk = SchemaWalk::new(&schema);
        walk.check(&schema, &tree, "");
        let mut problems: Vec<String> = walk.violations.iter().map(ToString::to_string).collect();
        problems.truncate(VIOLATIONS_MAX);
        if !problems.is_empty() {
            return Err(PlaceAnnotationError::Invalid { problems });
        }
        let requested: Self =
            serde_json::from_value(value).map_err(|error| PlaceAnnotationError::Invalid {
                problems: vec![error.to_string()],
            })?;
        requested.check_slots()?;
        Ok(requested)
    }

    fn check_slots(&self) -> Result<(), PlaceAnnotationError> {
        let (Some(workers), Some(threads)) = (self.workers, self.threads) else {
            return Ok(());
        };
        if u32::from(workers) * u32::from(threads) <= SLOTS_MAX {
            return Ok(());
        }
        Err(PlaceAnnotationError::Invalid {
            problems: vec![format!(
                "workers x threads is {workers} x {threads}; one pod has at most {SLOTS_MAX} threads"
            )],
        })
    }

    /// The first field that contradicts the deployment to which the pod belongs, as a sentence;
    /// `None` if they agree.
    pub fn contradicts(&self, spec: &InferenceDeploymentSpec) -> Option<String> {
        let differs = |field: &str, own: String, deployments: String| {
            (own != deployments).then(|| {
                format!(
                    "{PLACE_ANNOTATION}: {field} is {own}, but the InferenceDeployment of this pod \
                     has {deployments}; remove the annotation"
                )
            })
        };
        let container = self.container.as_deref();
        let placement = &spec.placement;
        let pairs = [
            container.map(|own| ("container", own.to_owned(), SERVER_CONTAINER.to_owned())),
            self.workers
                .map(|own| ("workers", own.to_string(), spec.workers.to_string())),
            self.threads
                .map(|own| ("threads", own.to_string(), spec.threads.to_string())),
            self.mode
                .map(|own| ("mode", format!("{own:?}"), format!("{:?}", spec.mode))),
            self.enforcement.map(|own| {
                let deployments = format!("{:?}", placement.enforcement);
                ("enforcement", format!("{own:?}"), deployments)
            }),
        ];
        let mut pairs = pairs.into_iter().flatten();
        pairs.find_map(|(field, own, deployments)| differs(field, own, deployments))
    }
}

fn schema() -> Value {
    json!({"type": "object", "properties": {
        "container": {"type": "string", "maxLength": 63},
        "workers": {"type": "integer", "minimum": 1, "maximum": WORKERS_MAX},
        "threads": {"type": "integer", "minimum": 1, "maximum": THREADS_MAX},
        "mode": {"type": "string", "enum": ["Scatter", "Compact"]},
        "enforcement": {"type": "string", "enum": ["Enforce", "Observe"]},
    }})
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn refusal(text: &str) -> String {
        PlaceAnnotation::read(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_left_out_is_none() {
        let requested = PlaceAnnotation::read("{}").unwrap();
        assert_eq!(requested, PlaceAnnotation::default());
        let text = r#"{"workers": 4, "threads": 2, "mode": "Compact", "container": "app"}"#;
        let requested = PlaceAnnotation::read(text).unwrap();
        assert_eq!((requested.workers, requested.threads), (Some(4), Some(2)));
        assert_eq!(requested.mode, Some(PlacementMode::Compact));
        assert_eq!(requested.container.as_deref(), Some("app"));
        assert_eq!(requested.enforcement, None);
    }

    #[test]
    fn every_refusal_names_the_field_the_value_and_the_way_out() {
        for (text, parts) in [
            (
                "",
                &["albacore.dev/place is \"\"", "not JSON", "'{\"workers\": 4"][..],
            ),
            ("workers: 4", &["not JSON", "\"workers: 4\""]),
            ("[4, 4]", &["must be a JSON object"]),
            ("4", &["must be a JSON object"]),
            (
                r#"{"worker": 4}"#,
                &["worker is not a field", "did you mean \"workers\""],
            ),
            (r#"{"workers": 0}"#, &["workers is 0", "1 to 256"]),
            (r#"{"workers": 70000}"#, &["workers is 70000", "1 to 256"]),
            (r#"{"workers": "4"}"#, &["workers is", "4"]),
            (r#"{"threads": 1.5}"#, &["threads is", "1.5"]),
            (
                r#"{"mode": "scatter"}"#,
                &["mode is \"scatter\"", "Scatter"],
            ),
            (
                r#"{"enforcement": "None"}"#,
                &["enforcement is \"None\"", "Observe"],
            ),
            (r#"{"container": 7}"#, &["container is 7"]),
            (
                r#"{"workers": 256, "threads": 256}"#,
                &["256 x 256", "2048"],
            ),
            (r#"{"workers": 2, "workers": 3}"#, &["workers"]),
        ] {
            let says = refusal(text);
            for part in parts {
                assert!(says.contains(part), "{text}: {says}");
            }
        }
        assert!(refusal(&"x".repeat(PLACE_BYTES_MAX + 1)).contains("at most"));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused_in_one_short_line(text in ".{0,200}") {
            if let Err(error) = PlaceAnnotation::read(&text) {
                let says = error.to_string();
                prop_assert!(says.starts_with(PLACE_ANNOTATION));
                prop_assert!(!says.contains('\n'));
            }
        }
    }
}
