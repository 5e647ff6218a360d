//! Accepts connections: limits their number in total and per peer, and attaches the peer's identity
//! as reported by the kernel.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_util::stream::{Stream, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tonic::transport::server::Connected;

use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX};
use crate::metrics::ParamsMetrics;
use crate::peer_limit::{LimitReached, PeerLimiter, PeerPermit};
use crate::snapshots::Peer;

#[derive(Debug)]
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    async fn accept(&self) -> io::Result<(Socket, Peer)> {
        match self {
            Self::Tcp(listener) => {
                let (stream, address) = listener.accept().await?;
                stream.set_nodelay(true)?;
                let peer = Peer::Address(address.ip().to_canonical());
                Ok((Socket::Tcp(stream), peer))
            }
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = Peer::User(stream.peer_cred()?.uid());
                Ok((Socket::Unix(stream), peer))
            }
        }
    }

    /// The accepted connections, until the stream is dropped. A connection beyond a limit is closed
    /// immediately.
    pub(crate) fn connections(
        self,
        metrics: ParamsMetrics,
    ) -> impl Stream<Item = io::Result<Connection>> + Send + 'static {
        let limiter = PeerLimiter::new(CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX);
        unfold(
            (self, limiter, metrics),
            async |(listener, limiter, metrics)| {
                // bound: one pass for each connection or ACCEPT_PAUSE.
                loop {
                    match listener.accept().await {
                        Ok((socket, peer)) => match limiter.acquire(peer) {
                            Ok(permit) => {
                                metrics.connections.inc();
                                let connection = Connection {
                                    socket,
                                    peer,
                                    _permit: permit,
                                    metrics: metrics.clone(),
                                };
                                return Some((Ok(connection), (listener, limiter, metrics)));
                            }
                            Err(LimitReached::Total) => metrics.refuse("full"),
                            Err(LimitReached::Peer) => metrics.refuse("full_pod"),
                        },
                        Err(error) => {
                            tracing::warn!(%error, "cannot accept a connection");
                            tokio::time::sleep(ACCEPT_PAUSE).await;
                        }
                    }
                }
            },
        )
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// An accepted connection.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Socket,
    peer: Peer,
    _permit: PeerPermit,
    metrics: ParamsMetrics,
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.metrics.connections.dec();
    }
}

impl Connected for Connection {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
            Socket::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
            Socket::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_flush(context),
            Socket::Unix(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.socket {
            Socket::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
            Socket::Unix(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}
