//! `albacore-controller --check`: checks that the installation works, for `helm test`.
//!
//! A controller that renews its lease has listed every kind that it watches, so two checks are
//! enough: the API server serves the kinds of Albacore, and a controller holds the lease.

use albacore_api::NodePlacement;
use albacore_cluster::{ApiResource, Cluster, DynamicObject, ObjectKey};
use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::args::Args;
use crate::limits::{CHECK_PAUSE, CHECK_TRIES};
use crate::watches::deployments_kind;

/// Repeats the check until it succeeds.
///
/// # Errors
/// The last of [`CHECK_TRIES`] checks fails; the error names the problem.
pub(crate) async fn check(cluster: &Cluster, args: &Args) -> Result<()> {
    let mut last = check_once(cluster, args).await;
    // bound: CHECK_TRIES.
    for _ in 1..CHECK_TRIES {
        if last.is_ok() {
            break;
        }
        tokio::time::sleep(CHECK_PAUSE).await;
        last = check_once(cluster, args).await;
    }
    println!("{}", last?);
    Ok(())
}

async fn check_once(cluster: &Cluster, args: &Args) -> Result<String> {
    let deployments = deployments_kind();
    let placements = ApiResource::erase::<NodePlacement>(&());
    for ApiResource {
        api_version, kind, ..
    } in [&deployments, &placements]
    {
        let served = cluster.discover(api_version, kind).await?;
        ensure!(
            served.is_some(),
            "the API server does not serve {api_version} {kind}: install the custom resource \
             definitions of this version (crds.install, or manifests/crds.yaml)"
        );
    }
    let namespace = args.lease_namespace.as_deref();
    let key = ObjectKey::new(namespace.unwrap_or(cluster.namespace()), &args.lease_name);
    let lease = ApiResource::erase::<Lease>(&());
    let found = cluster.get(&lease, &key).await?;
    let found = found.with_context(|| format!("no controller has acquired the lease {key} yet"))?;
    let holder = holder(&found, Timestamp::now())
        .with_context(|| format!("no controller holds the lease {key}; see its pods and logs"))?;
    Ok(format!(
        "{} is served, and {holder} holds the lease {key}",
        deployments.api_version
    ))
}

/// The holder of a lease at `now`, if the lease has not expired.
fn holder(lease: &DynamicObject, now: Timestamp) -> Option<&str> {
    let spec: &Value = &lease.data["spec"];
    let holder = spec["holderIdentity"]
        .as_str()
        .filter(|name| !name.is_empty())?;
    let renewed: Timestamp = spec["renewTime"].as_str()?.parse().ok()?;
    let seconds = spec["leaseDurationSeconds"].as_i64()?;
    (now.duration_since(renewed) < SignedDuration::from_secs(seconds)).then_some(holder)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests fail by panicking

    use serde_json::json;

    use super::*;

    #[test]
    fn a_lease_is_held_until_it_runs_out() {
        let lease = |holder: &str| {
            let spec = json!({"holderIdentity": holder, "leaseDurationSeconds": 15,
                "renewTime": "2026-11-23T05:00:00.000000Z"});
            let object = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "l"}, "spec": spec});
            serde_json::from_value::<DynamicObject>(object).unwrap()
        };
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        assert_eq!(holder(&lease("a"), at("2026-11-23T05:00:14Z")), Some("a"));
        assert_eq!(holder(&lease("a"), at("2026-11-23T05:00:15Z")), None);
        assert_eq!(holder(&lease(""), at("2026-11-23T05:00:01Z")), None);
    }
}
