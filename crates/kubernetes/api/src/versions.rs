//! The versions in which the API server serves an `InferenceDeployment`.
//!
//! Both have the same fields, so the conversion strategy is None: the API server only changes the
//! `apiVersion` of an object, and no field can be lost. A new field has to be added to both.
//!
//! Albacore itself reads and writes the older one ([`crate::InferenceDeployment`]), which is also
//! the storage version: the previous release knows no other version, and after a rollback its API
//! server rejects a server-side apply to an object whose managed fields name a version that is not
//! served.

use serde_json::{Value, json};

/// The version for users, preferred by `kubectl`.
const PREFERRED: &str = "v1beta1";

/// The versions that users may write.
pub(crate) const API_VERSIONS: [&str; 2] = ["albacore.dev/v1beta1", "albacore.dev/v1alpha1"];

/// The warning that `kubectl` prints when the older version is used.
const DEPRECATION: &str = "InferenceDeployment of albacore.dev/v1alpha1 is deprecated: write \
                           albacore.dev/v1beta1, which has the same fields";

/// Adds the preferred version to the definition, which contains only the older one.
pub(crate) fn serve_preferred(crd: &mut Value) {
    let Some(versions) = crd["spec"]["versions"].as_array_mut() else {
        return;
    };
    let mut preferred = versions[0].clone();
    preferred["name"] = PREFERRED.into();
    preferred["storage"] = false.into();
    versions[0]["deprecated"] = true.into();
    versions[0]["deprecationWarning"] = DEPRECATION.into();
    versions.insert(0, preferred);
    crd["spec"]["conversion"] = json!({"strategy": "None"});
}
