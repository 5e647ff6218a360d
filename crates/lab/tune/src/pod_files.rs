//! Converts a deployment to the view of one of its pods: `albacore run` in a pod finds the models
//! of volumes at the paths of the pod.

use std::path::Path;

use albacore_api::{InferenceDeployment, ModelPlace, for_one_machine};

use crate::error::TuneError;

/// Replaces the models' locations by those in the pod.
///
/// # Errors
/// A relative file in a YAML file; variables that only a cluster can resolve.
pub(crate) fn convert(object: &mut InferenceDeployment, named: &str) -> Result<(), TuneError> {
    for (index, model) in object.spec.models.iter_mut().enumerate() {
        model.uri.place = model.uri.place.in_pod();
        if let ModelPlace::File { path } = &model.uri.place
            && !path.starts_with('/')
        {
            return Err(TuneError::Usage(format!(
                "{named}: spec.models[{index}].uri: {path} is relative to a YAML file, which a pod \
                 does not have: tune that file with `albacore tune -f FILE`"
            )));
        }
    }
    for_one_machine(object, Path::new("/")).map_err(|violations| {
        let what: Vec<String> = violations.iter().map(ToString::to_string).collect();
        TuneError::Usage(format!("{named}: {}", what.join("; ")))
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(more: &str) -> InferenceDeployment {
        let text = format!(
            "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\nmetadata: {{name: a}}\n\
             spec:\n  workers: 1\n  threads: 1\n{more}"
        );
        albacore_api::read_deployment(&text, "a").unwrap()
    }

    #[test]
    fn models_of_volumes_are_files_of_the_pod() {
        let mut own = object("  models: [{name: m, uri: 'configmap://maps/m.ubj'}]\n");
        convert(&mut own, "a").unwrap();
        let uri = own.spec.models[0].uri.to_string();
        assert_eq!(uri, "file:///models/configmap/maps/m.ubj");
    }

    #[test]
    fn settings_that_only_a_serving_pod_has_are_rejected() {
        let mut own = object("  models: [{name: m, uri: 'file://./m.ubj'}]\n");
        let refused = convert(&mut own, "a").unwrap_err().to_string();
        assert!(refused.contains("spec.models[0].uri"), "{refused}");
        let secret = "  models: [{name: m, uri: 'pvc://c/m.ubj'}]\n  template: {spec: {containers: \
                      [{name: server, env: [{name: X, valueFrom: {secretKeyRef: {name: s, key: k}}}]}]}}\n";
        let refused = convert(&mut object(secret), "a").unwrap_err().to_string();
        assert!(refused.contains("valueFrom"), "{refused}");
    }
}
