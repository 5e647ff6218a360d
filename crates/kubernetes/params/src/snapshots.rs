//! The newest snapshot from the agent, and the lookup of a peer's pod in it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use albacore_settings::agent_stream::{NodeSnapshot, ServingPod};
use tokio::sync::watch;
use tonic::Status;

use crate::limits::SNAPSHOT_AGE_MAX;

/// The identity of a client as reported by the kernel. No data sent by the client is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// The remote address of a TCP connection; IPv4-mapped addresses as IPv4.
    Address(IpAddr),
    /// The user of the peer process of a unix socket.
    User(u32),
}

/// Reason why a peer receives no parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The agent has sent no snapshot yet.
    NoSnapshot,
    /// No pod that opted in has this address.
    UnknownPeer(Peer),
    /// Several pods have this address, so the peer cannot be identified.
    Ambiguous(Peer),
}

impl Denied {
    /// Value of the metric's label.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NoSnapshot => "not_fed",
            Self::UnknownPeer(_) => "unknown",
            Self::Ambiguous(_) => "ambiguous",
        }
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NoSnapshot => Self::unavailable(
                "the agent of this node has sent no snapshot yet: try again in a moment",
            ),
            Denied::UnknownPeer(Peer::Address(address)) => Self::permission_denied(format!(
                "no pod of this node that belongs to an InferenceDeployment has the address \
                 {address}"
            )),
            Denied::UnknownPeer(Peer::User(_)) => {
                Self::permission_denied("the feed has no deployment that is served on this socket")
            }
            Denied::Ambiguous(Peer::Address(address)) => Self::permission_denied(format!(
                "several pods of this node have the address {address}: pods of the host's network \
                 get no parameters"
            )),
            Denied::Ambiguous(Peer::User(_)) => Self::permission_denied(
                "the feed has several deployments without an address: one is served on a socket",
            ),
        }
    }
}

/// The newest snapshot, and the time at which it was received.
#[derive(Debug)]
struct CurrentSnapshot {
    snapshot: NodeSnapshot,
    received_at: Instant,
    /// Index of the pod; `None` if pods with different uids have the address. The key `None`
    /// contains pods without an address.
    by_address: HashMap<Option<IpAddr>, Option<usize>>,
}

/// Values of the metrics about the newest snapshot.
pub(crate) struct SnapshotSummary {
    pub(crate) age: Duration,
    pub(crate) pods: usize,
    pub(crate) sequence: u64,
}

#[derive(Debug)]
pub(crate) struct SnapshotStore {
    current: watch::Sender<Option<CurrentSnapshot>>,
}

/// Receives snapshots; of several that arrive at once, only the last is observed.
#[derive(Debug)]
pub(crate) struct SnapshotWatch(watch::Receiver<Option<CurrentSnapshot>>);

impl SnapshotStore {
    pub(crate) fn new() -> Self {
        Self {
            current: watch::Sender::new(None),
        }
    }

    /// Stores a snapshot that is newer than all previous ones.
    pub(crate) fn publish(&self, snapshot: NodeSnapshot) {
        let mut by_address = HashMap::with_capacity(snapshot.pods.len());
        for (index, pod) in snapshot.pods.iter().enumerate() {
            let of = by_address.entry(pod.address).or_insert(Some(index));
            let same = |first: &usize| snapshot.pods[*first].uid == pod.uid;
            if !of.as_ref().is_some_and(same) {
                *of = None;
            }
        }
        self.current.send_replace(Some(CurrentSnapshot {
            snapshot,
            received_at: Instant::now(),
            by_address,
        }));
    }

    pub(crate) fn watch(&self) -> SnapshotWatch {
        SnapshotWatch(self.current.subscribe())
    }

    /// Whether the newest snapshot is at most [`SNAPSHOT_AGE_MAX`] old.
    pub(crate) fn is_fresh(&self) -> bool {
        self.summary()
            .is_some_and(|summary| summary.age <= SNAPSHOT_AGE_MAX)
    }

    pub(crate) fn summary(&self) -> Option<SnapshotSummary> {
        let current = self.current.borrow();
        current.as_ref().map(|current| SnapshotSummary {
            age: current.received_at.elapsed(),
            pods: current.snapshot.pods.len(),
            sequence: current.snapshot.sequence,
        })
    }

    pub(crate) fn metrics(&self) -> String {
        let current = self.current.borrow();
        let metrics = current
            .as_ref()
            .map(|current| current.snapshot.metrics.clone());
        metrics.unwrap_or_default()
    }
}

impl SnapshotWatch {
    /// Waits for a snapshot that was not observed yet; forever when the program stops.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender lives as long as the program.
            std::future::pending().await
        }
    }

    /// The pod of a peer in the newest snapshot.
    pub(crate) fn pod(&mut self, peer: Peer) -> Result<ServingPod, Denied> {
        let current = self.0.borrow_and_update();
        let current = current.as_ref().ok_or(Denied::NoSnapshot)?;
        let address = match peer {
            Peer::Address(address) => Some(address),
            Peer::User(_) => None,
        };
        let index = current
            .by_address
            .get(&address)
            .ok_or(Denied::UnknownPeer(peer))?;
        let pod = index.and_then(|index| current.snapshot.pods.get(index));
        pod.cloned().ok_or(Denied::Ambiguous(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"node":"n","sequence":1,"pods":[{"namespace":"a","name":"p","uid":"u",
        "deployment":"d","generation":1,"parameters":{"batching":{},"queue":{},"slo":[],
        "generation":1}}]}"#;

    /// A snapshot of pods, each a uid and an address.
    fn snapshot(pods: &[(&str, Option<&str>)]) -> NodeSnapshot {
        let mut snapshot = NodeSnapshot::decode(LINE.as_bytes()).unwrap().snapshot;
        let one = snapshot.pods.remove(0);
        let pods = pods.iter().map(|(uid, address)| ServingPod {
            uid: (*uid).to_owned(),
            address: address.map(|address| address.parse().unwrap()),
            ..one.clone()
        });
        snapshot.pods = pods.collect();
        snapshot
    }

    #[test]
    fn a_peer_sees_the_pod_of_its_address_alone() {
        let store = SnapshotStore::new();
        let mut watch = store.watch();
        let at = |text: &str| Peer::Address(text.parse().unwrap());
        assert_eq!(watch.pod(at("10.0.0.1")), Err(Denied::NoSnapshot));
        assert!(!store.is_fresh());
        store.publish(snapshot(&[
            ("a", Some("10.0.0.1")),
            ("a", Some("fd00::1")),
            ("b", Some("10.0.0.2")),
            ("c", Some("10.0.0.2")),
            ("b", Some("10.0.0.2")),
            ("local", None),
        ]));
        assert!(store.is_fresh());
        let mut uid = |peer| watch.pod(peer).map(|pod| pod.uid);
        assert_eq!(uid(at("10.0.0.1")), Ok("a".to_owned()));
        assert_eq!(uid(at("fd00::1")), Ok("a".to_owned()));
        assert_eq!(uid(Peer::User(7)), Ok("local".to_owned()));
        let several = at("10.0.0.2");
        assert_eq!(uid(several), Err(Denied::Ambiguous(several)));
        let nobody = at("10.0.0.3");
        assert_eq!(uid(nobody), Err(Denied::UnknownPeer(nobody)));
        store.publish(snapshot(&[("c", Some("10.0.0.2"))]));
        assert_eq!(watch.pod(several).unwrap().uid, "c", "the newest counts");
        let user = Peer::User(7);
        assert_eq!(watch.pod(user), Err(Denied::UnknownPeer(user)));
    }
}
