//! The open loop: requests are sent at their times, whatever the server does.
//!
//! One thread does all of it. A task sleeps to each intended time by a timer of the kernel, since
//! those of the runtime are no finer than a millisecond, and hands what is due to connections that
//! are idle, the last used first: its memory is warm. What finds no connection waits in the order
//! of its times.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use albacore_os::Alarm;
use tokio::io::unix::AsyncFd;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, LocalSet};

use crate::connection::{Connection, Message, NO_ANSWER};
use crate::drive::{LoadError, Sample};

/// How long an answer may take before it counts as none: a server that hangs must not hang the run.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(60);

/// The least that the generator sleeps. What is due meanwhile is sent together and up to this much
/// late, which its latency includes. That it saves the generator's cpu time was not seen.
const SLEEP_MIN: Duration = Duration::from_micros(50);

/// A request that is to be sent.
#[derive(Clone, Copy)]
struct Due {
    index: usize,
    intended: Duration,
    /// How much later than intended the generator itself was.
    lag: Duration,
}

/// What the tasks of a run share.
#[derive(Default)]
struct Shared {
    /// bound: all arrivals of the run are known.
    due: VecDeque<Due>,
    /// What wakes connections that are idle.
    idle: Vec<Rc<Notify>>,
    samples: Vec<Sample>,
    is_over: bool,
}

struct Run {
    messages: Arc<[Message]>,
    start: Instant,
    shared: RefCell<Shared>,
}

/// Runs it on `runtime`, of which it takes the thread.
pub(crate) fn run(
    runtime: &tokio::runtime::Runtime,
    messages: &Arc<[Message]>,
    times: &[Duration],
    connections: usize,
) -> Result<Vec<Sample>, LoadError> {
    let run = Rc::new(Run {
        messages: Arc::clone(messages),
        start: Instant::now(),
        shared: RefCell::default(),
    });
    let local = LocalSet::new();
    runtime.block_on(local.run_until(async {
        let open = run.pace(times, connections).await?;
        for connection in open {
            connection.await.map_err(|_| LoadError::Incomplete)?;
        }
        Ok::<_, LoadError>(())
    }))?;
    Ok(std::mem::take(&mut run.shared.borrow_mut().samples))
}

impl Run {
    /// Hands out each request at its time; the connections that it needed.
    async fn pace(
        self: &Rc<Self>,
        times: &[Duration],
        connections: usize,
    ) -> Result<Vec<JoinHandle<()>>, LoadError> {
        let alarm = Alarm::new()?;
        let readable = readable(
            alarm
                .as_fd()
                .try_clone_to_owned()
                .map_err(LoadError::Runtime)?,
        )?;
        let mut open = Vec::new();
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
                // Answers are read also while more is due than can be sent.
                tokio::task::yield_now().await;
            }
            let lag = self.start.elapsed().saturating_sub(intended);
            let mut shared = self.shared.borrow_mut();
            shared.due.push_back(Due {
                index,
                intended,
                lag,
            });
            match shared.idle.pop() {
                Some(idle) => idle.notify_one(),
                None if open.len() < connections => {
                    open.push(tokio::task::spawn_local(Rc::clone(self).converse()));
                }
                None => {}
            }
        }
        let mut shared = self.shared.borrow_mut();
        shared.is_over = true;
        shared.idle.drain(..).for_each(|idle| idle.notify_one());
        Ok(open)
    }

    /// One connection: sends what is due until nothing will be.
    async fn converse(self: Rc<Self>) {
        let (mut connection, woken) = (Connection::default(), Rc::new(Notify::new()));
        // bound: one pass for each request that it sends, and each time that it is woken.
        loop {
            let due = self.shared.borrow_mut().due.pop_front();
            let Some(due) = due else {
                if self.shared.borrow().is_over {
                    return;
                }
                self.shared.borrow_mut().idle.push(Rc::clone(&woken));
                woken.notified().await;
                continue;
            };
            let request = due.index % self.messages.len();
            let exchange = connection.exchange(&self.messages[request]);
            let answer = tokio::time::timeout(ANSWER_TIME_MAX, exchange).await;
            let (status, run) = answer.unwrap_or((NO_ANSWER, None));
            let sample = Sample {
                intended: due.intended,
                latency: self.start.elapsed().saturating_sub(due.intended),
                status,
                run,
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
