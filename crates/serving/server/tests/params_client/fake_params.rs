//! A fake `albacore-params` that sends valid and invalid messages of the test.

use std::net::SocketAddr;
use std::pin::Pin;

use albacore_proto::params::params_server::{Params, ParamsServer};
use albacore_proto::params::{LatencyReport, Parameters, ReportReply, WatchRequest};
use futures_util::stream::{Stream, unfold};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::sync::watch;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

/// A server of the params service; on drop it is stopped and its connections are closed.
pub(crate) struct FakeParams {
    message: watch::Sender<Result<Parameters, Status>>,
    /// The newest latency report, and the number of reports.
    pub(crate) reported: watch::Receiver<(LatencyReport, usize)>,
    pub(crate) address: SocketAddr,
    _runtime: Runtime,
}

struct FakeService {
    message: watch::Receiver<Result<Parameters, Status>>,
    reported: watch::Sender<(LatencyReport, usize)>,
}

impl FakeParams {
    pub(crate) fn start(first: Result<Parameters, Status>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), first)
    }

    pub(crate) fn start_at(address: SocketAddr, first: Result<Parameters, Status>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (message, receiver) = watch::channel(first);
        let (sender, reported) = watch::channel(Default::default());
        let service = FakeService {
            message: receiver,
            reported: sender,
        };
        let server = Server::builder()
            .add_service(ParamsServer::new(service))
            .serve_with_incoming(TcpIncoming::from(listener));
        runtime.spawn(server);
        Self {
            message,
            reported,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn send(&self, message: Result<Parameters, Status>) {
        drop(self.message.send_replace(message));
    }
}

#[tonic::async_trait]
impl Params for FakeService {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Parameters, Status>> + Send>>;

    async fn watch(
        &self,
        _request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut receiver = self.message.clone();
        receiver.mark_changed();
        let stream = unfold(Some(receiver), async |receiver| {
            let mut receiver = receiver?;
            receiver.changed().await.ok()?;
            let message = receiver.borrow_and_update().clone();
            let next = message.is_ok().then_some(receiver);
            Some((message, next))
        });
        Ok(Response::new(Box::pin(stream)))
    }

    async fn report(
        &self,
        request: Request<LatencyReport>,
    ) -> Result<Response<ReportReply>, Status> {
        let report = request.into_inner();
        self.reported.send_modify(|(newest, count)| {
            *newest = report;
            *count += 1;
        });
        Ok(Response::new(ReportReply {}))
    }
}
