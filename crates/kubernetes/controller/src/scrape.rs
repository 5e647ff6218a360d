//! Scrapes the state of every built-in server: `GET http://<pod>:8080/albacore/v1/state`.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use albacore_cluster::{ObjectKey, WorkQueue};
use albacore_values::sentence;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper::header::{HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::limits::{
    COALESCE_DELAY, HEAD_BYTES_MAX, SCRAPE_PENDING, SCRAPE_PENDING_TIME, SCRAPE_PERIOD,
    SCRAPE_RETRY, SCRAPE_TICK, SCRAPE_TIME_MAX, SCRAPES_MAX, STATE_AGE_MAX, STATE_BYTES_MAX,
    STATE_MISSES_MAX,
};
use crate::metrics::{ControllerMetrics, ScrapeLabel};
use crate::names::{FIELD_MANAGER, HTTP_PORT, STATE_PATH};
use crate::server_state::ServerState;
use crate::watches::Watches;

/// Why a server's state could not be read.
#[derive(Debug, thiserror::Error)]
enum ScrapeError {
    #[error("cannot connect")]
    Connect(#[from] std::io::Error),
    #[error("HTTP error")]
    Http(#[from] hyper::Error),
    #[error("cannot build the request")]
    Request(#[from] hyper::http::Error),
    #[error("unexpected status {0}")]
    Status(StatusCode),
    #[error("the response is incomplete or too long")]
    Body(#[source] Box<dyn std::error::Error + Send + Sync>),
    #[error("invalid server state")]
    State(#[from] serde_json::Error),
    #[error("timed out")]
    Time,
}

/// The last state of one server.
#[derive(Clone, Debug)]
struct ServerEntry {
    address: IpAddr,
    last_attempt: Option<Instant>,
    /// Consecutive requests without a response.
    misses: u32,
    state: Option<(Arc<ServerState>, Instant)>,
    /// Whether it serves the requests of spare pods, which return as soon as it is overloaded.
    serves_spare_load: bool,
    /// Time since which its settings have been outdated.
    pending: Option<Instant>,
}

impl ServerEntry {
    fn new(address: IpAddr) -> Self {
        Self {
            address,
            last_attempt: None,
            misses: 0,
            state: None,
            serves_spare_load: false,
            pending: None,
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        let pending = self.pending.map(|since| now.duration_since(since));
        let period = match (&self.state, pending) {
            (Some(_), None) if !self.serves_spare_load => SCRAPE_PERIOD,
            (Some(_), None) => SCRAPE_RETRY,
            (Some(_), Some(age)) if age < SCRAPE_PENDING_TIME => SCRAPE_PENDING,
            (None, _) | (_, Some(_)) => SCRAPE_RETRY,
        };
        self.last_attempt
            .is_none_or(|at| now.duration_since(at) >= period)
    }
}

/// The last reported states of all servers. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct ServerStates {
    entries: Arc<Mutex<HashMap<ObjectKey, ServerEntry>>>,
}

impl ServerStates {
    fn lock(&self) -> MutexGuard<'_, HashMap<ObjectKey, ServerEntry>> {
        // Each entry is consistent at any time.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last reported state of the pod's server, unless it is stale.
    pub(crate) fn of(&self, pod: &ObjectKey) -> Option<ServerState> {
        let entries = self.lock();
        let (state, _) = entries.get(pod)?.state.as_ref()?;
        Some(ServerState::clone(state))
    }

    /// Sets whether the pod's server does not have the newest settings yet; then it is scraped more
    /// often.
    pub(crate) fn set_pending(&self, pod: &ObjectKey, is_pending: bool) {
        if let Some(entries) = self.lock().get_mut(pod) {
            match is_pending {
                true => _ = entries.pending.get_or_insert_with(Instant::now),
                false => entries.pending = None,
            }
        }
    }

    /// Sets whether the pod's server also serves the requests of spare pods; then it is scraped
    /// more often.
    pub(crate) fn set_serves_spare_load(&self, pod: &ObjectKey, serves_spare_load: bool) {
        if let Some(entry) = self.lock().get_mut(pod) {
            entry.serves_spare_load = serves_spare_load;
        }
    }

    /// Sets the address of a pod's server; `None` if it is not running.
    pub(crate) fn set_address(&self, pod: ObjectKey, address: Option<IpAddr>) {
        let mut entries = self.lock();
        let Some(address) = address else {
            entries.remove(&pod);
            return;
        };
        let entry = entries
            .entry(pod)
            .or_insert_with(|| ServerEntry::new(address));
        entry.address = address;
    }

    /// Records a response, or that there was none; returns true if that changes the state.
    fn record(&self, pod: &ObjectKey, state: Option<ServerState>) -> bool {
        let mut entries = self.lock();
        // The pod was deleted meanwhile.
        let Some(entry) = entries.get_mut(pod) else {
            return false;
        };
        let Some(state) = state else {
            entry.misses = entry.misses.saturating_add(1);
            let is_old = |at: Instant| at.elapsed() > STATE_AGE_MAX;
            let is_lost = entry.misses >= STATE_MISSES_MAX
                && entry.state.as_ref().is_some_and(|(_, at)| is_old(*at));
            if is_lost {
                entry.state = None;
            }
            return is_lost;
        };
        entry.misses = 0;
        let before = entry.state.replace((Arc::new(state), Instant::now()));
        let now = entry.state.as_ref().map(|(state, _)| state);
        before.as_ref().map(|(state, _)| state) != now
    }

    /// At most `limit` servers to scrape now, of those that `is_selected` accepts; marks them as
    /// scraped. Servers that responded last time come first, then those scraped longest ago. Thus
    /// any number of unresponsive or slow servers only delay each other, and delay the rest by at
    /// most one [`SCRAPE_TIME_MAX`]. Ties are broken by name, so that the servers of a deployment
    /// are scraped together.
    fn due(
        &self,
        limit: usize,
        now: Instant,
        is_selected: impl Fn(&ObjectKey) -> bool,
    ) -> Vec<(ObjectKey, IpAddr)> {
        let mut entries = self.lock();
        let due = entries.iter_mut().filter(|(_, entry)| entry.is_due(now));
        let mut due: Vec<_> = due.collect();
        due.sort_unstable_by_key(|(key, entry)| (entry.misses > 0, entry.last_attempt, *key));
        let selected = due.into_iter().filter_map(|(key, entry)| {
            entry.last_attempt = Some(now);
            is_selected(key).then(|| (key.clone(), entry.address))
        });
        selected.take(limit).collect()
    }
}

/// Scrapes servers until the program stops. Adds a deployment to `queue` when one of its servers
/// reports a change.
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
        let limit = SCRAPES_MAX.saturating_sub(running.len());
        for (pod, ip) in states.due(limit, Instant::now(), |pod| is_built_in(&watches, pod)) {
            let (watches, states) = (watches.clone(), states.clone());
            let (queue, counts) = (queue.clone(), counts.clone());
            running.spawn(async move {
                let response = request_state_with_timeout(SocketAddr::new(ip, HTTP_PORT)).await;
                if let Err(error) = &response {
                    let why = sentence(error);
                    tracing::debug!(pod = %pod, why, "cannot read the state of a server");
                }
                let result = if response.is_ok() {
                    "answered"
                } else {
                    "silent"
                };
                counts.scrapes.get_or_create(&ScrapeLabel { result }).inc();
                if states.record(&pod, response.ok()) {
                    let pod = watches.pods.get(&pod);
                    pod.and_then(|pod| pod.facts.owner.clone())
                        .into_iter()
                        .for_each(|key| queue.add_after(key, COALESCE_DELAY));
                }
            });
        }
    }
}

/// Whether the pod runs the built-in server.
fn is_built_in(watches: &Watches, pod: &ObjectKey) -> bool {
    let pod = watches.pods.get(pod);
    let key = pod.and_then(|pod| pod.facts.owner.clone());
    let deployment = key.and_then(|key| watches.deployments.get(&key));
    deployment.is_some_and(|deployment| deployment.spec.is_built_in())
}

/// Requests the state of a server, with a total timeout of [`SCRAPE_TIME_MAX`] regardless of what
/// it sends and how slowly.
async fn request_state_with_timeout(address: SocketAddr) -> Result<ServerState, ScrapeError> {
    let response = tokio::time::timeout(SCRAPE_TIME_MAX, request_state(address)).await;
    response.map_err(|_| ScrapeError::Time)?
}

async fn request_state(address: SocketAddr) -> Result<ServerState, ScrapeError> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::Builder::new()
        .max_buf_size(HEAD_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await?;
    // Dropping this set closes the connection. An error of the connection also fails its request.
    let mut connections = JoinSet::new();
    connections.spawn(connection);
    let request = Request::get(STATE_PATH)
        .header(HOST, address.to_string())
        .header(USER_AGENT, FIELD_MANAGER)
        .body(Empty::<Bytes>::new())?;
    let response = sender.send_request(request).await?;
    if response.status() != StatusCode::OK {
        return Err(ScrapeError::Status(response.status()));
    }
    let body = Limited::new(response.into_body(), STATE_BYTES_MAX)
        .collect()
        .await;
    let body = body.map_err(ScrapeError::Body)?.to_bytes();
    Ok(serde_json::from_slice::<ServerState>(&body)?.bounded())
}

#[cfg(test)]
mod tests;
