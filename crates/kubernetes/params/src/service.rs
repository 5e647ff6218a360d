//! The gRPC service: streams parameters to the pods of this node, and accepts their latency
//! reports.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use albacore_proto::params::params_server::Params;
use albacore_proto::params::{LatencyReport, Parameters, ReportReply, WatchRequest};
use albacore_settings::agent_stream::ServingPod;
use futures_util::stream::{Stream, unfold};
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tonic::{Request, Response, Status};

use crate::limits::{CHANGE_PAUSE, STREAMS_MAX, STREAMS_PER_POD_MAX};
use crate::messages::message;
use crate::metrics::ParamsMetrics;
use crate::peer_limit::{LimitReached, PeerLimiter, PeerPermit};
use crate::report_forwarder::ReportForwarder;
use crate::snapshots::{Denied, Peer, SnapshotStore, SnapshotWatch};

#[derive(Debug)]
pub(crate) struct ParamsService {
    snapshots: Arc<SnapshotStore>,
    metrics: ParamsMetrics,
    streams: PeerLimiter,
    /// The only user that may connect to the unix socket.
    uid: Option<u32>,
    /// Forwards the latency reports of pods; `None` rejects them.
    reports: Option<Arc<ReportForwarder>>,
    stopping: watch::Receiver<bool>,
}

impl ParamsService {
    pub(crate) fn new(
        snapshots: Arc<SnapshotStore>,
        metrics: ParamsMetrics,
        uid: Option<u32>,
        reports: Option<Arc<ReportForwarder>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            snapshots,
            metrics,
            streams: PeerLimiter::new(STREAMS_MAX, STREAMS_PER_POD_MAX),
            uid,
            reports,
            stopping,
        }
    }

    /// Returns the peer and the pod with which it is identified.
    fn identify_peer(
        &self,
        peer: Option<Peer>,
        watch: &mut SnapshotWatch,
    ) -> Result<(Peer, ServingPod), Status> {
        let peer = peer.ok_or_else(|| Status::internal("the address of the peer is unknown"))?;
        if let Peer::User(user) = peer
            && Some(user) != self.uid
        {
            self.metrics.refuse("user");
            let words = format!("user {user} is not the user of this socket");
            return Err(Status::permission_denied(words));
        }
        let pod = watch.pod(peer).map_err(|denied| self.deny(denied))?;
        Ok((peer, pod))
    }

    fn open_stream(&self, peer: Option<Peer>) -> Result<ParamsStream, Status> {
        let mut watch = self.snapshots.watch();
        let (peer, pod) = self.identify_peer(peer, &mut watch)?;
        let permit = self
            .streams
            .acquire(peer)
            .map_err(|limit| self.refuse(limit))?;
        self.metrics.streams.inc();
        tracing::debug!(
            ?peer,
            namespace = pod.namespace,
            pod = pod.name,
            deployment = pod.deployment,
            "a pod watches its parameters"
        );
        Ok(ParamsStream {
            watch,
            peer,
            uid: pod.uid,
            last: None,
            not_before: Instant::now(),
            has_ended: false,
            metrics: self.metrics.clone(),
            stopping: self.stopping.clone(),
            _permit: permit,
        })
    }

    fn deny(&self, denied: Denied) -> Status {
        self.metrics.refuse(denied.reason());
        denied.into()
    }

    fn refuse(&self, limit: LimitReached) -> Status {
        let (reason, words) = match limit {
            LimitReached::Total => ("full", "too many open streams"),
            LimitReached::Peer => ("full_pod", "too many open streams of this pod"),
        };
        self.metrics.refuse(reason);
        Status::resource_exhausted(words)
    }
}

#[tonic::async_trait]
impl Params for ParamsService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Parameters, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // Set by the connection itself (`acceptor`), not from a header of the request.
        let peer = request.extensions().get::<Peer>().copied();
        let opened = self.open_stream(peer)?;
        let stream = unfold(opened, async |mut stream| {
            let next = stream.next().await?;
            Some((next, stream))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn report(
        &self,
        request: Request<LatencyReport>,
    ) -> Result<Response<ReportReply>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let (_, pod) = self.identify_peer(peer, &mut self.snapshots.watch())?;
        let reports = self.reports.as_ref();
        let reports = reports.filter(|_| pod.parameters.report.is_some());
        let reports = reports.ok_or_else(|| {
            Status::failed_precondition("latency reports are not expected: no trial is running")
        })?;
        let accepted = reports.accept(pod, request.into_inner(), Instant::now());
        accepted.map(|()| Response::new(ReportReply {}))
    }
}

struct ParamsStream {
    watch: SnapshotWatch,
    peer: Peer,
    /// The uid of the pod that opened the stream, because its address may be reassigned to another
    /// pod.
    uid: String,
    last: Option<Parameters>,
    not_before: Instant,
    has_ended: bool,
    metrics: ParamsMetrics,
    stopping: watch::Receiver<bool>,
    _permit: PeerPermit,
}

impl ParamsStream {
    /// The next message: parameters that differ from the last ones, or the reason why the stream
    /// ends.
    async fn next(&mut self) -> Option<Result<Parameters, Status>> {
        // bound: one pass for each snapshot.
        while !self.has_ended {
            let mut stopping = self.stopping.clone();
            let is_stopping = tokio::select! {
                // An error means that the sender was dropped, which ends the stream, too.
                _ = stopping.wait_for(|&is_stopping| is_stopping) => true,
                () = self.wait_for_snapshot() => false,
            };
            if is_stopping {
                return Some(Err(self.end(Status::unavailable("the server is stopping"))));
            }
            let pod = match self.watch.pod(self.peer) {
                Ok(pod) if pod.uid == self.uid => pod,
                Ok(_) => {
                    let status = Status::permission_denied("another pod has this address now");
                    return Some(Err(self.end(status)));
                }
                Err(denied) => return Some(Err(self.end(denied.into()))),
            };
            let message = message(&pod.parameters);
            if self.last.as_ref() != Some(&message) {
                self.last = Some(message.clone());
                self.not_before = Instant::now() + CHANGE_PAUSE;
                self.metrics.sent.inc();
                return Some(Ok(message));
            }
        }
        None
    }

    /// Waits for the next snapshot, and coalesces a burst of snapshots into one.
    async fn wait_for_snapshot(&mut self) {
        if self.last.is_none() {
            return;
        }
        self.watch.changed().await;
        if self.not_before.saturating_duration_since(Instant::now()) > Duration::ZERO {
            sleep_until(self.not_before).await;
        }
    }

    fn end(&mut self, status: Status) -> Status {
        self.has_ended = true;
        status
    }
}

impl Drop for ParamsStream {
    fn drop(&mut self) {
        self.metrics.streams.dec();
    }
}
