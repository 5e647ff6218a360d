//! Access to the cluster with the user's permissions, and typed reads.

use std::path::PathBuf;

use albacore_cluster::{
    ApiResource, Cluster, DynamicObject, ErrorClass, ObjectKey, UserConnectOptions,
};
use albacore_command::{Failure, sentence};
use serde::de::DeserializeOwned;

/// Runs `task`, which sends requests to a cluster, to completion.
pub(crate) fn block_on<T>(task: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().build();
    let runtime = runtime.map_err(|e| Failure::Failed(format!("cannot start: {e}")))?;
    runtime.block_on(task)
}

/// Connects to the cluster that kubectl would connect to with these options.
pub(crate) async fn connect(
    kubeconfig: Option<&PathBuf>,
    context: Option<&String>,
) -> Result<Cluster, Failure> {
    let options = UserConnectOptions {
        kubeconfig: kubeconfig.cloned(),
        context: context.cloned(),
        manager: "kubectl-albacore",
    };
    let cluster = Cluster::connect_as_user(&options).await;
    cluster.map_err(|error| Failure::Failed(sentence(&error)))
}

/// Lists the objects of a kind; if the request fails, the reason is added to `unread`.
pub(crate) async fn read<K: DeserializeOwned>(
    cluster: &Cluster,
    kind: &ApiResource,
    namespace: Option<&str>,
    labels: &str,
    unread: &mut Vec<String>,
) -> Result<Vec<K>, Failure> {
    match cluster.list(kind, namespace, labels).await {
        Ok(found) => Ok(typed(found, unread)),
        Err(error) if matches!(error.class(), ErrorClass::Forbidden | ErrorClass::NotFound) => {
            unread.push(sentence(&error));
            Ok(Vec::new())
        }
        Err(error) => Err(Failure::Failed(sentence(&error))),
    }
}

/// Converts objects to their type; errors are added to `unread`.
pub(crate) fn typed<K: DeserializeOwned>(
    found: Vec<DynamicObject>,
    unread: &mut Vec<String>,
) -> Vec<K> {
    let mut all = Vec::with_capacity(found.len());
    for object in found {
        let key = ObjectKey::of(&object);
        match serde_json::to_value(object).and_then(serde_json::from_value) {
            Ok(typed) => all.push(typed),
            Err(error) => unread.push(format!("{key}: {error}")),
        }
    }
    all
}
