//! Connections for the writes of a leader, separate from those for reads: they send no byte while
//! the write fence is closed.
//!
//! A request that passed the middleware still has to pass the HTTP and TLS layers. A process that
//! is paused there and resumes after its lease has expired would send a write that is no longer
//! permitted. Therefore these connections check the fence before each system call that sends; the
//! remaining window is the time between two machine instructions.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use http_body_util::BodyExt as _;
use hyper::http::Uri;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::{Request, Response};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::rt::TokioExecutor;
use kube_client::Config;
use kube_client::client::{Body, ConfigExt as _, DynBody};
use tower::util::BoxService;
use tower::{BoxError, Layer, Service, ServiceExt as _};

use crate::write_fence::WriteFence;

/// An HTTP client in the form in which kube passes it to its layers.
pub(crate) type HttpClient = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The client for writes that require the lease.
pub(crate) fn fenced_client(
    config: &Config,
    fence: &Arc<WriteFence>,
) -> Result<HttpClient, kube_client::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let fence = fence.clone();
    let connector = FencedConnector { tcp, fence };
    let https = config.rustls_https_connector_with_connector(connector)?;
    let client: Client<_, Body> = Client::builder(TokioExecutor::new()).build(https);
    let client = client.map_err(BoxError::from);
    let client = config.extra_headers_layer()?.layer(client);
    let client = tower::util::option_layer(config.auth_layer()?).layer(client);
    let client = config.base_uri_layer().layer(client.map_err(Into::into));
    let answered = client.map_response(|answer: Response<_>| {
        answer.map(|body| Box::new(body.map_err(BoxError::from)) as Box<DynBody>)
    });
    Ok(answered.boxed())
}

/// Opens connections that check the fence.
#[derive(Clone)]
struct FencedConnector {
    tcp: HttpConnector,
    fence: Arc<WriteFence>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<FencedIo<TcpIo>, BoxError>> + Send>>;
type TcpIo = <HttpConnector as Service<Uri>>::Response;

impl Service<Uri> for FencedConnector {
    type Response = FencedIo<TcpIo>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let (connecting, fence) = (self.tcp.call(uri), self.fence.clone());
        Box::pin(async move {
            let inner = connecting.await?;
            Ok(FencedIo { inner, fence })
        })
    }
}

/// A connection that checks the fence before each send.
struct FencedIo<S> {
    inner: S,
    fence: Arc<WriteFence>,
}

impl<S> FencedIo<S> {
    fn check_fence(&self) -> io::Result<()> {
        match self.fence.is_open(Instant::now()) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                "the lease of this process expired",
            )),
        }
    }
}

impl<S: Connection> Connection for FencedIo<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<S: Read + Unpin> Read for FencedIo<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for FencedIo<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.check_fence()?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.check_fence()?;
        Pin::new(&mut self.inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }
}
