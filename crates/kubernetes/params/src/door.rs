//! Lets connections in: counted, in all and by peer, and each with the name that the kernel gives
//! its other end.

use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use futures_util::stream::{Stream, unfold};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tonic::transport::server::Connected;

use crate::counts::Counts;
use crate::known::Peer;
use crate::limits::{ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX};

/// How many of each peer are inside. Clones are the same.
#[derive(Clone, Debug)]
pub(crate) struct Crowd {
    inside: Arc<Mutex<HashMap<Peer, usize>>>,
    /// In all, and of one peer.
    most: (usize, usize),
}

/// One who is inside, until it is dropped.
#[derive(Debug)]
pub(crate) struct Pass {
    crowd: Crowd,
    peer: Peer,
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Full {
    All,
    /// For more of this peer.
    Peer,
}

impl Crowd {
    pub(crate) fn new(in_all: usize, of_one: usize) -> Self {
        Self {
            inside: Arc::default(),
            most: (in_all, of_one),
        }
    }

    pub(crate) fn enter(&self, peer: Peer) -> Result<Pass, Full> {
        let mut inside = self.lock();
        let of_peer = inside.get(&peer).copied().unwrap_or(0);
        if of_peer >= self.most.1 {
            return Err(Full::Peer);
        }
        if inside.values().sum::<usize>() >= self.most.0 {
            return Err(Full::All);
        }
        inside.insert(peer, of_peer + 1);
        let crowd = self.clone();
        Ok(Pass { crowd, peer })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Peer, usize>> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut inside = self.crowd.lock();
        if let Some(count) = inside.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                inside.remove(&self.peer);
            }
        }
    }
}

/// A listener of either kind.
#[derive(Debug)]
pub(crate) enum Door {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Door {
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

    /// The connections that were let in, for as long as somebody listens. One for which there is no
    /// room is closed at once.
    pub(crate) fn guests(
        self,
        counts: Counts,
    ) -> impl Stream<Item = io::Result<Guest>> + Send + 'static {
        let crowd = Crowd::new(CONNECTIONS_MAX, CONNECTIONS_PER_ADDRESS_MAX);
        unfold((self, crowd, counts), async |(door, crowd, counts)| {
            // bound: one pass each connection or ACCEPT_PAUSE, until nobody asks for the next.
            loop {
                match door.accept().await {
                    Ok((socket, peer)) => match crowd.enter(peer) {
                        Ok(pass) => {
                            counts.connections.inc();
                            let counted = counts.clone();
                            let guest = Guest {
                                socket,
                                peer,
                                _pass: pass,
                                counts: counted,
                            };
                            return Some((Ok(guest), (door, crowd, counts)));
                        }
                        Err(Full::All) => counts.refuse("full"),
                        Err(Full::Peer) => counts.refuse("full_pod"),
                    },
                    Err(error) => {
                        tracing::warn!(%error, "a connection was not accepted");
                        tokio::time::sleep(ACCEPT_PAUSE).await;
                    }
                }
            }
        })
    }
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

/// A connection that was let in.
#[derive(Debug)]
pub(crate) struct Guest {
    socket: Socket,
    peer: Peer,
    _pass: Pass,
    counts: Counts,
}

impl Drop for Guest {
    fn drop(&mut self) {
        self.counts.connections.dec();
    }
}

impl Connected for Guest {
    type ConnectInfo = Peer;

    fn connect_info(&self) -> Peer {
        self.peer
    }
}

impl AsyncRead for Guest {
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

impl AsyncWrite for Guest {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crowd_has_room_for_so_many_in_all_and_of_one() {
        let crowd = Crowd::new(3, 2);
        let (one, other, third) = (Peer::User(1), Peer::User(2), Peer::User(3));
        let first = crowd.enter(one).unwrap();
        let second = crowd.enter(one).unwrap();
        assert_eq!(crowd.enter(one).unwrap_err(), Full::Peer);
        let _of_other = crowd.enter(other).unwrap();
        assert_eq!(crowd.enter(third).unwrap_err(), Full::All);
        drop(first);
        let _of_third = crowd.enter(third).unwrap();
        drop(second);
        let inside = crowd.lock().clone();
        assert_eq!(inside, HashMap::from([(other, 1), (third, 1)]));
    }
}
