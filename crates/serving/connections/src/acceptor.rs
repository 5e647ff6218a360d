//! The accept loop of one port. It closes connections at their deadlines, and evicts idle ones when
//! the port is near [`CONNECTIONS_MAX`].
//!
//! A flood of connections that send nothing does not block other clients: near the bound,
//! connections that never sent a complete request are evicted first, then those that have been idle
//! longest. A new connection is refused only if all others are being served.

use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Interval, MissedTickBehavior};

use crate::connection::{self, Handler};
use crate::io;
use crate::limit_metrics::{Limit, LimitMetrics};
use crate::limits::{
    ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_SPARE, EVICTIONS_AT_ONCE, SWEEP_PERIOD,
};
use crate::state::{ConnState, Control, ListenerState};

struct Acceptor<H> {
    handler: Arc<H>,
    listener: Arc<ListenerState>,
    conns: Vec<Arc<ConnState>>,
    tasks: JoinSet<()>,
    /// Connections that may be accepted before the next eviction.
    evictions_left: usize,
}

/// Accepts connections until `stopped` is true and answers their requests by `handler`; returns
/// when the last connection is closed. Arrivals at `socket` should be stamped
/// ([`albacore_os::stamp_arrivals`]), otherwise [`ConnState::arrival`] is the time of the read.
pub async fn serve<H: Handler>(
    socket: TcpListener,
    limit_metrics: LimitMetrics,
    mut stopped: watch::Receiver<bool>,
    handler: Arc<H>,
) {
    let mut acceptor = Acceptor {
        handler,
        listener: Arc::new(ListenerState::new(limit_metrics)),
        conns: Vec::new(),
        tasks: JoinSet::new(),
        evictions_left: 0,
    };
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    // Missed sweeps are skipped: clients are not charged for time in which this process had no CPU.
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // bound: ends when `stopped` is true; CONNECTIONS_MAX tasks at most
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => acceptor.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    acceptor.evict();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = sweep.tick() => acceptor.sweep(),
            () = is_set(&mut stopped) => break,
        }
    }
    acceptor.admit_pending(&socket).await;
    drop(socket);
    acceptor.drain(&mut sweep).await;
}

/// Resolves when the server shuts down.
async fn is_set(stopped: &mut watch::Receiver<bool>) {
    // An error means that the sender is dropped: that is a shutdown, too.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

impl<H: Handler> Acceptor<H> {
    fn admit(&mut self, stream: TcpStream) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let open = self.tasks.len();
        if open >= CONNECTIONS_MAX - CONNECTIONS_SPARE {
            match self.evictions_left.checked_sub(1) {
                Some(left) => self.evictions_left = left,
                None => self.evict(),
            }
        }
        if open >= CONNECTIONS_MAX {
            self.listener.limit_metrics.count(Limit::Connections);
            let reply =
                io::closing_reply("503 Service Unavailable", "too many connections are open");
            let _ = stream.try_write(&reply); // best effort
            return;
        }
        let conn = Arc::new(ConnState::new(Arc::clone(&self.listener)));
        self.conns.push(Arc::clone(&conn));
        let connection = connection::serve_socket(stream, conn, Arc::clone(&self.handler));
        self.tasks.spawn(connection);
    }

    /// Admits connections that the kernel has completed: closing the port would reset them.
    async fn admit_pending(&mut self, socket: &TcpListener) {
        for _ in 0..CONNECTIONS_MAX {
            match tokio::time::timeout(Duration::ZERO, socket.accept()).await {
                Ok(Ok((stream, _))) => self.admit(stream),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Asks idle connections to close, in the order of [`ConnState::eviction_rank`].
    fn evict(&mut self) {
        let ranked = self.conns.iter().enumerate();
        let mut ranked: Vec<_> = ranked
            .filter_map(|(place, conn)| Some((conn.eviction_rank()?, place)))
            .collect();
        let count = EVICTIONS_AT_ONCE.min(ranked.len());
        if count < ranked.len() {
            ranked.select_nth_unstable(count);
        }
        for &(_, place) in ranked.iter().take(count) {
            if let Some(conn) = self.conns.get(place) {
                conn.evict();
            }
        }
        // Half of them, since some may receive a request meanwhile. After a search without a result
        // some connections are accepted before the next one.
        self.evictions_left = count.max(EVICTIONS_AT_ONCE) / 2;
    }

    /// Closes connections whose deadline has passed.
    fn sweep(&mut self) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let begins_epoch = self.listener.tick();
        self.conns.retain(|conn| Arc::strong_count(conn) > 1); // one is the connection's
        for conn in &self.conns {
            conn.check_deadline();
            if begins_epoch {
                conn.check_unsent_replies();
            }
        }
    }

    /// Waits until all connections are closed.
    async fn drain(&mut self, sweep: &mut Interval) {
        self.listener.close();
        for conn in &self.conns {
            conn.send_control(Control::Shutdown);
        }
        while !self.tasks.is_empty() {
            // bound: connections end with their current request; the caller bounds the total time
            tokio::select! {
                _ = self.tasks.join_next() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }
}
