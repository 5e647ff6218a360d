//! Connection of a command-line user, to the same cluster and with the same permissions as kubectl.
//!
//! The only code that reads KUBECONFIG, because a kubectl plugin must connect to the same cluster
//! as kubectl. Programs in a cluster use [`Cluster::connect`].

use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};

use crate::{Cluster, ClusterError, ConnectOptions, MetricsRegistry, Writes};

/// The options of kubectl.
#[derive(Clone, Debug, Default)]
pub struct UserConnectOptions {
    /// `--kubeconfig`; if unset `KUBECONFIG`, then `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`; if unset the current context.
    pub context: Option<String>,
    /// The name of the program, used as user agent and field manager.
    pub manager: &'static str,
}

impl Cluster {
    /// Connects as the user of the kubeconfig. Sends no request yet. Requires a tokio runtime.
    ///
    /// # Errors
    /// There is no kubeconfig, the context does not exist, or the kubeconfig cannot be used.
    pub async fn connect_as_user(options: &UserConnectOptions) -> Result<Self, ClusterError> {
        let path = options.kubeconfig.clone();
        let name = path
            .clone()
            .or_else(|| std::env::var_os("KUBECONFIG").map(PathBuf::from))
            .unwrap_or_else(|| PathBuf::from("~/.kube/config"));
        let source = |source| ClusterError::Kubeconfig {
            path: name.clone(),
            source: Box::new(source),
        };
        let file = match &path {
            Some(path) => Kubeconfig::read_from(path).map_err(source)?,
            None => Kubeconfig::read().map_err(source)?,
        };
        let context = KubeConfigOptions {
            context: options.context.clone(),
            ..KubeConfigOptions::default()
        };
        let config = Config::from_custom_kubeconfig(file, &context)
            .await
            .map_err(source)?;
        let connect = ConnectOptions {
            manager: options.manager,
            writes: Writes::Always,
            ..ConnectOptions::default()
        };
        Self::with(config, &connect, &MetricsRegistry::new())
    }
}
