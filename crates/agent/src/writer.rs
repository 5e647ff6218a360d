//! Writes the status of this node's NodePlacement where it changed: after a pause with jitter, the newest only.

use std::time::{Duration, Instant};

use albacore_api::{NodePlacement, NodePlacementStatus};
use albacore_cluster::{ApiResource, Cluster, ClusterError, ErrorClass, jitter};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::limits::{FIGURES_PAUSE, STATUS_JITTER, STATUS_PAUSE, WRITE_RETRY_MAX, WRITE_RETRY_MIN};
use crate::status::differ_in_figures_only;

/// A status that is to be written; the uid of the node once it is known, for its NodePlacement goes with it; and how
/// often that was deleted by somebody.
#[derive(Clone, PartialEq, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) status: Option<NodePlacementStatus>,
    pub(crate) node_uid: Option<String>,
    pub(crate) deletions: u64,
}

/// Who writes, and what was written last.
pub(crate) struct Writer {
    cluster: Cluster,
    node: String,
    written: Option<NodePlacementStatus>,
    written_at: Option<Instant>,
    /// Deletions that were known when it was written.
    deletions: u64,
}

impl Writer {
    /// Nothing is known to be written yet.
    pub(crate) fn new(cluster: Cluster, node: String) -> Self {
        Self {
            cluster,
            node,
            written: None,
            written_at: None,
            deletions: 0,
        }
    }

    /// Writes what is wanted until nobody wants anything any more; then the last wish at once.
    pub(crate) async fn run(mut self, mut wanted: watch::Receiver<Wanted>) {
        let mut failures = 0_u32;
        // bound: a turn for each wish or retry, with a pause between writes; ends with the sender.
        loop {
            let is_over = wanted.changed().await.is_err();
            // bound: as above.
            loop {
                let wish = wanted.borrow_and_update().clone();
                let Some(pause) = self.pause(&wish) else {
                    break;
                };
                if !is_over && !pause.is_zero() {
                    tokio::select! {
                        () = tokio::time::sleep(pause) => {}
                        changed = wanted.changed() => if changed.is_ok() { continue },
                    }
                }
                let wish = wanted.borrow_and_update().clone();
                match self.write(&wish).await {
                    Ok(()) => failures = 0,
                    Err(error) => {
                        if failures == 0 {
                            let error = error.text();
                            tracing::warn!(
                                error,
                                "the NodePlacement cannot be written; it is tried again"
                            );
                        }
                        if is_over || wanted.has_changed().is_err() {
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

    /// How long `wish` has to wait; `None` if it says nothing new.
    fn pause(&self, wish: &Wanted) -> Option<Duration> {
        let status = wish.status.as_ref()?;
        let Some(written) = &self.written else {
            return Some(Duration::ZERO);
        };
        let is_gone = wish.deletions != self.deletions;
        if written == status && !is_gone {
            return None;
        }
        let pause = match differ_in_figures_only(written, status) && !is_gone {
            true => FIGURES_PAUSE,
            false => STATUS_PAUSE,
        };
        let age = self.written_at.map_or(pause, |at| at.elapsed());
        Some((pause + jitter(STATUS_JITTER)).saturating_sub(age))
    }

    async fn write(&mut self, wish: &Wanted) -> Result<(), ClusterError> {
        let Some(status) = &wish.status else {
            return Ok(());
        };
        let kind = ApiResource::erase::<NodePlacement>(&());
        let mut object = json!({
            "apiVersion": kind.api_version, "kind": kind.kind,
            "metadata": {"name": self.node},
        });
        let mut with_status = object.clone();
        with_status["status"] = serde_json::to_value(status).unwrap_or(Value::Null);
        let applied = self.cluster.apply_status(&kind, &with_status).await;
        match applied {
            Ok(_) => {}
            Err(error) if error.class() == ErrorClass::NotFound => {
                if let Some(uid) = &wish.node_uid {
                    object["metadata"]["ownerReferences"] = json!([{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": uid}]);
                }
                self.cluster.apply(&kind, &object).await?;
                self.cluster.apply_status(&kind, &with_status).await?;
            }
            Err(error) => return Err(error),
        }
        self.written = Some(status.clone());
        self.written_at = Some(Instant::now());
        self.deletions = wish.deletions;
        Ok(())
    }
}

fn retry_pause(error: &ClusterError, failures: u32) -> Duration {
    let pause = match error.class() {
        ErrorClass::Throttled(pause) => pause,
        ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::Bug => WRITE_RETRY_MAX,
        _ => WRITE_RETRY_MIN
            .saturating_mul(1 << failures.min(6))
            .min(WRITE_RETRY_MAX),
    };
    pause + jitter(pause / 2)
}
