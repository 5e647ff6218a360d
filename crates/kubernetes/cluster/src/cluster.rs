//! The connection to a cluster.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::header::{HeaderValue, USER_AGENT};
use kube_client::client::ClientBuilder;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};

use crate::fenced_client::fenced_client;
use crate::limits::{CONNECT_TIME_MAX, READ_TIME_MAX};
use crate::metrics::MetricsRegistry;
use crate::middleware::{MiddlewareLayer, RequestControl};
use crate::write_fence::{WriteFence, Writes};
use crate::{ClusterError, EventRecorder, Shutdown};

/// Configuration of a connection and of the program that uses it.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The kubeconfig to use; if unset, the service account of the pod in which this process runs.
    /// `KUBECONFIG` and `~/.kube/config` are not read; with a kubeconfig, `HTTPS_PROXY` and
    /// `NO_PROXY` have the same meaning as for kubectl.
    pub kubeconfig: Option<PathBuf>,
    /// The name of the program: its field manager, the reporter of its events, and its user agent.
    pub manager: &'static str,
    /// When this process may write.
    pub writes: Writes,
    /// For tests: the process exits as if killed after this many answered writes, not counting
    /// leases.
    pub crash_after_writes: Option<NonZeroU64>,
}

/// A connection to a cluster. Clones share it.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    pub(crate) control: Arc<RequestControl>,
    pub(crate) manager: &'static str,
    namespace: String,
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self {
            manager, namespace, ..
        } = self;
        write!(f, "Cluster({manager} in {namespace})")
    }
}

impl Cluster {
    /// Reads the address of the API server and the credentials. Sends no request, so this does not
    /// fail while the API server is unavailable. Requires a tokio runtime.
    ///
    /// # Errors
    /// The kubeconfig or the service account cannot be used.
    pub async fn connect(
        options: &ConnectOptions,
        metrics: &MetricsRegistry,
    ) -> Result<Self, ClusterError> {
        let config = match &options.kubeconfig {
            Some(path) => {
                let source = |source| ClusterError::Kubeconfig {
                    path: path.clone(),
                    source: Box::new(source),
                };
                let file = Kubeconfig::read_from(path).map_err(source)?;
                let context = KubeConfigOptions::default();
                Config::from_custom_kubeconfig(file, &context)
                    .await
                    .map_err(source)?
            }
            None => Config::incluster().map_err(|source| ClusterError::InCluster {
                source: Box::new(source),
            })?,
        };
        Self::with(config, options, metrics)
    }

    /// Connects with `config`.
    pub(crate) fn with(
        mut config: Config,
        options: &ConnectOptions,
        metrics: &MetricsRegistry,
    ) -> Result<Self, ClusterError> {
        config.connect_timeout = Some(CONNECT_TIME_MAX);
        config.read_timeout = Some(READ_TIME_MAX);
        config.reset_reader_on_write = true;
        // Retries below the middleware would bypass its checks.
        config.default_retry = false;
        let agent = HeaderValue::from_static(options.manager);
        config.headers.push((USER_AGENT, agent));
        let fence = Arc::new(WriteFence::new(options.writes));
        let control =
            RequestControl::new(fence.clone(), options.crash_after_writes, metrics.clone());
        let control = Arc::new(control);
        let namespace = config.default_namespace.clone();
        let failed = |source| ClusterError::Client {
            source: Box::new(source),
        };
        let layer = MiddlewareLayer {
            control: control.clone(),
            // Leaders run in the cluster without a proxy; with a proxy, only the check in the
            // middleware applies.
            writes: Mutex::new(match (options.writes, &config.proxy_url) {
                (Writes::WhileLeading, None) => {
                    Some(fenced_client(&config, &fence).map_err(failed)?)
                }
                _ => None,
            }),
        };
        let builder = ClientBuilder::try_from(config).map_err(failed)?;
        let client = builder.with_layer(&layer).build();
        Ok(Self {
            client,
            control,
            manager: options.manager,
            namespace,
        })
    }

    /// Sets the sustained rate of requests per second; a burst may be twice as many. The default is
    /// 50.
    pub fn limit_requests_per_second(&self, rate: NonZeroU32) {
        self.control.set_rate(rate);
    }

    /// The namespace of the kubeconfig's context, or of the pod in which this process runs.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Starts the task that writes events.
    pub fn events(&self, shutdown: &Shutdown) -> EventRecorder {
        EventRecorder::start(self, shutdown)
    }
}
