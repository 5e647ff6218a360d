//! The connection of a person at a prompt: found as kubectl finds it, with that person's rights.
//!
//! The one place that looks at the environment: a plugin of kubectl must see the cluster that
//! kubectl sees. Programs of a cluster use [`Cluster::connect`].

use std::path::PathBuf;

use kube_client::Config;
use kube_client::config::{KubeConfigOptions, Kubeconfig};

use crate::{Cluster, ClusterError, ConnectOptions, Metrics, Writes};

/// Which cluster a person means.
#[derive(Clone, Debug, Default)]
pub struct PersonOptions {
    /// `--kubeconfig`; without it `KUBECONFIG`, then `~/.kube/config`.
    pub kubeconfig: Option<PathBuf>,
    /// `--context`; without it the current one.
    pub context: Option<String>,
    /// Who we are: user agent and field manager.
    pub manager: &'static str,
}

impl Cluster {
    /// Connects as the person whose kubeconfig is found. Nothing is asked of the API server yet.
    /// Needs a tokio runtime.
    ///
    /// # Errors
    /// There is no kubeconfig, or it has no such context, or it cannot be used.
    pub async fn connect_as_person(options: &PersonOptions) -> Result<Self, ClusterError> {
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
        Self::with(config, &connect, &Metrics::new())
    }
}
