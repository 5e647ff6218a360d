//! The connection of a user at a prompt, with the cluster and the rights that kubectl would have.
//!
//! The only code that reads KUBECONFIG: a plugin of kubectl must connect to the cluster that
//! kubectl connects to. Programs in a cluster use [`Cluster::connect`].

use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};

use crate::{Cluster, ClusterError, ConnectOptions, MetricsRegistry, Writes};

/// The options that kubectl has.
#[derive(Clone, Debug, Default)]
pub struct UserConnectOptions {
    /// `--kubeconfig`; without it `KUBECONFIG`, then `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`; without it the current one.
    pub context: Option<String>,
    /// The name of the program: user agent and field manager.
    pub manager: &'static str,
}

impl Cluster {
    /// Connects as the user of the kubeconfig. Sends no request yet. Needs a tokio runtime.
    ///
    /// # Errors
    /// There is no kubeconfig, it lacks the context, or it cannot be used.
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
