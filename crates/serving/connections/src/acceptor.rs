//! The accept loops of one port, one per event loop. They close connections at their deadlines and
//! evict idle connections when the port is near [`CONNECTIONS_MAX`].
//!
//! Each event loop has its own listening socket (`SO_REUSEPORT`), to which the kernel assigns
//! connections by a hash. A small number of connections is distributed unevenly by the hash; a loop
//! therefore hands an accepted connection over to the loop with the fewest connections.
//!
//! Many connections that send nothing cannot lock out other clients: near the limit, connections
//! that never sent a complete request are evicted first, then those that have been idle longest. A
//! new connection is refused only if all others are serving requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::error::TrySendError;
use tokio::sync::{Barrier, mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::connection::{self, Handler};
use crate::connection_count::ConnectionCount;
use crate::io;
use crate::limit_metrics::{Limit, LimitMetrics};
use crate::limits::{
    ACCEPT_PAUSE, ACCEPTS_AT_ONCE, CONNECTIONS_MAX, CONNECTIONS_SPARE, EVICTIONS_AT_ONCE,
    SWEEP_PERIOD,
};
use crate::shutdown::{ShutdownStage, next_stage};
use crate::state::{ConnState, Control, ListenerState, UnsentBytes};

/// Capacity of the handover channel of a loop.
const HANDOVERS_MAX: usize = 256;

/// One event loop of a port, as seen by the other loops.
#[derive(Debug)]
struct PeerLoop {
    /// Open connections, including those being handed over.
    open: AtomicUsize,
    total: ConnectionCount,
    handovers: mpsc::Sender<AcceptedConnection>,
}

/// A connection accepted by another loop.
type AcceptedConnection = (std::net::TcpStream, OpenGuard);

/// The part of a port that one event loop serves.
#[derive(Debug)]
pub struct LoopAcceptor {
    peers: Arc<[PeerLoop]>,
    index: usize,
    handovers: mpsc::Receiver<AcceptedConnection>,
    /// Loops that have stopped accepting wait here for the others.
    listening: Arc<Barrier>,
    unsent_bytes: UnsentBytes,
    limit_metrics: LimitMetrics,
}

/// Divides a port among this number of event loops; all of them count their connections in `total`.
#[must_use]
pub fn create_acceptors(
    loops: usize,
    limit_metrics: &LimitMetrics,
    total: &ConnectionCount,
) -> Vec<LoopAcceptor> {
    let channels = (0..loops).map(|_| mpsc::channel(HANDOVERS_MAX));
    let (senders, receivers): (Vec<_>, Vec<_>) = channels.unzip();
    let peer = |handovers| PeerLoop {
        open: AtomicUsize::new(0),
        total: total.clone(),
        handovers,
    };
    let peers: Arc<[PeerLoop]> = senders.into_iter().map(peer).collect();
    let unsent_bytes = UnsentBytes::default();
    let listening = Arc::new(Barrier::new(loops));
    let share = |(index, handovers)| LoopAcceptor {
        peers: Arc::clone(&peers),
        index,
        handovers,
        listening: Arc::clone(&listening),
        unsent_bytes: unsent_bytes.clone(),
        limit_metrics: limit_metrics.clone(),
    };
    receivers.into_iter().enumerate().map(share).collect()
}

/// Counts a connection of a loop as open until it is dropped.
#[derive(Debug)]
struct OpenGuard {
    peers: Arc<[PeerLoop]>,
    index: usize,
}

impl OpenGuard {
    fn new(peers: &Arc<[PeerLoop]>, index: usize) -> Self {
        peers[index].open.fetch_add(1, Ordering::Relaxed);
        peers[index].total.add();
        let peers = Arc::clone(peers);
        Self { peers, index }
    }

    /// Counts a connection for the loop with the fewest connections; prefers `local` on a tie.
    fn for_least_loaded(peers: &Arc<[PeerLoop]>, local: usize) -> Self {
        let open = |index: usize| peers[index].open.load(Ordering::Relaxed);
        let least = (0..peers.len()).min_by_key(|&index| (open(index), index != local));
        Self::new(peers, least.unwrap_or(local))
    }
}

impl Drop for OpenGuard {
    fn drop(&mut self) {
        self.peers[self.index].open.fetch_sub(1, Ordering::Relaxed);
        self.peers[self.index].total.remove();
    }
}

struct Acceptor<H> {
    handler: Arc<H>,
    listener: Arc<ListenerState>,
    peers: Arc<[PeerLoop]>,
    index: usize,
    connections_max: usize,
    conns: Vec<Arc<ConnState>>,
    tasks: JoinSet<()>,
    /// Connections that may be accepted before the next eviction.
    evictions_left: usize,
}

/// Accepts connections until `shutdown` reaches a closing stage and serves their requests with
/// `handler`; returns when the last connection of this share is closed. Arrivals at `socket` should
/// be timestamped ([`albacore_os::enable_receive_timestamps`]); otherwise [`ConnState::arrival`] is
/// the time of the read.
pub async fn serve<H: Handler>(
    socket: TcpListener,
    share: LoopAcceptor,
    mut shutdown: watch::Receiver<ShutdownStage>,
    handler: Arc<H>,
) {
    let LoopAcceptor {
        peers,
        index,
        mut handovers,
        listening,
        unsent_bytes,
        limit_metrics,
    } = share;
    let listener = ListenerState::new(limit_metrics, unsent_bytes);
    let mut acceptor = Acceptor {
        handler,
        listener: Arc::new(listener),
        connections_max: CONNECTIONS_MAX.div_ceil(peers.len()),
        peers,
        index,
        conns: Vec::new(),
        tasks: JoinSet::new(),
        evictions_left: 0,
    };
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    // Missed sweeps are skipped, so that time without CPU for this process does not expire the
    // deadlines of clients.
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut accepted_at_once = 0;
    let stage = loop {
        // bound: ends when `shutdown` reaches a closing stage; CONNECTIONS_MAX tasks at most
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => {
                    acceptor.distribute(stream);
                    accepted_at_once += 1;
                    if accepted_at_once == ACCEPTS_AT_ONCE {
                        accepted_at_once = 0;
                        tokio::task::yield_now().await;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    acceptor.evict();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(handover) = handovers.recv() => acceptor.take_over(handover),
            _ = sweep.tick() => acceptor.sweep(),
            stage = next_stage(&mut shutdown) => match stage {
                ShutdownStage::Serving => {}
                ShutdownStage::Announced => acceptor.listener.announce(),
                ShutdownStage::Closing | ShutdownStage::Replaced => break stage,
            },
        }
    };
    acceptor.admit_pending(&socket).await;
    drop(socket);
    // Clients reconnect as soon as their connections are closed. A reconnection to a listening
    // socket that is then closed would be reset, so all loops close their sockets first.
    listening.wait().await;
    handovers.close();
    while let Ok(handover) = handovers.try_recv() {
        // bound: HANDOVERS_MAX, because the channel is closed
        acceptor.take_over(handover);
    }
    if stage == ShutdownStage::Closing {
        acceptor.listener.announce();
    }
    acceptor.drain(&mut sweep).await;
}

impl<H: Handler> Acceptor<H> {
    /// Passes an accepted connection to the loop with the fewest connections.
    fn distribute(&mut self, stream: TcpStream) {
        let guard = OpenGuard::for_least_loaded(&self.peers, self.index);
        if guard.index == self.index {
            return self.admit(stream, guard);
        }
        let handed_over = stream.into_std().map(|stream| {
            let target = &self.peers[guard.index].handovers;
            target.try_send((stream, guard))
        });
        match handed_over {
            Ok(Ok(())) => {}
            // The other loop is stopping or its channel is full: serve the connection here.
            Ok(Err(TrySendError::Full((stream, _)) | TrySendError::Closed((stream, _)))) => {
                self.take_over((stream, OpenGuard::new(&self.peers, self.index)));
            }
            Err(error) => tracing::warn!(%error, "a connection could not be handed over"),
        }
    }

    /// Serves a connection handed over by another loop.
    fn take_over(&mut self, (stream, guard): AcceptedConnection) {
        match TcpStream::from_std(stream) {
            Ok(stream) => self.admit(stream, guard),
            Err(error) => tracing::warn!(%error, "a connection could not be taken over"),
        }
    }

    fn admit(&mut self, stream: TcpStream, guard: OpenGuard) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let open = self.tasks.len();
        if open >= self.connections_max - CONNECTIONS_SPARE / self.peers.len() {
            match self.evictions_left.checked_sub(1) {
                Some(left) => self.evictions_left = left,
                None => self.evict(),
            }
        }
        if open >= self.connections_max {
            self.listener.limit_metrics.count(Limit::Connections);
            let reply =
                io::closing_reply("503 Service Unavailable", "too many connections are open");
            let _ = stream.try_write(&reply); // best effort
            return;
        }
        let conn = Arc::new(ConnState::new(Arc::clone(&self.listener)));
        self.conns.push(Arc::clone(&conn));
        let connection = connection::serve_socket(stream, conn, Arc::clone(&self.handler));
        self.tasks.spawn(async move {
            connection.await;
            drop(guard);
        });
    }

    /// Accepts the connections in the accept queue, which closing the socket would reset.
    async fn admit_pending(&mut self, socket: &TcpListener) {
        for _ in 0..self.connections_max {
            match tokio::time::timeout(Duration::ZERO, socket.accept()).await {
                Ok(Ok((stream, _))) => {
                    self.admit(stream, OpenGuard::new(&self.peers, self.index));
                }
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Asks connections to close, in the order of [`ConnState::eviction_rank`].
    fn evict(&mut self) {
        let ranked = self.conns.iter().enumerate();
        let mut ranked: Vec<_> = ranked
            .filter_map(|(index, conn)| Some((conn.eviction_rank()?, index)))
            .collect();
        let count = EVICTIONS_AT_ONCE.min(ranked.len());
        if count < ranked.len() {
            ranked.select_nth_unstable(count);
        }
        for &(_, index) in ranked.iter().take(count) {
            if let Some(conn) = self.conns.get(index) {
                conn.evict();
            }
        }
        // Only half of them, because some may receive a request before they close. The minimum
        // keeps a search without a result from being repeated for every connection.
        self.evictions_left = count.max(EVICTIONS_AT_ONCE) / 2;
    }

    /// Closes connections whose deadline has passed.
    fn sweep(&mut self) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let begins_epoch = self.listener.tick();
        self.conns.retain(|conn| Arc::strong_count(conn) > 1); // one is held by the connection
        for conn in &self.conns {
            conn.check_deadline();
            if begins_epoch {
                conn.check_unsent_replies();
            }
        }
    }

    /// Closes all connections gracefully and waits until they are closed.
    async fn drain(&mut self, sweep: &mut Interval) {
        self.listener.close();
        for conn in &self.conns {
            conn.send_control(Control::Shutdown);
        }
        while !self.tasks.is_empty() {
            // bound: connections end with their current request; the caller limits the total time
            tokio::select! {
                _ = self.tasks.join_next() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use bytes::Bytes;
    use hyper::body::{Body, Frame, Incoming};
    use hyper::{Request, Response};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::ActiveRequest;

    struct Empty;

    impl Body for Empty {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            self: std::pin::Pin<&mut Self>,
            _: &mut std::task::Context<'_>,
        ) -> std::task::Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            std::task::Poll::Ready(None)
        }

        fn is_end_stream(&self) -> bool {
            true
        }
    }

    /// Counts the requests served by one event loop.
    #[derive(Default)]
    struct CountingHandler(AtomicUsize);

    impl Handler for CountingHandler {
        type Body = Empty;

        async fn answer(
            self: Arc<Self>,
            _: Request<Incoming>,
            _: ActiveRequest,
        ) -> Response<Empty> {
            self.0.fetch_add(1, Ordering::Relaxed);
            Response::new(Empty)
        }
    }

    async fn send_request(stream: &mut TcpStream) {
        let request = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";
        stream.write_all(request).await.unwrap();
        let mut reply = [0; 1024];
        let bytes = stream.read(&mut reply).await.unwrap();
        assert!(reply[..bytes].starts_with(b"HTTP/1.1 200 "), "{reply:?}");
    }

    #[tokio::test]
    async fn connections_of_one_socket_are_divided_evenly_among_the_event_loops() {
        let (stop, stopped) = watch::channel(ShutdownStage::Serving);
        let mut addresses = Vec::new();
        let (mut handlers, mut loops) = (Vec::new(), JoinSet::new());
        let memory = albacore_os::SharedMemory::create("test", 8192).unwrap();
        let total = ConnectionCount::new(memory.map_words().unwrap());
        let total_open = || memory.map_words().unwrap().words()[0].load(Ordering::Relaxed);
        for share in create_acceptors(3, &LimitMetrics::default(), &total) {
            let socket = TcpListener::bind("127.0.0.1:0").await.unwrap();
            addresses.push(socket.local_addr().unwrap());
            let handler = Arc::new(CountingHandler::default());
            handlers.push(Arc::clone(&handler));
            loops.spawn(serve(socket, share, stopped.clone(), handler));
        }
        // All connections are accepted by the first loop.
        let mut streams = Vec::new();
        for _ in 0..9 {
            let mut stream = TcpStream::connect(addresses[0]).await.unwrap();
            send_request(&mut stream).await;
            streams.push(stream);
        }
        let counts = || handlers.iter().map(|it| it.0.load(Ordering::Relaxed));
        assert_eq!(counts().collect::<Vec<_>>(), [3, 3, 3]);
        // A connection stays in its loop; closed connections free capacity in their loop.
        send_request(&mut streams[1]).await;
        assert_eq!(counts().sum::<usize>(), 10);
        streams.truncate(3);
        while handlers.iter().map(Arc::strong_count).sum::<usize>() > 3 * 2 + 3 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        for _ in 0..3 {
            let mut stream = TcpStream::connect(addresses[2]).await.unwrap();
            send_request(&mut stream).await;
            streams.push(stream);
        }
        let counts: Vec<_> = counts().collect();
        assert!(
            counts.iter().all(|&count| (4..=5).contains(&count)),
            "{counts:?}"
        );
        assert_eq!(total_open(), 6);
        stop.send_replace(ShutdownStage::Closing);
        drop(streams);
        while loops.join_next().await.is_some() {}
        assert_eq!(total_open(), 0);
    }
}
