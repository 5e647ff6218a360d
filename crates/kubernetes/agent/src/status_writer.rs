//! Writes the status of this node's NodePlacement when it changed: only the newest one, after a
//! pause with jitter.
//!
//! If only the time of the last verification changed, that field alone is written, every 30 to 35
//! s. Other writes also contain the time, so a settled node makes only one small request every 30
//! s.

use std::time::{Duration, Instant};

use albacore_api::{NodePlacement, NodePlacementStatus};
use albacore_cluster::{ApiResource, Cluster, ClusterError, ErrorClass, ObjectKey, jitter};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::limits::{
    COUNTERS_PAUSE, RENEWAL_JITTER, RENEWAL_PAUSE, STATUS_JITTER, STATUS_PAUSE,
    WRITE_REFUSED_PAUSE, WRITE_RETRY_MAX, WRITE_RETRY_MIN,
};
use crate::status::{StatusChange, status_change};

/// The status to write.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct DesiredStatus {
    pub(crate) status: Option<NodePlacementStatus>,
    /// Uid of the node object, the owner of the NodePlacement, once it is known.
    pub(crate) node_uid: Option<String>,
    /// Number of deletions of the NodePlacement: after a deletion it is written again.
    pub(crate) deletions: u64,
}

pub(crate) struct StatusWriter {
    cluster: Cluster,
    node: String,
    written: Option<NodePlacementStatus>,
    written_at: Option<Instant>,
    /// Number of deletions known at the last write.
    deletions: u64,
}

impl StatusWriter {
    pub(crate) fn new(cluster: Cluster, node: String) -> Self {
        Self {
            cluster,
            node,
            written: None,
            written_at: None,
            deletions: 0,
        }
    }

    /// Writes each new status until the sender is dropped; then writes the last one at once.
    pub(crate) async fn run(mut self, mut receiver: watch::Receiver<DesiredStatus>) {
        let mut failures = 0_u32;
        // bound: one iteration per status or retry, with a pause between writes; ends with the
        // sender.
        loop {
            let is_over = receiver.changed().await.is_err();
            // bound: as above.
            loop {
                let desired = receiver.borrow_and_update().clone();
                let Some(pause) = self.pause(&desired) else {
                    break;
                };
                if !is_over && !pause.is_zero() {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        changed = receiver.changed() => if changed.is_ok() { continue },
                    }
                }
                let desired = receiver.borrow_and_update().clone();
                match self.write(&desired).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        if failures == 0 {
                            let error = error.text();
                            tracing::warn!(
                                error,
                                "the NodePlacement cannot be written; it is retried"
                            );
                        }
                        if is_over || receiver.has_changed().is_err() {
                            return;
                        }
                        tokio::time::sleep(retry_pause(&error, failures)).await;
                        failures = failures.saturating_add(1);
                    }
                }
            }
            if is_over {
                return;
            }
        }
    }

    /// Time to wait before `desired` is written; `None` if it is already written.
    fn pause(&self, desired: &DesiredStatus) -> Option<Duration> {
        let status = desired.status.as_ref()?;
        let Some(written) = &self.written else {
            return Some(Duration::ZERO);
        };
        let (pause, max_jitter) = match status_change(written, status) {
            _ if desired.deletions != self.deletions => (STATUS_PAUSE, STATUS_JITTER),
            StatusChange::None => return None,
            StatusChange::Time => (RENEWAL_PAUSE, RENEWAL_JITTER),
            StatusChange::Counters => (COUNTERS_PAUSE, STATUS_JITTER),
            StatusChange::Placement => (STATUS_PAUSE, STATUS_JITTER),
        };
        let age = self.written_at.map_or(pause, |at| at.elapsed());
        Some((pause + jitter(max_jitter)).saturating_sub(age))
    }

    /// Whether only the time of the last verification has to be written.
    fn is_renewal(&self, desired: &DesiredStatus) -> bool {
        let differs = |status| self.written.as_ref().map(|w| status_change(w, status));
        let is_time = desired.status.as_ref().and_then(differs) == Some(StatusChange::Time);
        is_time && desired.deletions == self.deletions
    }

    async fn write(&mut self, desired: &DesiredStatus) -> Result<(), ClusterError> {
        let Some(status) = &desired.status else {
            return Ok(());
        };
        let kind = ApiResource::erase::<NodePlacement>(&());
        let mut object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": self.node},
        });
        let mut with_status = object.clone();
        with_status["status"] = serde_json::to_value(status).unwrap_or(Value::Null);
        let applied = if self.is_renewal(desired) {
            let key = ObjectKey::new("", &self.node);
            let renewal = json!({"lastVerificationTime": status.last_verification_time});
            self.cluster.merge_status(&kind, &key, &renewal).await
        } else {
            self.cluster
                .apply_status(&kind, &with_status)
                .await
                .map(drop)
        };
        match applied {
            Ok(()) => {}
            Err(error) if error.class() == ErrorClass::NotFound => {
                if let Some(uid) = &desired.node_uid {
                    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}]);
                }
                self.cluster.apply(&kind, &object).await?;
                self.cluster.apply_status(&kind, &with_status).await?;
            }
            Err(error) => return Err(error),
        }
        self.written = Some(status.clone());
        self.written_at = Some(Instant::now());
        self.deletions = desired.deletions;
        Ok(())
    }
}

fn retry_pause(error: &ClusterError, failures: u32) -> Duration {
    let pause = match error.class() {
        ErrorClass::Throttled(pause) => pause,
        ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::Bug => WRITE_REFUSED_PAUSE,
        _ => WRITE_RETRY_MIN
            .saturating_mul(1 << failures.min(6))
            .min(WRITE_RETRY_MAX),
    };
    pause + jitter(pause / 2)
}
