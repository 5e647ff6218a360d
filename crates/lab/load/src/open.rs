//! The open loop: requests are sent at their intended times, independent of the server.
//!
//! It runs on one thread. A task sleeps until each intended time with a kernel timer, because the
//! timers of the runtime have a resolution of a millisecond. It hands due requests to idle
//! connections, the most recently used first, whose memory is warm. Requests without a free
//! connection wait in FIFO order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use albacore_os::Timer;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};

use crate::StageTimes;
use crate::connection::{Connection, Message, NO_RESPONSE};
use crate::drive::{LoadError, Sample};

/// Timeout of a response: a server that hangs must not hang the run.
const RESPONSE_TIME_MAX: Duration = Duration::from_secs(60);

/// Shortest sleep of the generator. Requests that become due meanwhile are sent together, up to
/// this much late, which their latency includes.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// A request to be sent.
#[derive(Clone, Copy)]
struct DueRequest {
    index: usize,
    intended: Duration,
    /// Delay by the generator itself.
    lag: Duration,
}

/// State that the tasks of a run share.
#[derive(Default)]
struct Shared {
    /// bound: the arrivals of the run.
    due: VecDeque<DueRequest>,
    /// Wakers of the idle connections.
    idle: Vec<Rc<Notify>>,
    samples: Vec<Sample>,
    is_over: bool,
}

struct Run {
    messages: Arc<[Message]>,
    start: Instant,
    shared: RefCell<Shared>,
}

/// Runs the open loop on `runtime`; blocks the thread.
pub(crate) fn run(
    runtime: &tokio::runtime::Runtime,
    messages: &Arc<[Message]>,
    times: &[Duration],
    mut connections: Vec<Connection>,
) -> Result<(Vec<Sample>, Vec<Connection>), LoadError> {
    let run = Rc::new(Run {
        messages: Arc::clone(messages),
        start: Instant::now(),
        shared: RefCell::default(),
    });
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async {
        let used = run.dispatch(times, &mut connections).await?;
        for connection in used {
            connections.push(connection.await.map_err(|_| LoadError::Incomplete)?);
        }
        Ok::<_, LoadError>(())
    }))?;
    let samples = std::mem::take(&mut run.shared.borrow_mut().samples);
    Ok((samples, connections))
}

impl Run {
    /// Hands each request to a connection at its time; returns the connections that were used.
    async fn dispatch(
        self: &Rc<Self>,
        times: &[Duration],
        connections: &mut Vec<Connection>,
    ) -> Result<Vec<JoinHandle<Connection>>, LoadError> {
        let alarm = Timer::new()?;
        let readable = readable(
            alarm
                .as_fd()
                .try_clone_to_owned()
                .map_err(LoadError::Runtime)?,
        )?;
        let mut used = Vec::new();
        for (index, &intended) in times.iter().enumerate() {
            let left = intended.saturating_sub(self.start.elapsed());
            if !left.is_zero() {
                alarm.set(left.max(SLEEP_MIN))?;
                readable
                    .readable()
                    .await
                    .map_err(LoadError::Runtime)?
                    .clear_ready();
            } else if index % 64 == 0 {
                // Responses must be read even while more requests are due than can be sent.
                tokio::task::yield_now().await;
            }
            let lag = self.start.elapsed().saturating_sub(intended);
            let mut shared = self.shared.borrow_mut();
            shared.due.push_back(DueRequest {
                index,
                intended,
                lag,
            });
            match shared.idle.pop() {
                Some(idle) => idle.notify_one(),
                None => {
                    let running = |connection| Rc::clone(self).run_connection(connection);
                    let next = connections.pop().map(running);
                    used.extend(next.map(tokio::task::spawn_local));
                }
            }
        }
        let mut shared = self.shared.borrow_mut();
        shared.is_over = true;
        shared.idle.drain(..).for_each(|idle| idle.notify_one());
        Ok(used)
    }

    /// Sends due requests on one connection until none are left.
    async fn run_connection(self: Rc<Self>, mut connection: Connection) -> Connection {
        let woken = Rc::new(Notify::new());
        // bound: one pass for each request that it sends, and for each wake-up.
        loop {
            let due = self.shared.borrow_mut().due.pop_front();
            let Some(due) = due else {
                if self.shared.borrow().is_over {
                    return connection;
                }
                self.shared.borrow_mut().idle.push(Rc::clone(&woken));
                woken.notified().await;
                continue;
            };
            let request = due.index % self.messages.len();
            let sent = self.start.elapsed();
            let exchange = connection.exchange(&self.messages[request]);
            let answer = tokio::time::timeout(RESPONSE_TIME_MAX, exchange).await;
            let (status, stages) = answer.unwrap_or((NO_RESPONSE, StageTimes::default()));
            let sample = Sample {
                intended: due.intended,
                sent,
                latency: self.start.elapsed().saturating_sub(due.intended),
                status,
                stages,
                request,
                lag: due.lag,
            };
            self.shared.borrow_mut().samples.push(sample);
        }
    }
}

#[allow(
    deprecated,
    reason = "unsound only for descriptors that are closed while registered, which an OwnedFd is not; \
              its successor is an unsafe function"
)]
fn readable(fd: OwnedFd) -> Result<AsyncFd<OwnedFd>, LoadError> {
    AsyncFd::with_interest(fd, tokio::io::Interest::READABLE).map_err(LoadError::Runtime)
}
