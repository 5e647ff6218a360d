//! An object from the API server that may not match its type, so that one malformed object of a
//! list does not hide the others.
//!
//! kube's own `DeserializeGuard` reports the error but not the field.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::core::{ApiResource, DynamicResourceScope, Resource};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// An object of kind `K`, or the error of its deserialization.
#[derive(Clone, Debug)]
pub(crate) enum ParsedObject<K> {
    Valid(K),
    Malformed {
        metadata: Box<ObjectMeta>,
        /// The field and its error.
        error: String,
    },
}

impl<'de, K: DeserializeOwned> Deserialize<'de> for ParsedObject<K> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Value::deserialize(deserializer)?;
        Ok(match serde_path_to_error::deserialize(&value) {
            Ok(object) => Self::Valid(object),
            Err(error) => Self::Malformed {
                metadata: Box::new(metadata_of(&value)),
                error: error.to_string(),
            },
        })
    }
}

/// The metadata of any object, at least name and namespace.
fn metadata_of(object: &Value) -> ObjectMeta {
    let metadata = &object["metadata"];
    ObjectMeta::deserialize(metadata).unwrap_or_else(|_| {
        let text = |field: &str| metadata[field].as_str().map(str::to_owned);
        ObjectMeta {
            name: text("name"),
            namespace: text("namespace"),
            uid: text("uid"),
            resource_version: text("resourceVersion"),
            ..ObjectMeta::default()
        }
    })
}

impl<K: Resource> Resource for ParsedObject<K> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.group)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.version)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        Cow::Borrowed(&kind.plural)
    }

    fn meta(&self) -> &ObjectMeta {
        match self {
            Self::Valid(object) => object.meta(),
            Self::Malformed { metadata, .. } => metadata,
        }
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        match self {
            Self::Valid(object) => object.meta_mut(),
            Self::Malformed { metadata, .. } => metadata,
        }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;
    use serde_json::json;

    use super::*;

    fn read(object: Value) -> ParsedObject<Pod> {
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn an_error_names_the_field() {
        let pod = read(json!({
            "metadata": {"name": "x", "resourceVersion": "7"},
            "spec": {"containers": [{"name": "a"}, {"name": "b", "ports": [{"containerPort": "http"}]}]},
        }));
        assert_eq!(pod.meta().resource_version.as_deref(), Some("7"));
        let ParsedObject::Malformed { error, .. } = pod else {
            panic!("a port is a number")
        };
        assert!(
            error.starts_with("spec.containers[1].ports[0].containerPort: "),
            "{error}"
        );
    }

    #[test]
    fn names_are_read_even_from_malformed_metadata() {
        let pod = read(json!({"metadata": {"name": "x", "labels": 3}}));
        assert_eq!(pod.meta().name.as_deref(), Some("x"));
        for odd in [json!(3), json!(null), json!([]), json!({"metadata": "x"})] {
            assert!(matches!(read(odd), ParsedObject::Malformed { .. }));
        }
    }
}
