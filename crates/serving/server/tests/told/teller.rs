//! The other end of `--params`, played: says what the test says, right or wrong.

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

/// What is said to whoever asks; dropped, it is gone with all connections.
pub(crate) struct Teller {
    says: watch::Sender<Result<Parameters, Status>>,
    /// The newest report, and how many there were.
    pub(crate) reported: watch::Receiver<(LatencyReport, usize)>,
    pub(crate) address: SocketAddr,
    _runtime: Runtime,
}

struct Says {
    heard: watch::Receiver<Result<Parameters, Status>>,
    reported: watch::Sender<(LatencyReport, usize)>,
}

impl Teller {
    pub(crate) fn start(first: Result<Parameters, Status>) -> Self {
        Self::start_at("127.0.0.1:0".parse().unwrap(), first)
    }

    pub(crate) fn start_at(address: SocketAddr, first: Result<Parameters, Status>) -> Self {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(address)).unwrap();
        let address = listener.local_addr().unwrap();
        let (says, heard) = watch::channel(first);
        let (sender, reported) = watch::channel(Default::default());
        let said = Says {
            heard,
            reported: sender,
        };
        let served = Server::builder()
            .add_service(ParamsServer::new(said))
            .serve_with_incoming(TcpIncoming::from(listener));
        runtime.spawn(served);
        Self {
            says,
            reported,
            address,
            _runtime: runtime,
        }
    }

    pub(crate) fn place(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn say(&self, says: Result<Parameters, Status>) {
        drop(self.says.send_replace(says));
    }
}

#[tonic::async_trait]
impl Params for Says {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<Parameters, Status>> + Send>>;

    async fn watch(
        &self,
        _request: Request<WatchRequest>,
    ) -> Result<Response<Self::WatchStream>, Status> {
        let mut heard = self.heard.clone();
        heard.mark_changed();
        let stream = unfold(Some(heard), async |heard| {
            let mut heard = heard?;
            heard.changed().await.ok()?;
            let says = heard.borrow_and_update().clone();
            let next = says.is_ok().then_some(heard);
            Some((says, next))
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
