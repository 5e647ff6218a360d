//! The command line.

use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::path::PathBuf;

use albacore_program::LogArgs;
use clap::Parser;
use hyper::Uri;

/// Reconciles InferenceDeployments into running, placed and observable pods.
///
/// Of several replicas, only the one that holds the lease is active. Exit codes: 0 stopped on
/// request, 1 failed, 64 bad usage.
#[derive(Debug, Parser)]
#[command(name = "albacore-controller", version)]
pub(crate) struct Args {
    /// Image of the built-in server.
    #[arg(long, value_name = "IMAGE", env = "ALBACORE_SERVER_IMAGE")]
    pub(crate) server_image: String,
    /// Address from which built-in servers get the parameters of their node, as http://host:port;
    /// passed to them as ALBACORE_PARAMS. Default: they use only their settings.
    #[arg(long, value_name = "URL", env = "ALBACORE_PARAMS_URL", value_parser = params_url)]
    pub(crate) params_url: Option<String>,
    /// Watch only this namespace; can be repeated. Default: all.
    #[arg(
        long,
        value_name = "NS",
        env = "ALBACORE_WATCH_NAMESPACE",
        value_delimiter = ','
    )]
    pub(crate) watch_namespace: Vec<String>,
    /// Namespace of the lease. Default: that of this pod, or of the kubeconfig's context.
    #[arg(long, value_name = "NS", env = "ALBACORE_LEASE_NAMESPACE")]
    pub(crate) lease_namespace: Option<String>,
    /// Name of the lease.
    #[arg(
        long,
        value_name = "NAME",
        default_value = "albacore-controller",
        env = "ALBACORE_LEASE_NAME"
    )]
    pub(crate) lease_name: String,
    /// Listen address of /livez, /readyz and /metrics. Default: all addresses, IPv4 and IPv6.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "[::]:9090",
        env = "ALBACORE_LISTEN"
    )]
    pub(crate) listen: SocketAddr,
    /// Kubeconfig with the cluster and the user. Default: the service account of this pod;
    /// KUBECONFIG is not read.
    #[arg(long, value_name = "FILE", env = "ALBACORE_KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) logs: LogArgs,
    /// Maximum number of requests per second to the API server; twice as many in a burst. The limit
    /// starts at 200 or less, rises while the API server answers writes within 100 ms on average,
    /// falls when it is slower, and is halved when it rejects a request because of too many.
    #[arg(
        long,
        value_name = "N",
        default_value = "1000",
        env = "ALBACORE_REQUESTS_PER_SECOND"
    )]
    pub(crate) requests_per_second: NonZeroU32,
    /// Number of deployments whose pods an upgrade of the operator restarts at the same time; the
    /// next one starts when the pods of one are available again. Edits of a deployment never wait.
    #[arg(
        long,
        value_name = "N",
        default_value = "1",
        env = "ALBACORE_MAX_CONCURRENT_ROLLOUTS"
    )]
    pub(crate) max_concurrent_rollouts: NonZeroU32,
    /// For tests: how long fewer pods must have been sufficient before some get no more requests.
    #[arg(long, value_name = "SECONDS", hide = true)]
    pub(crate) consolidate_after: Option<u64>,
    /// Only check that the API server serves the resources of Albacore and that a controller holds
    /// the lease, and exit.
    #[arg(long)]
    pub(crate) check: bool,
    /// For tests: exit as if killed after this many writes.
    #[arg(long, value_name = "N", hide = true)]
    pub(crate) crash_after_writes: Option<NonZeroU64>,
}

/// Accepts a URL with host and port only.
fn params_url(text: &str) -> Result<String, String> {
    let url: Uri = text.parse().map_err(|error| format!("{error}"))?;
    let is_whole = url.scheme_str() == Some("http") && url.port_u16().is_some();
    match is_whole && matches!(url.path(), "" | "/") && url.query().is_none() {
        true => Ok(text.trim_end_matches('/').to_owned()),
        false => Err(
            "name a host and a port, as in http://albacore-params.albacore-agent.svc:8082".into(),
        ),
    }
}
