//! The gRPC service: a stream of parameters for whoever is known, and what it reports.

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

use crate::counts::Counts;
use crate::door::{Crowd, Full, Pass};
use crate::known::{Denied, Known, News, Peer};
use crate::limits::{CHANGE_PAUSE, STREAMS_MAX, STREAMS_PER_POD_MAX};
use crate::reports::Reports;
use crate::wire::message;

#[derive(Debug)]
pub(crate) struct Watching {
    known: Arc<Known>,
    counts: Counts,
    streams: Crowd,
    /// The one user of a unix socket.
    uid: Option<u32>,
    /// Takes what pods report, if anybody does.
    reports: Option<Arc<Reports>>,
    stopping: watch::Receiver<bool>,
}

impl Watching {
    pub(crate) fn new(
        known: Arc<Known>,
        counts: Counts,
        uid: Option<u32>,
        reports: Option<Arc<Reports>>,
        stopping: watch::Receiver<bool>,
    ) -> Self {
        Self {
            known,
            counts,
            streams: Crowd::new(STREAMS_MAX, STREAMS_PER_POD_MAX),
            uid,
            reports,
            stopping,
        }
    }

    /// Who asks, and which pod that is.
    fn caller(&self, peer: Option<Peer>, news: &mut News) -> Result<(Peer, ServingPod), Status> {
        let peer = peer.ok_or_else(|| Status::internal("the connection has no other end"))?;
        if let Peer::User(user) = peer
            && Some(user) != self.uid
        {
            self.counts.refuse("user");
            let words = format!("user {user} is not the one that this socket serves");
            return Err(Status::permission_denied(words));
        }
        let pod = news.pod(peer).map_err(|denied| self.deny(denied))?;
        Ok((peer, pod))
    }

    fn begin(&self, peer: Option<Peer>) -> Result<Told, Status> {
        let mut news = self.known.news();
        let (peer, pod) = self.caller(peer, &mut news)?;
        let pass = self.streams.enter(peer).map_err(|full| self.fill(full))?;
        self.counts.streams.inc();
        tracing::debug!(
            ?peer,
            namespace = pod.namespace,
            pod = pod.name,
            deployment = pod.deployment,
            "a pod is told its parameters"
        );
        Ok(Told {
            news,
            peer,
            uid: pod.uid,
            last: None,
            not_before: Instant::now(),
            is_over: false,
            counts: self.counts.clone(),
            stopping: self.stopping.clone(),
            _pass: pass,
        })
    }

    fn deny(&self, denied: Denied) -> Status {
        self.counts.refuse(denied.reason());
        denied.into()
    }

    fn fill(&self, full: Full) -> Status {
        let (reason, words) = match full {
            Full::All => (
                "full",
                "as many streams are open as this server has room for",
            ),
            Full::Peer => (
                "full_pod",
                "as many streams of this pod are open as one may have",
            ),
        };
        self.counts.refuse(reason);
        Status::resource_exhausted(words)
    }
}

#[tonic::async_trait]
impl Params for Watching {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Parameters, Status>> + Send>>;

    async fn watch(
        &self,
        request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        // Written by the connection itself (`door`): no header of a request gets there.
        let peer = request.extensions().get::<Peer>().copied();
        let told = self.begin(peer)?;
        let stream = unfold(told, async |mut told| {
            let next = told.next().await?;
            Some((next, told))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn report(
        &self,
        request: Request<LatencyReport>,
    ) -> Result<Response<ReportReply>, Status> {
        let peer = request.extensions().get::<Peer>().copied();
        let (_, pod) = self.caller(peer, &mut self.known.news())?;
        let reports = self.reports.as_ref();
        let reports = reports.filter(|_| pod.parameters.report.is_some());
        let reports = reports.ok_or_else(|| {
            Status::failed_precondition("no report of latency is asked for: no trial runs")
        })?;
        let taken = reports.take(pod, request.into_inner(), Instant::now());
        taken.map(|()| Response::new(ReportReply {}))
    }
}

struct Told {
    news: News,
    peer: Peer,
    /// The pod that asked: another one may get its address.
    uid: String,
    last: Option<Parameters>,
    not_before: Instant,
    is_over: bool,
    counts: Counts,
    stopping: watch::Receiver<bool>,
    _pass: Pass,
}

impl Told {
    /// The next message: parameters that differ from the last ones, or why there are no more.
    async fn next(&mut self) -> Option<Result<Parameters, Status>> {
        // bound: one pass for each line of the feed.
        while !self.is_over {
            let mut stopping = self.stopping.clone();
            let is_stopping = tokio::select! {
                // An error means that the sender is gone: that is an end, too.
                _ = stopping.wait_for(|&is_so| is_so) => true,
                () = self.due() => false,
            };
            if is_stopping {
                return Some(Err(self.end(Status::unavailable("this server stops"))));
            }
            let pod = match self.news.pod(self.peer) {
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
                self.counts.sent.inc();
                return Some(Ok(message));
            }
        }
        None
    }

    /// Waits for news, but so long that a burst of changes is one.
    async fn due(&mut self) {
        if self.last.is_none() {
            return;
        }
        self.news.changed().await;
        if self.not_before.saturating_duration_since(Instant::now()) > Duration::ZERO {
            sleep_until(self.not_before).await;
        }
    }

    fn end(&mut self, status: Status) -> Status {
        self.is_over = true;
        status
    }
}

impl Drop for Told {
    fn drop(&mut self) {
        self.counts.streams.dec();
    }
}
