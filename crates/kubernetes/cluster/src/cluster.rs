//! The connection to a cluster.

use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use hyper::header::{HeaderValue, USER_AGENT};
use kube_client::client::ClientBuilder;
use kube_client::config::{KubeConfigOptions, Kubeconfig};
use kube_client::{Client, Config};

use crate::gatekeeper::{Gate, Gatekeeper};
use crate::limits::{CONNECT_TIME_MAX, READ_TIME_MAX};
use crate::metrics::Metrics;
use crate::permit::Permit;
use crate::wire::sender;
use crate::{ClusterError, Events, Shutdown};

/// When a program may write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// Whenever it likes: it is the only one of its kind, or only reads.
    #[default]
    Always,
    /// While it holds its [`crate::Lease`]; other writes are refused before they are sent.
    WhileLeading,
}

/// How to connect, and as whom.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// The kubeconfig to use; without one, the service account of the pod that this process runs
    /// in. `KUBECONFIG` and `~/.kube/config` are not read; with a kubeconfig, `HTTPS_PROXY` and
    /// `NO_PROXY` mean what they mean to kubectl.
    pub kubeconfig: Option<PathBuf>,
    /// Who we are: field manager of what is applied, reporter of events, user agent.
    pub manager: &'static str,
    /// When this process may write.
    pub writes: Writes,
    /// For tests: this process ends as if it was killed once this many writes (leases not counted)
    /// were answered.
    pub crash_after_writes: Option<NonZeroU64>,
}

/// A connection to a cluster. Clones share it.
#[derive(Clone)]
pub struct Cluster {
    pub(crate) client: Client,
    pub(crate) keeper: Arc<Gatekeeper>,
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
    /// Reads who and where the API server is. Nothing is asked of it yet, so this does not fail
    /// while it is away. Needs a tokio runtime.
    ///
    /// # Errors
    /// The kubeconfig or the service account cannot be used.
    pub async fn connect(
        options: &ConnectOptions,
        metrics: &Metrics,
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

    /// The connection that `config` describes.
    pub(crate) fn with(
        mut config: Config,
        options: &ConnectOptions,
        metrics: &Metrics,
    ) -> Result<Self, ClusterError> {
        config.connect_timeout = Some(CONNECT_TIME_MAX);
        config.read_timeout = Some(READ_TIME_MAX);
        config.reset_reader_on_write = true;
        // Retries below the gatekeeper would pass no check.
        config.default_retry = false;
        let agent = HeaderValue::from_static(options.manager);
        config.headers.push((USER_AGENT, agent));
        let permit = Permit::new(options.writes);
        let keeper = Gatekeeper::new(permit, options.crash_after_writes, metrics.clone());
        let keeper = Arc::new(keeper);
        let namespace = config.default_namespace.clone();
        let failed = |source| ClusterError::Client {
            source: Box::new(source),
        };
        let gate = Gate {
            keeper: keeper.clone(),
            // Leaders run in the cluster, where there is no proxy; behind one, the gatekeeper's own
            // check has to do.
            writes: Mutex::new(match (options.writes, &config.proxy_url) {
                (Writes::WhileLeading, None) => Some(sender(&config, &keeper).map_err(failed)?),
                _ => None,
            }),
        };
        let builder = ClientBuilder::try_from(config).map_err(failed)?;
        let client = builder.with_layer(&gate).build();
        Ok(Self {
            client,
            keeper,
            manager: options.manager,
            namespace,
        })
    }

    /// Sets how many requests a second this program may send for long; twice as many may leave in a
    /// burst. Without it, 50.
    pub fn limit_requests_per_second(&self, rate: NonZeroU32) {
        self.keeper.set_rate(rate);
    }

    /// The namespace of the kubeconfig's context, or of the pod that this process runs in.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Starts the writer of events.
    pub fn events(&self, shutdown: &Shutdown) -> Events {
        Events::start(self, shutdown)
    }
}
