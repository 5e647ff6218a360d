//! Writes the status of this node's NodePlacement where it changed: after a pause with jitter, the
//! newest only.
//!
//! Where nothing but the time of the last verification changed, that field alone is written, every
//! 30 to 35 s. Any other write carries the time as well, so a settled node makes one small request
//! in 30 s and no other.

use std::time::{Duration, Instant};

use albacore_api::{NodePlacement, NodePlacementStatus};
use albacore_cluster::{ApiResource, Cluster, ClusterError, ErrorClass, Key, jitter};
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::limits::{
    FIGURES_PAUSE, RENEWAL_JITTER, RENEWAL_PAUSE, STATUS_JITTER, STATUS_PAUSE, WRITE_REFUSED_PAUSE,
    WRITE_RETRY_MAX, WRITE_RETRY_MIN,
};
use crate::status::{Difference, difference};

/// A status that is to be written; the uid of the node once it is known, for its NodePlacement goes
/// with it; and how often that was deleted by somebody.
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
        let (pause, more) = match difference(written, status) {
            _ if wish.deletions != self.deletions => (STATUS_PAUSE, STATUS_JITTER),
            Difference::None => return None,
            Difference::Time => (RENEWAL_PAUSE, RENEWAL_JITTER),
            Difference::Figures => (FIGURES_PAUSE, STATUS_JITTER),
            Difference::Placement => (STATUS_PAUSE, STATUS_JITTER),
        };
        let age = self.written_at.map_or(pause, |at| at.elapsed());
        Some((pause + jitter(more)).saturating_sub(age))
    }

    /// Whether the time of the last verification is all that is to be written.
    fn is_renewal(&self, wish: &Wanted) -> bool {
        let differs = |status| self.written.as_ref().map(|w| difference(w, status));
        let is_time = wish.status.as_ref().and_then(differs) == Some(Difference::Time);
        is_time && wish.deletions == self.deletions
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
        let applied = if self.is_renewal(wish) {
            let key = Key::new("", &self.node);
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
        ErrorClass::Forbidden | ErrorClass::Invalid | ErrorClass::Bug => WRITE_REFUSED_PAUSE,
        _ => WRITE_RETRY_MIN
            .saturating_mul(1 << failures.min(6))
            .min(WRITE_RETRY_MAX),
    };
    pause + jitter(pause / 2)
}
