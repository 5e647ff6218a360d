//! The accept loop of one port. It closes connections whose time is over, and idle ones when the
//! port is near [`CONNECTIONS_MAX`].
//!
//! A flood of connections that send nothing keeps nobody out: near the bound, those that never
//! sent a whole request are closed first, then those that have been idle longest. A new connection
//! is refused only when all others are being served.

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
    ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_SPARE, CROWDED_OUT_AT_ONCE, SWEEP_PERIOD,
};
use crate::state::{ConnState, Control, ListenerState};

struct Acceptor<H> {
    handler: Arc<H>,
    listener: Arc<ListenerState>,
    conns: Vec<Arc<ConnState>>,
    tasks: JoinSet<()>,
    /// Connections that may be accepted before idle ones are looked for again.
    granted: usize,
}

/// Accepts connections until `stopped` says so and answers their requests by `handler`; returns
/// when the last connection is closed. Arrivals at `socket` should be stamped
/// ([`albacore_os::stamp_arrivals`]), else [`ConnState::arrival`] is the time of the read.
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
        granted: 0,
    };
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    // Time in which this process had no cpu is not the clients': sweeps that were missed do not
    // count.
    sweep.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        // bound: ends when `stopped` says so; CONNECTIONS_MAX tasks at most
        tokio::select! {
            accepted = socket.accept() => match accepted {
                Ok((stream, _)) => acceptor.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    acceptor.make_room();
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

/// Resolves when the server stops.
async fn is_set(stopped: &mut watch::Receiver<bool>) {
    // An error: the sender is gone, which means the same.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

impl<H: Handler> Acceptor<H> {
    fn admit(&mut self, stream: TcpStream) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let open = self.tasks.len();
        if open >= CONNECTIONS_MAX - CONNECTIONS_SPARE {
            match self.granted.checked_sub(1) {
                Some(granted) => self.granted = granted,
                None => self.make_room(),
            }
        }
        if open >= CONNECTIONS_MAX {
            self.listener.limit_metrics.count(Limit::Connections);
            let reply = io::reply("503 Service Unavailable", "too many connections are open");
            let _ = stream.try_write(&reply); // as far as its socket buffer takes it
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

    /// Asks idle connections to close, those first that never sent a whole request.
    fn make_room(&mut self) {
        let ranked = self.conns.iter().enumerate();
        let mut ranked: Vec<_> = ranked
            .filter_map(|(place, conn)| Some((conn.rank()?, place)))
            .collect();
        let many = CROWDED_OUT_AT_ONCE.min(ranked.len());
        if many < ranked.len() {
            ranked.select_nth_unstable(many);
        }
        for &(_, place) in ranked.iter().take(many) {
            if let Some(conn) = self.conns.get(place) {
                conn.crowd_out();
            }
        }
        // Half of them, as some may turn out to be busy. A search without result is not repeated
        // at once.
        self.granted = many.max(CROWDED_OUT_AT_ONCE) / 2;
    }

    /// Ends connections whose time is over.
    fn sweep(&mut self) {
        while self.tasks.try_join_next().is_some() {} // bound: connections that ended
        let begins_epoch = self.listener.tick();
        self.conns.retain(|conn| Arc::strong_count(conn) > 1); // one is the connection's
        for conn in &self.conns {
            conn.look();
            if begins_epoch {
                conn.look_for_unread();
            }
        }
    }

    /// Waits until all connections are closed.
    async fn drain(&mut self, sweep: &mut Interval) {
        self.listener.close();
        for conn in &self.conns {
            conn.send_control(Control::Stop);
        }
        while !self.tasks.is_empty() {
            // bound: connections end with their current request; the caller bounds the whole
            tokio::select! {
                _ = self.tasks.join_next() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }
}
