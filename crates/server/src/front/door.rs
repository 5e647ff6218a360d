//! Lets connections of one port in, makes room where there is none, and shows out those whose time
//! is over.
//!
//! A flood of connections that ask for nothing keeps nobody out: near the bound, those that never
//! sent a whole request are closed first, then those that have been idle longest. Only when all
//! are being served is a new one turned away.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Interval;

use super::bounds::Bound;
use super::limits::{
    ACCEPT_PAUSE, CONNECTIONS_MAX, CONNECTIONS_SPARE, CROWDED_OUT_AT_ONCE, SWEEP_PERIOD,
};
use super::seat::{Room, Seat, Told};
use super::wire;

/// A port.
struct Door<C> {
    converse: C,
    room: Arc<Room>,
    seats: Vec<Arc<Seat>>,
    inside: JoinSet<()>,
    /// Connections that may come in before it is looked for more room.
    granted: usize,
}

/// Accepts connections until `stopped` says so, and lets `converse` have each; returns when the last
/// one is closed.
pub(super) async fn serve<C, F>(
    listener: TcpListener,
    room: Arc<Room>,
    mut stopped: watch::Receiver<bool>,
    converse: C,
) where
    C: Fn(TcpStream, Arc<Seat>) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut door = Door {
        converse,
        room,
        seats: Vec::new(),
        inside: JoinSet::new(),
        granted: 0,
    };
    let mut sweep = tokio::time::interval(SWEEP_PERIOD);
    loop {
        // bound: ends when `stopped` says so; CONNECTIONS_MAX tasks at most
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => door.admit(stream),
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    door.make_room();
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            _ = sweep.tick() => door.sweep(),
            () = told(&mut stopped) => break,
        }
    }
    door.admit_those_who_wait(&listener).await;
    drop(listener);
    door.empty(&mut sweep).await;
}

/// Resolves when the server is told to stop.
async fn told(stopped: &mut watch::Receiver<bool>) {
    // An error: the sender is gone, which means the same.
    let _ = stopped.wait_for(|&stopped| stopped).await;
}

impl<C, F> Door<C>
where
    C: Fn(TcpStream, Arc<Seat>) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    fn admit(&mut self, stream: TcpStream) {
        while self.inside.try_join_next().is_some() {} // bound: connections that ended
        let inside = self.inside.len();
        if inside >= CONNECTIONS_MAX - CONNECTIONS_SPARE {
            match self.granted.checked_sub(1) {
                Some(granted) => self.granted = granted,
                None => self.make_room(),
            }
        }
        if inside >= CONNECTIONS_MAX {
            self.room.reached.count(Bound::Connections);
            let reply = wire::reply("503 Service Unavailable", "too many connections are open");
            let _ = stream.try_write(&reply); // as far as its socket buffer takes it
            return;
        }
        let seat = Arc::new(Seat::new(Arc::clone(&self.room)));
        self.seats.push(Arc::clone(&seat));
        self.inside.spawn((self.converse)(stream, seat));
    }

    /// Connections that the kernel has accepted are reset when their port is closed: they come in.
    async fn admit_those_who_wait(&mut self, listener: &TcpListener) {
        for _ in 0..CONNECTIONS_MAX {
            match tokio::time::timeout(Duration::ZERO, listener.accept()).await {
                Ok(Ok((stream, _))) => self.admit(stream),
                Ok(Err(_)) | Err(_) => return,
            }
        }
    }

    /// Tells those to leave that are least in need of their place.
    fn make_room(&mut self) {
        let ranked = self.seats.iter().enumerate();
        let mut ranked: Vec<_> = ranked
            .filter_map(|(place, seat)| Some((seat.rank()?, place)))
            .collect();
        let many = CROWDED_OUT_AT_ONCE.min(ranked.len());
        if many < ranked.len() {
            ranked.select_nth_unstable(many);
        }
        for &(_, place) in ranked.iter().take(many) {
            if let Some(seat) = self.seats.get(place) {
                seat.crowd_out();
            }
        }
        // Half of them, as some may turn out to be busy; a look for nothing is not repeated at once.
        self.granted = many.max(CROWDED_OUT_AT_ONCE) / 2;
    }

    /// Ends what has had its time.
    fn sweep(&mut self) {
        while self.inside.try_join_next().is_some() {} // bound: connections that ended
        let begins_era = self.room.tick();
        self.seats.retain(|seat| Arc::strong_count(seat) > 1); // one is the conversation's
        for seat in &self.seats {
            seat.look();
            if begins_era {
                seat.look_for_unread();
            }
        }
    }

    /// Waits until all connections are closed.
    async fn empty(&mut self, sweep: &mut Interval) {
        self.room.close();
        for seat in &self.seats {
            seat.tell(Told::Stop);
        }
        while !self.inside.is_empty() {
            // bound: connections end with what they are at; the caller bounds the whole
            tokio::select! {
                _ = self.inside.join_next() => {}
                _ = sweep.tick() => self.sweep(),
            }
        }
    }
}
