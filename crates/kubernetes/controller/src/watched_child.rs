//! The cached form of a child: its serialized text. JSON trees and maps of labels take several
//! times as much memory, and there may be 40,000 children.

use std::borrow::Cow;

use albacore_cluster::{ApiResource, DynamicObject, ObjectKey, Resource};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::watches::{identity, owner};

/// A child of any kind.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "DynamicObject")]
pub(crate) struct WatchedChild {
    /// Contains only name, namespace, uid and resource version.
    metadata: ObjectMeta,
    /// The deployment in its label.
    pub(crate) owner: Option<ObjectKey>,
    /// Everything but its kind and managed fields, as JSON.
    text: Box<str>,
}

impl From<DynamicObject> for WatchedChild {
    fn from(mut object: DynamicObject) -> Self {
        object.metadata.managed_fields = None;
        let mut body = object.data;
        // Only the status of a Deployment is read; among the children it is the kind with a pod
        // template.
        let is_deployment = body.pointer("/spec/template").is_some();
        if let Some(fields) = body.as_object_mut().filter(|_| !is_deployment) {
            fields.shift_remove("status");
        }
        let object = DynamicObject {
            types: None,
            metadata: object.metadata,
            data: body,
        };
        let text = serde_json::to_string(&object).unwrap_or_default();
        let owner = owner(&object);
        Self {
            metadata: identity(object.metadata),
            owner,
            text: text.into(),
        }
    }
}

impl WatchedChild {
    /// The object without its kind.
    pub(crate) fn body(&self) -> Value {
        // The text was serialized here, so it always parses.
        serde_json::from_str(&self.text).unwrap_or_default()
    }
}

impl Resource for WatchedChild {
    type DynamicType = ApiResource;
    type Scope = NamespaceResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::kind(kind)
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::group(kind)
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::version(kind)
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        DynamicObject::plural(kind)
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::children::ChildKind;
    use crate::observe::{child_from_cache, child_from_response};
    use serde_json::json;

    fn object(spec: &Value) -> Value {
        json!({
            "metadata": {
                "name": "a", "namespace": "n", "uid": "u", "resourceVersion": "7",
                "labels": {"albacore.dev/deployment": "a", "theirs": "1"},
                "annotations": {"albacore.dev/applied": "digest"},
                "ownerReferences": [{"apiVersion": "albacore.dev/v1alpha1", "controller": true,
                    "kind": "InferenceDeployment", "name": "a", "uid": "o"}],
                "managedFields": [{"manager": "kubectl"}],
            },
            "spec": spec,
            "status": {"replicas": 2},
        })
    }

    fn child(spec: &Value) -> WatchedChild {
        serde_json::from_value(object(spec)).unwrap()
    }

    #[test]
    fn a_cached_child_equals_the_object() {
        for (kind, spec) in [
            (ChildKind::Deployment, json!({"template": {"spec": {}}})),
            (ChildKind::Service, json!({"ports": [{"port": 1}]})),
        ] {
            let child = child(&spec);
            assert_eq!(child.owner, Some(ObjectKey::new("n", "a")));
            let mut whole = object(&spec);
            whole["metadata"]
                .as_object_mut()
                .unwrap()
                .shift_remove("managedFields");
            if kind != ChildKind::Deployment {
                whole.as_object_mut().unwrap().shift_remove("status");
            }
            let whole: DynamicObject = serde_json::from_value(whole).unwrap();
            let (kept, whole) = (
                child_from_cache(kind, &child),
                child_from_response(kind, &whole),
            );
            assert_eq!(kept, whole);
            assert_eq!(kept.applied_digest.as_deref(), Some("digest"));
            assert_eq!(
                (kept.uid.as_str(), kept.resource_version.as_str()),
                ("u", "7")
            );
            assert_eq!(kept.controller.map(|owner| owner.uid), Some("o".to_owned()));
        }
    }
}
