//! The connections of a leader's writes, apart from those of its reads: no byte leaves them once
//! writes are not permitted.
//!
//! A request that is checked when it is handed over still passes the HTTP and TLS layers. A process
//! that is paused there and goes on after its lease would send what it was permitted long ago. So
//! these connections ask again before each system call that sends; what is left is the time between
//! two machine instructions.

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

use crate::gatekeeper::{Gatekeeper, Stopped};

/// A client as the gatekeeper holds it.
pub(crate) type Sender = BoxService<Request<Body>, Response<Box<DynBody>>, BoxError>;

/// The client for the writes of a process that has to lead.
pub(crate) fn sender(
    config: &Config,
    keeper: &Arc<Gatekeeper>,
) -> Result<Sender, kube_client::Error> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(config.connect_timeout);
    let keeper = keeper.clone();
    let guarded = Connector { tcp, keeper };
    let https = config.rustls_https_connector_with_connector(guarded)?;
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

/// Makes connections that ask before they send.
#[derive(Clone)]
struct Connector {
    tcp: HttpConnector,
    keeper: Arc<Gatekeeper>,
}

type Connecting = Pin<Box<dyn Future<Output = Result<Wire<TcpWire>, BoxError>> + Send>>;
type TcpWire = <HttpConnector as Service<Uri>>::Response;

impl Service<Uri> for Connector {
    type Response = Wire<TcpWire>;
    type Error = BoxError;
    type Future = Connecting;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, uri: Uri) -> Connecting {
        let (connecting, keeper) = (self.tcp.call(uri), self.keeper.clone());
        Box::pin(async move {
            let inner = connecting.await?;
            Ok(Wire { inner, keeper })
        })
    }
}

/// A connection that asks before it sends.
struct Wire<S> {
    inner: S,
    keeper: Arc<Gatekeeper>,
}

impl<S> Wire<S> {
    fn permitted(&self) -> io::Result<()> {
        match self.keeper.permit().is_valid(Instant::now()) {
            true => Ok(()),
            false => Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                Stopped::CutOff,
            )),
        }
    }
}

impl<S: Connection> Connection for Wire<S> {
    fn connected(&self) -> Connected {
        self.inner.connected()
    }
}

impl<S: Read + Unpin> Read for Wire<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(context, buffer)
    }
}

impl<S: Write + Unpin> Write for Wire<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.permitted()?;
        Pin::new(&mut self.inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.permitted()?;
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
