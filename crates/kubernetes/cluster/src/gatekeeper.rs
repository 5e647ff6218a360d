//! The layer that every request passes: counted, within the budget, after the pauses that the API
//! server asks for, and, if it writes, only while this process may.
//!
//! It is the outermost layer, and retries nothing: a write that somebody below sent again would
//! pass no check.

use std::fmt;
use std::future::Future;
use std::num::{NonZeroU32, NonZeroU64};
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use hyper::http::header::RETRY_AFTER;
use hyper::{Request, Response, StatusCode};
use kube_client::client::{Body, DynBody};
use tower::{BoxError, Layer, Service};

use crate::budget::Budget;
use crate::limits::{BUDGET_WAIT_MAX, REQUEST_TIME_MAX, RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX};
use crate::metrics::{Asked, Metrics};
use crate::permit::Permit;
use crate::request::Described;
use crate::wire::Sender;

/// The exit code of a process that was killed, for tests that crash a program after a write.
const KILLED: i32 = 137;

/// Why a request ended here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stopped {
    /// A write of a process that does not hold its lease.
    NotLeading,
    /// The lease ended before the answer to a write came.
    CutOff,
    /// No answer within [`REQUEST_TIME_MAX`].
    TimedOut,
    /// The budget is spent for more than [`BUDGET_WAIT_MAX`].
    OverBudget,
}

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLeading => "this process does not hold its lease",
            Self::CutOff => "no answer before the lease of this process ended",
            Self::TimedOut => "no answer in time",
            Self::OverBudget => "the budget of requests is spent",
        })
    }
}

impl std::error::Error for Stopped {}

/// What all requests of a program have in common.
#[derive(Debug)]
pub(crate) struct Gatekeeper {
    started: Instant,
    budget: Mutex<Budget>,
    permit: Permit,
    writes: AtomicU64,
    crash_after_writes: Option<NonZeroU64>,
    metrics: Metrics,
}

impl Gatekeeper {
    pub(crate) fn new(
        permit: Permit,
        crash_after_writes: Option<NonZeroU64>,
        metrics: Metrics,
    ) -> Self {
        Self {
            started: Instant::now(),
            budget: Mutex::default(),
            permit,
            writes: AtomicU64::new(0),
            crash_after_writes,
            metrics,
        }
    }

    pub(crate) fn set_rate(&self, rate: NonZeroU32) {
        self.budget().set_rate(rate);
    }

    pub(crate) fn permit(&self) -> &Permit {
        &self.permit
    }

    pub(crate) fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    fn budget(&self) -> MutexGuard<'_, Budget> {
        self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The pause that the API server asked for and that is not over.
    pub(crate) fn pause_left(&self) -> Duration {
        self.budget().pause_left(self.started.elapsed())
    }

    async fn wait(&self) -> Result<(), Stopped> {
        let leaves = self.budget().reserve(self.started.elapsed());
        let wait = leaves.saturating_sub(self.started.elapsed());
        if wait > BUDGET_WAIT_MAX.max(RETRY_AFTER_MAX) {
            return Err(Stopped::OverBudget);
        }
        tokio::time::sleep(wait).await;
        // A pause may have been asked for meanwhile; one is never longer than RETRY_AFTER_MAX.
        tokio::time::sleep(self.pause_left()).await;
        Ok(())
    }

    /// What is due before a request leaves.
    async fn before(&self, described: &Described) -> Result<(), Stopped> {
        if described.is_lease() {
            return Ok(());
        }
        self.wait().await?;
        match described.is_guarded() && !self.permit.is_valid(Instant::now()) {
            true => Err(Stopped::NotLeading),
            false => Ok(()),
        }
    }

    /// Lets a request wait for its answer no longer than it may: a write that outlives the lease is
    /// cut off, before somebody else can lead. Whether it was carried out is then not known.
    async fn watch_over<T>(
        &self,
        described: &Described,
        answering: impl Future<Output = T>,
    ) -> Result<T, Stopped> {
        let ended = async {
            match described.is_guarded() {
                true => self.permit.ended().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            answer = answering => Ok(answer),
            () = ended => Err(Stopped::CutOff),
            () = tokio::time::sleep(REQUEST_TIME_MAX) => Err(Stopped::TimedOut),
        }
    }

    /// What an answer means for those to come.
    fn after<B>(&self, described: &Described, answer: &Response<B>) {
        let header = answer.headers().get(RETRY_AFTER);
        let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let pause = match (answer.status(), seconds) {
            (StatusCode::TOO_MANY_REQUESTS, None) => Some(RETRY_AFTER_DEFAULT),
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(seconds)) => {
                Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
            }
            _ => None,
        };
        if let Some(pause) = pause {
            self.budget().pause(self.started.elapsed() + pause);
        }
        if described.is_guarded() {
            let writes = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
            if self.crash_after_writes.is_some_and(|n| n.get() == writes) {
                // As a crash: nobody below or above learns what was answered.
                std::process::exit(KILLED);
            }
        }
    }

    fn count(&self, described: Described, code: String) {
        let Described { verb, resource } = described;
        let asked = Asked {
            verb,
            resource,
            code,
        };
        let requests = &self.metrics.counts().requests;
        requests.get_or_create(&asked).inc();
    }
}

/// Puts the gatekeeper around a client.
pub(crate) struct Gate {
    pub(crate) keeper: Arc<Gatekeeper>,
    /// The client for writes that need the lease; without one they take the way of all others.
    pub(crate) writes: Mutex<Option<Sender>>,
}

impl Layer<Sender> for Gate {
    type Service = Kept;

    fn layer(&self, others: Sender) -> Kept {
        let writes = self.writes.lock();
        let writes = writes.unwrap_or_else(PoisonError::into_inner).take();
        let shared = |sender| Arc::new(tokio::sync::Mutex::new(sender));
        Kept {
            others: shared(others),
            writes: writes.map(shared),
            keeper: self.keeper.clone(),
        }
    }
}

/// Held only while a request is handed over.
type Shared = Arc<tokio::sync::Mutex<Sender>>;

/// A client behind the gatekeeper.
pub(crate) struct Kept {
    others: Shared,
    writes: Option<Shared>,
    keeper: Arc<Gatekeeper>,
}

type Answer = Response<Box<DynBody>>;
type Answering = Pin<Box<dyn Future<Output = Result<Answer, BoxError>> + Send>>;

impl Service<Request<Body>> for Kept {
    type Response = Answer;
    type Error = BoxError;
    type Future = Answering;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Every request waits for itself.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Answering {
        let described = Described::of(request.method(), request.uri(), request.headers());
        let sender = match &self.writes {
            Some(writes) if described.is_guarded() => writes.clone(),
            _ => self.others.clone(),
        };
        let keeper = self.keeper.clone();
        Box::pin(async move {
            if let Err(stopped) = keeper.before(&described).await {
                keeper.count(described, "refused".to_owned());
                return Err(stopped.into());
            }
            match keeper.watch_over(&described, send(&sender, request)).await {
                Ok(Ok(answer)) => {
                    keeper.after(&described, &answer);
                    keeper.count(described, answer.status().as_u16().to_string());
                    Ok(answer)
                }
                Ok(Err(error)) => {
                    keeper.count(described, "failed".to_owned());
                    Err(error)
                }
                Err(stopped) => {
                    keeper.count(described, "failed".to_owned());
                    Err(stopped.into())
                }
            }
        })
    }
}

async fn send(
    sender: &tokio::sync::Mutex<Sender>,
    request: Request<Body>,
) -> Result<Answer, BoxError> {
    let answering = {
        let mut sender = sender.lock().await;
        std::future::poll_fn(|context| sender.poll_ready(context)).await?;
        sender.call(request)
    };
    answering.await
}

#[cfg(test)]
mod tests {
    use crate::Writes;

    use super::*;

    fn described(verb: &'static str, resource: &str) -> Described {
        let resource = resource.to_owned();
        Described { verb, resource }
    }

    #[tokio::test]
    async fn a_write_that_outlives_the_lease_is_cut_off_and_nothing_else_is() {
        let permit = Permit::new(Writes::WhileLeading);
        let keeper = Gatekeeper::new(permit, None, Metrics::new());
        let write = described("apply", "deployments");
        assert_eq!(keeper.before(&write).await, Err(Stopped::NotLeading));
        keeper
            .permit()
            .extend(Instant::now() + Duration::from_millis(50));
        assert_eq!(keeper.before(&write).await, Ok(()));
        let answering = std::future::pending::<()>();
        let cut = keeper.watch_over(&write, answering).await;
        assert_eq!(cut, Err(Stopped::CutOff));
        for (verb, resource) in [("get", "deployments"), ("update", "leases")] {
            let other = described(verb, resource);
            assert_eq!(keeper.before(&other).await, Ok(()));
            let answering = tokio::time::sleep(Duration::from_millis(5));
            assert_eq!(keeper.watch_over(&other, answering).await, Ok(()));
        }
    }
}
