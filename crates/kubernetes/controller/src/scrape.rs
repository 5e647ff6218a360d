//! Scrapes the state of every built-in server: `GET http://<pod>:8080/albacore/v1/state`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use albacore_cluster::{ObjectKey, WorkQueue};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::limits::{
    HEAD_BYTES_MAX, SCRAPE_PENDING, SCRAPE_PENDING_TIME, SCRAPE_PERIOD, SCRAPE_RETRY, SCRAPE_TICK,
    SCRAPE_TIME_MAX, SCRAPES_MAX, STATE_AGE_MAX, STATE_BYTES_MAX,
};
use crate::metrics::{ControllerMetrics, Scraped};
use crate::names::{FIELD_MANAGER, HTTP_PORT, STATE_PATH};
use crate::server_state::ServerState;
use crate::watches::{Watches, owner};

/// Why a server's state could not be read.
#[derive(Debug, thiserror::Error)]
enum Silence {
    #[error("it cannot be reached: {0}")]
    Connect(#[from] std::io::Error),
    #[error("it does not speak HTTP: {0}")]
    Http(#[from] hyper::Error),
    #[error("the request cannot be made: {0}")]
    Request(#[from] hyper::http::Error),
    #[error("it answers {0}")]
    Status(StatusCode),
    #[error("its answer breaks off or is too long: {0}")]
    Body(Box<dyn std::error::Error + Send + Sync>),
    #[error("its answer is not a state: {0}")]
    State(#[from] serde_json::Error),
    #[error("it does not answer in time")]
    Time(#[from] tokio::time::error::Elapsed),
}

/// The last state of one server.
#[derive(Clone, Debug, Default)]
struct ServerEntry {
    tried: Option<Instant>,
    /// Whether the last request was not answered.
    is_silent: bool,
    state: Option<(Arc<ServerState>, Instant)>,
    /// Whether it gets requests for others, which come back as soon as it has too many.
    is_watched: bool,
    /// Since when its settings have been older than the newest.
    pending: Option<Instant>,
}

impl ServerEntry {
    fn is_due(&self, now: Instant) -> bool {
        let pending = self.pending.map(|since| now.duration_since(since));
        let period = match (&self.state, pending) {
            (Some(_), None) if !self.is_watched => SCRAPE_PERIOD,
            (Some(_), None) => SCRAPE_RETRY,
            (Some(_), Some(age)) if age < SCRAPE_PENDING_TIME => SCRAPE_PENDING,
            (None, _) | (_, Some(_)) => SCRAPE_RETRY,
        };
        self.tried.is_none_or(|at| now.duration_since(at) >= period)
    }
}

/// The last states of all servers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerStates {
    entries: Arc<Mutex<HashMap<ObjectKey, ServerEntry>>>,
}

impl ServerStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, ServerEntry>> {
        // Each entry is consistent at every moment.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last state of the pod's server, unless it is outdated.
    pub(crate) fn of(&self, pod: &ObjectKey) -> Option<ServerState> {
        let entries = self.lock();
        let (state, _) = entries.get(pod)?.state.as_ref()?;
        Some(ServerState::clone(state))
    }

    /// Notes whether the pod's server does not have the newest settings yet: then it is scraped
    /// more often.
    pub(crate) fn set_pending(&self, pod: &ObjectKey, is_pending: bool) {
        if let Some(entries) = self.lock().get_mut(pod) {
            match is_pending {
                true => _ = entries.pending.get_or_insert_with(Instant::now),
                false => entries.pending = None,
            }
        }
    }

    /// Notes whether the pod's server gets the requests of spare pods, too: then it is scraped more
    /// often.
    pub(crate) fn set_watched(&self, pod: &ObjectKey, is_watched: bool) {
        if let Some(entry) = self.lock().get_mut(pod) {
            entry.is_watched = is_watched;
        }
    }

    /// Notes an answer, or that there was none; true if that changes the state.
    fn note(&self, pod: &ObjectKey, state: Option<ServerState>) -> bool {
        let mut entries = self.lock();
        // Deleted from the watch meanwhile.
        let Some(entries) = entries.get_mut(pod) else {
            return false;
        };
        entries.is_silent = state.is_none();
        match state {
            Some(state) => {
                let before = entries.state.replace((Arc::new(state), Instant::now()));
                let now = entries.state.as_ref().map(|(state, _)| state);
                before.as_ref().map(|(state, _)| state) != now
            }
            None => {
                let is_old = |at: Instant| at.elapsed() > STATE_AGE_MAX;
                let is_lost = entries.state.as_ref().is_some_and(|(_, at)| is_old(*at));
                if is_lost {
                    entries.state = None;
                }
                is_lost
            }
        }
    }

    /// The servers to be scraped now, marked as scraped; forgets those that are gone. Servers that
    /// answered last time come first, then those that were asked longest ago: however many servers
    /// are silent or slow, they wait for each other and delay the rest by at most one
    /// [`SCRAPE_TIME_MAX`].
    fn due(
        &self,
        servers: &[(ObjectKey, IpAddr)],
        room: usize,
        now: Instant,
    ) -> Vec<(ObjectKey, IpAddr)> {
        let mut entries = self.lock();
        if entries.len() > servers.len() {
            let names: std::collections::HashSet<&ObjectKey> =
                servers.iter().map(|(k, _)| k).collect();
            entries.retain(|key, _| names.contains(key));
        }
        let mut due = Vec::new();
        for (key, ip) in servers {
            let entries = entries.entry(key.clone()).or_default();
            if entries.is_due(now) {
                due.push((entries.is_silent, entries.tried, key, *ip));
            }
        }
        due.sort_by_key(|(is_silent, tried, ..)| (*is_silent, *tried));
        due.truncate(room);
        let due = due.into_iter().map(|(_, _, key, ip)| (key.clone(), ip));
        let due: Vec<_> = due.collect();
        for (key, _) in &due {
            entries.entry(key.clone()).or_default().tried = Some(now);
        }
        due
    }
}

/// Scrapes servers until the program stops. A deployment whose server reports a change is added to
/// `queue`.
pub(crate) async fn scrape(
    watches: Watches,
    states: ServerStates,
    queue: WorkQueue<ObjectKey>,
    counts: ControllerMetrics,
) {
    let mut running: JoinSet<()> = JoinSet::new();
    let mut tick = tokio::time::interval(SCRAPE_TICK);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // bound: until the program stops; one turn each SCRAPE_TICK, at most SCRAPES_MAX requests at
    // once.
    loop {
        tick.tick().await;
        while running.try_join_next().is_some() {}
        let servers = servers(&watches);
        let room = SCRAPES_MAX.saturating_sub(running.len());
        for (pod, ip) in states.due(&servers, room, Instant::now()) {
            let (watches, states) = (watches.clone(), states.clone());
            let (queue, counts) = (queue.clone(), counts.clone());
            running.spawn(async move {
                let answer = ask_in_time(SocketAddr::new(ip, HTTP_PORT)).await;
                if let Err(silence) = &answer {
                    tracing::debug!(pod = %pod, why = %silence, "a server did not tell its state");
                }
                let result = if answer.is_ok() { "answered" } else { "silent" };
                counts.scrapes.get_or_create(&Scraped { result }).inc();
                if states.note(&pod, answer.ok()) {
                    let pod = watches.pods.get(&pod);
                    pod.and_then(|pod| owner(&*pod))
                        .into_iter()
                        .for_each(|key| queue.add(key));
                }
            });
        }
    }
}

/// The built-in servers with an address.
fn servers(watches: &Watches) -> Vec<(ObjectKey, IpAddr)> {
    let pods = watches.pods.select(|pod| address(pod).is_some());
    let servers = pods.iter().filter_map(|pod| {
        let deployment = watches.deployments.get(&owner(&**pod)?)?;
        let ip = address(pod).filter(|_| deployment.spec.is_built_in())?;
        Some((ObjectKey::of(&**pod), ip))
    });
    servers.collect()
}

fn address(pod: &Pod) -> Option<IpAddr> {
    let status = pod.status.as_ref()?;
    let is_running = status.phase.as_deref() == Some("Running");
    let ip = status.pod_ip.as_deref()?.parse().ok()?;
    is_running.then_some(ip)
}

/// The state of a server, within [`SCRAPE_TIME_MAX`] in all, whatever it sends and however slowly.
async fn ask_in_time(address: SocketAddr) -> Result<ServerState, Silence> {
    tokio::time::timeout(SCRAPE_TIME_MAX, ask(address)).await?
}

async fn ask(address: SocketAddr) -> Result<ServerState, Silence> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    // Connections end with this set. An error of a connection also fails its request.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let request = Request::get(STATE_PATH)
        .header(HOST, address.to_string())
        .header(USER_AGENT, FIELD_MANAGER)
        .body(Empty::<Bytes>::new())?;
    let answer = sender.send_request(request).await?;
    if answer.status() != StatusCode::OK {
        return Err(Silence::Status(answer.status()));
    }
    let body = Limited::new(answer.into_body(), STATE_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(Silence::Body)?.to_bytes();
    Ok(serde_json::from_slice::<ServerState>(&body)?.bounded())
}

#[cfg(test)]
mod tests;
