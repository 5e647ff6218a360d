//! The health check for Argo CD, as a ConfigMap for Argo CD.
//!
//! `health.lua` has the path that it would have in Argo CD's own repository, with fixtures in the
//! format of that repository.

use std::fmt::Write as _;

pub(super) const HEALTH: &str =
    "manifests/examples/argocd/resource_customizations/albacore.dev/InferenceDeployment/health.lua";

/// The ConfigMap generated from it.
pub(super) const CONFIG: &str = "manifests/examples/argocd/argocd-cm.yaml";

/// A patch for Argo CD's own ConfigMap, for `kubectl patch`.
pub(super) fn config(health: &str) -> String {
    let mut text = String::from(
        "# Written by `make manifests` from health.lua beside it; a test compares. DO NOT EDIT.\n\
         # kubectl -n argocd patch configmap argocd-cm --patch-file argocd-cm.yaml\n\
         apiVersion: v1\n\
         kind: ConfigMap\n\
         metadata:\n  name: argocd-cm\n  namespace: argocd\n\
         data:\n  resource.customizations.health.albacore.dev_InferenceDeployment: |\n",
    );
    for line in health.lines() {
        let indent = if line.is_empty() { "" } else { "    " };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{indent}{line}");
    }
    text
}
