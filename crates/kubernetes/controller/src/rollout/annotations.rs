//! Annotations of the pods' Deployment that store the state of its roll-out, so that it survives a
//! restart of the controller.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::children::ChildObject;
use crate::digest::digest_of;
use crate::names::{POD_FIELDS_ANNOTATION, POD_TEMPLATE_ANNOTATION, ROLLED_ANNOTATION};
use crate::observed::LiveObject;
use crate::settings::model_volumes;
use crate::validate::ValidDeployment;

#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct RolloutAnnotations {
    /// Digest of the fields of the `InferenceDeployment` from which the template was built.
    pub(crate) fields: Option<String>,
    /// Digest of the template.
    pub(crate) template: Option<String>,
    /// When a changed template was last applied.
    pub(crate) rolled_at: Option<Timestamp>,
}

impl RolloutAnnotations {
    pub(crate) fn of_live(live: &LiveObject) -> Self {
        let annotations = &live.body["metadata"]["annotations"];
        let text = |name: &str| annotations[name].as_str().map(str::to_owned);
        Self {
            fields: text(POD_FIELDS_ANNOTATION),
            template: text(POD_TEMPLATE_ANNOTATION),
            rolled_at: text(ROLLED_ANNOTATION).and_then(|time| time.parse().ok()),
        }
    }

    /// The annotations of the desired Deployment `child`, without a time.
    pub(crate) fn of_desired(valid: &ValidDeployment, child: &ChildObject) -> Self {
        Self {
            fields: Some(digest_of(&pod_fields(valid))),
            template: Some(digest_of(&child.body["spec"]["template"])),
            rolled_at: None,
        }
    }

    /// Sets the annotations on `child`.
    pub(crate) fn write(&self, child: &mut ChildObject) {
        let rolled_at = self.rolled_at.map(|time| time.to_string());
        for (name, value) in [
            (POD_FIELDS_ANNOTATION, &self.fields),
            (POD_TEMPLATE_ANNOTATION, &self.template),
            (ROLLED_ANNOTATION, &rolled_at),
        ] {
            if let Some(value) = value {
                child.annotate(name, value);
            }
        }
    }
}

/// The fields of an `InferenceDeployment` from which its pod template is built.
///
/// Every later version of this program must produce the same value for the same fields; otherwise
/// an upgrade looks like an edit of every deployment. Add a new field only if it is set.
pub(crate) fn pod_fields(valid: &ValidDeployment) -> Value {
    let spec = &valid.spec;
    let mut fields = json!({
        "workers": spec.workers,
        "threads": spec.threads,
        "volumes": model_volumes(&spec.models).into_values().collect::<Vec<_>>(),
    });
    let mut add = |name: &str, value: Option<Value>| {
        if let Some(value) = value {
            fields[name] = value;
        }
    };
    add("template", spec.template.as_ref().map(|t| json!(t)));
    add("resources", spec.resources.as_ref().map(|r| json!(r)));
    add("frontThreads", spec.front_threads().map(|n| json!(n)));
    add("loadReports", spec.load_reports().map(|mode| json!(mode)));
    let tells_envoy = spec.envoy_health_header().then_some(json!(true));
    add("envoyHealthHeader", tells_envoy);
    add("serverImage", valid.server_image.as_ref().map(|i| json!(i)));
    fields
}
