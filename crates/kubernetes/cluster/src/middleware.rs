//! The middleware for all requests: counts the request, enforces the rate limit and the pauses that
//! the API server requires, and rejects writes while the write fence is closed.
//!
//! It is the outermost layer and does not retry: a retry in a lower layer would bypass its checks.

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

use crate::fenced_client::HttpClient;
use crate::limits::{BUDGET_WAIT_MAX, REQUEST_TIME_MAX, RETRY_AFTER_DEFAULT, RETRY_AFTER_MAX};
use crate::metrics::{MetricsRegistry, RequestLabels};
use crate::rate_limit::RateLimit;
use crate::request::RequestInfo;
use crate::write_fence::WriteFence;

/// The exit code of a killed process, for tests that crash a program after a write.
const KILLED: i32 = 137;

/// Reason why the middleware aborted a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Aborted {
    /// The process does not hold its lease, so a write was not sent.
    NotLeading,
    /// The lease ended before the response to a write arrived.
    LeaseEnded,
    /// No response within [`REQUEST_TIME_MAX`].
    TimedOut,
    /// The rate limit would delay the request for longer than [`BUDGET_WAIT_MAX`].
    OverBudget,
}

impl fmt::Display for Aborted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotLeading => "this process does not hold its lease",
            Self::LeaseEnded => "no response before the lease of this process expired",
            Self::TimedOut => "timed out",
            Self::OverBudget => "the rate limit is exhausted",
        })
    }
}

impl std::error::Error for Aborted {}

/// The state shared by all requests of a program.
#[derive(Debug)]
pub(crate) struct RequestControl {
    started: Instant,
    rate_limit: Mutex<RateLimit>,
    fence: Arc<WriteFence>,
    writes: AtomicU64,
    crash_after_writes: Option<NonZeroU64>,
    metrics: MetricsRegistry,
}

impl RequestControl {
    pub(crate) fn new(
        fence: Arc<WriteFence>,
        crash_after_writes: Option<NonZeroU64>,
        metrics: MetricsRegistry,
    ) -> Self {
        let control = Self {
            started: Instant::now(),
            rate_limit: Mutex::default(),
            fence,
            writes: AtomicU64::new(0),
            crash_after_writes,
            metrics,
        };
        control.export_rate(&control.rate_limit());
        control
    }

    pub(crate) fn set_rate(&self, rate: NonZeroU32) {
        let mut rate_limit = self.rate_limit();
        rate_limit.set_rate(rate);
        self.export_rate(&rate_limit);
    }

    pub(crate) fn fence(&self) -> &WriteFence {
        &self.fence
    }

    pub(crate) fn metrics(&self) -> &MetricsRegistry {
        &self.metrics
    }

    fn rate_limit(&self) -> MutexGuard<'_, RateLimit> {
        self.rate_limit
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// The remaining part of the pause that the API server required.
    pub(crate) fn pause_left(&self) -> Duration {
        self.rate_limit().pause_left(self.started.elapsed())
    }

    /// Waits until the request may be sent; rejects a write if the fence is closed at that time.
    async fn admit(&self, info: &RequestInfo) -> Result<(), Aborted> {
        if info.is_lease() {
            return Ok(());
        }
        self.wait_for_rate_limit().await?;
        match info.is_guarded() && !self.fence.is_open(Instant::now()) {
            true => Err(Aborted::NotLeading),
            false => Ok(()),
        }
    }

    async fn wait_for_rate_limit(&self) -> Result<(), Aborted> {
        let send_at = self.rate_limit().reserve(self.started.elapsed());
        let wait = send_at.saturating_sub(self.started.elapsed());
        if wait > BUDGET_WAIT_MAX.max(RETRY_AFTER_MAX) {
            return Err(Aborted::OverBudget);
        }
        tokio::time::sleep(wait).await;
        // The API server may have required a pause meanwhile, at most RETRY_AFTER_MAX long.
        tokio::time::sleep(self.pause_left()).await;
        Ok(())
    }

    /// Waits for the response, at most [`REQUEST_TIME_MAX`]. A write is aborted when the lease
    /// ends, before another process can lead; whether it took effect is then unknown.
    async fn await_response<T>(
        &self,
        info: &RequestInfo,
        response: impl Future<Output = T>,
    ) -> Result<T, Aborted> {
        let closed = async {
            match info.is_guarded() {
                true => self.fence.closed().await,
                false => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            response = response => Ok(response),
            () = closed => Err(Aborted::LeaseEnded),
            () = tokio::time::sleep(REQUEST_TIME_MAX) => Err(Aborted::TimedOut),
        }
    }

    /// Honors Retry-After, and counts writes.
    fn record_response<B>(&self, info: &RequestInfo, response: &Response<B>) {
        let header = response.headers().get(RETRY_AFTER);
        let seconds = header.and_then(|value| value.to_str().ok()?.trim().parse().ok());
        let pause = match (response.status(), seconds) {
            (StatusCode::TOO_MANY_REQUESTS, None) => Some(RETRY_AFTER_DEFAULT),
            (StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE, Some(seconds)) => {
                Some(Duration::from_secs(seconds).min(RETRY_AFTER_MAX))
            }
            _ => None,
        };
        if let Some(pause) = pause {
            let now = self.started.elapsed();
            self.rate_limit().pause(now, now + pause);
        }
        if info.is_guarded() {
            let writes = self.writes.fetch_add(1, Ordering::SeqCst) + 1;
            if self.crash_after_writes.is_some_and(|n| n.get() == writes) {
                // Like in a crash, no caller receives the response.
                std::process::exit(KILLED);
            }
        }
    }

    /// Adapts the rate to the latency of writes only, because that of a read depends on the size of
    /// its response.
    fn record_latency(&self, info: &RequestInfo, time: Duration) {
        if !info.is_guarded() {
            return;
        }
        let mut rate_limit = self.rate_limit();
        rate_limit.record_write_latency(self.started.elapsed(), time);
        self.export_rate(&rate_limit);
    }

    fn export_rate(&self, rate_limit: &RateLimit) {
        let rate = i64::from(rate_limit.rate());
        self.metrics.own().request_rate.set(rate);
    }

    fn count(&self, info: RequestInfo, code: String) {
        let RequestInfo { verb, resource } = info;
        let labels = RequestLabels {
            verb,
            resource,
            code,
        };
        let requests = &self.metrics.own().requests;
        requests.get_or_create(&labels).inc();
    }
}

/// Wraps a client in the middleware.
pub(crate) struct MiddlewareLayer {
    pub(crate) control: Arc<RequestControl>,
    /// The client for writes that require the lease; if unset they use the client of all other
    /// requests.
    pub(crate) writes: Mutex<Option<HttpClient>>,
}

impl Layer<HttpClient> for MiddlewareLayer {
    type Service = Middleware;

    fn layer(&self, others: HttpClient) -> Middleware {
        let writes = self.writes.lock();
        let writes = writes.unwrap_or_else(PoisonError::into_inner).take();
        let shared = |client| Arc::new(tokio::sync::Mutex::new(client));
        Middleware {
            others: shared(others),
            writes: writes.map(shared),
            control: self.control.clone(),
        }
    }
}

/// Locked only while a request is passed to the client.
type SharedClient = Arc<tokio::sync::Mutex<HttpClient>>;

/// A client wrapped in the middleware.
pub(crate) struct Middleware {
    others: SharedClient,
    writes: Option<SharedClient>,
    control: Arc<RequestControl>,
}

type HttpResponse = Response<Box<DynBody>>;
type ResponseFuture = Pin<Box<dyn Future<Output = Result<HttpResponse, BoxError>> + Send>>;

impl Service<Request<Body>> for Middleware {
    type Response = HttpResponse;
    type Error = BoxError;
    type Future = ResponseFuture;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        // Each request waits in its own future.
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> ResponseFuture {
        let info = RequestInfo::of(request.method(), request.uri(), request.headers());
        let client = match &self.writes {
            Some(writes) if info.is_guarded() => writes.clone(),
            _ => self.others.clone(),
        };
        let control = self.control.clone();
        Box::pin(async move {
            if let Err(aborted) = control.admit(&info).await {
                control.count(info, "refused".to_owned());
                return Err(aborted.into());
            }
            let sent = Instant::now();
            let response = control.await_response(&info, send(&client, request)).await;
            control.record_latency(&info, sent.elapsed());
            match response.map_err(BoxError::from).flatten() {
                Ok(response) => {
                    control.record_response(&info, &response);
                    control.count(info, response.status().as_u16().to_string());
                    Ok(response)
                }
                Err(error) => {
                    control.count(info, "failed".to_owned());
                    Err(error)
                }
            }
        })
    }
}

async fn send(
    client: &tokio::sync::Mutex<HttpClient>,
    request: Request<Body>,
) -> Result<HttpResponse, BoxError> {
    let response = {
        let mut client = client.lock().await;
        std::future::poll_fn(|context| client.poll_ready(context)).await?;
        client.call(request)
    };
    response.await
}

#[cfg(test)]
mod tests {
    use crate::Writes;

    use super::*;

    fn request(verb: &'static str, resource: &str) -> RequestInfo {
        let resource = resource.to_owned();
        RequestInfo { verb, resource }
    }

    #[tokio::test]
    async fn only_a_write_that_outlives_the_lease_is_aborted() {
        let fence = Arc::new(WriteFence::new(Writes::WhileLeading));
        let control = RequestControl::new(fence, None, MetricsRegistry::new());
        let write = request("apply", "deployments");
        assert_eq!(control.admit(&write).await, Err(Aborted::NotLeading));
        let soon = Instant::now() + Duration::from_millis(50);
        control.fence().open_until(soon);
        assert_eq!(control.admit(&write).await, Ok(()));
        let never = std::future::pending::<()>();
        let aborted = control.await_response(&write, never).await;
        assert_eq!(aborted, Err(Aborted::LeaseEnded));
        for (verb, resource) in [("get", "deployments"), ("update", "leases")] {
            let other = request(verb, resource);
            assert_eq!(control.admit(&other).await, Ok(()));
            let response = tokio::time::sleep(Duration::from_millis(5));
            assert_eq!(control.await_response(&other, response).await, Ok(()));
        }
    }
}
