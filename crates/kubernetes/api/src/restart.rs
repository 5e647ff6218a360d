//! Determines which edits of a deployment restart its pods: those that change the pod template. All
//! others are applied to running pods.

use std::collections::BTreeSet;

use crate::deployment::InferenceDeployment;
use crate::server_image::SERVER_IMAGE_ANNOTATION;
use crate::uri::ModelPlace;

/// The changed fields that are part of the pod template; empty if no pod is restarted.
pub fn restarting_fields(
    before: &InferenceDeployment,
    after: &InferenceDeployment,
) -> Vec<&'static str> {
    let (old, new) = (&before.spec, &after.spec);
    let front = |of: &InferenceDeployment| {
        let is_built_in = of.spec.is_built_in();
        is_built_in.then(|| of.spec.front_threads())
    };
    let load_reports = |of: &InferenceDeployment| {
        let is_built_in = of.spec.is_built_in();
        is_built_in.then(|| of.spec.load_reports())
    };
    let tells_envoy = |of: &InferenceDeployment| of.spec.envoy_health_header();
    let image = |of: &InferenceDeployment| {
        let annotations = of.metadata.annotations.as_ref()?;
        annotations.get(SERVER_IMAGE_ANNOTATION).cloned()
    };
    let fields = [
        ("spec.workers", old.workers != new.workers),
        ("spec.threads", old.threads != new.threads),
        ("spec.front.threads", front(before) != front(after)),
        (
            "spec.front.loadReports",
            load_reports(before) != load_reports(after),
        ),
        (
            "spec.front.envoyHealthHeader",
            tells_envoy(before) != tells_envoy(after),
        ),
        ("spec.resources", old.resources != new.resources),
        ("spec.template", old.template != new.template),
        ("spec.models[].uri", volumes(before) != volumes(after)),
        (
            "metadata.annotations[albacore.dev/server-image]",
            old.is_built_in() && image(before) != image(after),
        ),
    ];
    let changed = fields.into_iter().filter(|(_, differs)| *differs);
    changed.map(|(field, _)| field).collect()
}

/// The volumes that are mounted into pods: claims and ConfigMaps.
fn volumes(deployment: &InferenceDeployment) -> BTreeSet<(&'static str, &str)> {
    let models = deployment.spec.models.iter();
    let places = models.filter_map(|model| match &model.uri.place {
        ModelPlace::Pvc { claim, .. } => Some(("claim", claim.as_str())),
        ModelPlace::ConfigMap { name, .. } => Some(("ConfigMap", name.as_str())),
        ModelPlace::File { .. } | ModelPlace::Url { .. } => None,
    });
    places.collect()
}
