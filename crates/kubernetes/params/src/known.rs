//! The newest word of the agent, and who may see what of it.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use albacore_settings::agent_stream::{NodeSnapshot, ServingPod};
use tokio::sync::watch;
use tonic::Status;

use crate::limits::FRESH_FOR;

/// Who asks, as the kernel says it. Nothing that a client sends is part of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Peer {
    /// The address of the other end of a TCP connection; never IPv4 in IPv6.
    Address(IpAddr),
    /// The user of the other end of a unix socket.
    User(u32),
}

/// Why somebody gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The agent has told nothing yet.
    NotFed,
    /// No pod that opted in has this address.
    Unknown(Peer),
    /// Several have it: nobody can say which one asks.
    Ambiguous(Peer),
}

impl Denied {
    /// The label of the metric.
    pub(crate) fn reason(self) -> &'static str {
        match self {
            Self::NotFed => "not_fed",
            Self::Unknown(_) => "unknown",
            Self::Ambiguous(_) => "ambiguous",
        }
    }
}

impl From<Denied> for Status {
    fn from(denied: Denied) -> Self {
        match denied {
            Denied::NotFed => Self::unavailable(
                "the agent of this node has told nothing yet: try again in a moment",
            ),
            Denied::Unknown(Peer::Address(address)) => Self::permission_denied(format!(
                "{address} is the address of no pod of this node that belongs to an \
                 InferenceDeployment"
            )),
            Denied::Unknown(Peer::User(_)) => {
                Self::permission_denied("the feed has no deployment that is served on this socket")
            }
            Denied::Ambiguous(Peer::Address(address)) => Self::permission_denied(format!(
                "several pods of this node have the address {address}: pods of the host's network \
                 are not told parameters"
            )),
            Denied::Ambiguous(Peer::User(_)) => Self::permission_denied(
                "the feed has several deployments without an address: one is served on a socket",
            ),
        }
    }
}

/// Word of the agent that was taken.
#[derive(Debug)]
struct Seen {
    snapshot: NodeSnapshot,
    at: Instant,
    /// Index of the pod; `None` where pods of several uids have the address. The key `None` is that
    /// of pods without one.
    by_address: HashMap<Option<IpAddr>, Option<usize>>,
}

#[derive(Debug)]
pub(crate) struct Known {
    seen: watch::Sender<Option<Seen>>,
}

/// Hears when the agent has told something; of several at once, of the last.
#[derive(Debug)]
pub(crate) struct News(watch::Receiver<Option<Seen>>);

impl Known {
    pub(crate) fn new() -> Self {
        Self {
            seen: watch::Sender::new(None),
        }
    }

    /// Word that is newer than all before.
    pub(crate) fn take(&self, snapshot: NodeSnapshot) {
        let mut by_address = HashMap::with_capacity(snapshot.pods.len());
        for (index, pod) in snapshot.pods.iter().enumerate() {
            let of = by_address.entry(pod.address).or_insert(Some(index));
            let same = |first: &usize| snapshot.pods[*first].uid == pod.uid;
            if !of.as_ref().is_some_and(same) {
                *of = None;
            }
        }
        self.seen.send_replace(Some(Seen {
            snapshot,
            at: Instant::now(),
            by_address,
        }));
    }

    pub(crate) fn news(&self) -> News {
        News(self.seen.subscribe())
    }

    /// Whether the agent told something a short time ago.
    pub(crate) fn is_fresh(&self) -> bool {
        self.feed().is_some_and(|(age, ..)| age <= FRESH_FOR)
    }

    /// Age, pods and number of the newest word.
    pub(crate) fn feed(&self) -> Option<(Duration, usize, u64)> {
        let seen = self.seen.borrow();
        let of = |seen: &Seen| {
            let snapshot = &seen.snapshot;
            (seen.at.elapsed(), snapshot.pods.len(), snapshot.sequence)
        };
        seen.as_ref().map(of)
    }

    pub(crate) fn metrics(&self) -> String {
        let seen = self.seen.borrow();
        let metrics = seen.as_ref().map(|seen| seen.snapshot.metrics.clone());
        metrics.unwrap_or_default()
    }
}

impl News {
    /// Waits for word that was not looked at. Does not end.
    pub(crate) async fn changed(&mut self) {
        if self.0.changed().await.is_err() {
            // The sender lives as long as the program.
            std::future::pending().await
        }
    }

    /// The pod of a peer in the newest word.
    pub(crate) fn pod(&mut self, peer: Peer) -> Result<ServingPod, Denied> {
        let seen = self.0.borrow_and_update();
        let seen = seen.as_ref().ok_or(Denied::NotFed)?;
        let address = match peer {
            Peer::Address(address) => Some(address),
            Peer::User(_) => None,
        };
        let index = seen.by_address.get(&address).ok_or(Denied::Unknown(peer))?;
        let pod = index.and_then(|index| seen.snapshot.pods.get(index));
        pod.cloned().ok_or(Denied::Ambiguous(peer))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = r#"{"node":"n","sequence":1,"pods":[{"namespace":"a","name":"p","uid":"u",
        "deployment":"d","generation":1,"parameters":{"batching":{},"queue":{},"slo":[],"workers":1,
        "threads":1,"cpu_share":1,"generation":1}}]}"#;

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
        let known = Known::new();
        let mut news = known.news();
        let at = |text: &str| Peer::Address(text.parse().unwrap());
        assert_eq!(news.pod(at("10.0.0.1")), Err(Denied::NotFed));
        assert!(!known.is_fresh());
        known.take(snapshot(&[
            ("a", Some("10.0.0.1")),
            ("a", Some("fd00::1")),
            ("b", Some("10.0.0.2")),
            ("c", Some("10.0.0.2")),
            ("b", Some("10.0.0.2")),
            ("local", None),
        ]));
        assert!(known.is_fresh());
        let mut uid = |peer| news.pod(peer).map(|pod| pod.uid);
        assert_eq!(uid(at("10.0.0.1")), Ok("a".to_owned()));
        assert_eq!(uid(at("fd00::1")), Ok("a".to_owned()));
        assert_eq!(uid(Peer::User(7)), Ok("local".to_owned()));
        let several = at("10.0.0.2");
        assert_eq!(uid(several), Err(Denied::Ambiguous(several)));
        let nobody = at("10.0.0.3");
        assert_eq!(uid(nobody), Err(Denied::Unknown(nobody)));
        known.take(snapshot(&[("c", Some("10.0.0.2"))]));
        assert_eq!(news.pod(several).unwrap().uid, "c", "the newest counts");
        let user = Peer::User(7);
        assert_eq!(news.pod(user), Err(Denied::Unknown(user)));
    }
}
