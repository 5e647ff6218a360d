//! Arguments and variables of containers on SageMaker and Vertex AI: the argument `serve`, and
//! variables with the prefix `AIP_`. A model given by other arguments takes precedence over the
//! platform's model.

use albacore_settings::Source;
use clap::{Args, ValueEnum};
use std::net::SocketAddr;

use crate::args::named_model;

/// Name of the model of `serve` and of AIP_STORAGE_URI.
const PLATFORM_MODEL: &str = "model";

/// Folder into which SageMaker unpacks the model's archive.
const SAGEMAKER_FOLDER: &str = "/opt/ml/model";

/// Command and variables of containers on SageMaker and Vertex AI.
#[derive(Debug, Default, Args)]
pub struct ContainerArgs {
    /// Command that SageMaker starts a container with: serves the model in /opt/ml/model, named
    /// "model", unless other arguments specify a model.
    #[arg(value_enum, value_name = "COMMAND")]
    pub command: Option<ContainerCommand>,
    /// Set by SageMaker for a container of a multi-model endpoint, which is not supported: `true`
    /// with `serve` requires that other arguments specify the models.
    #[arg(
        long = "sagemaker_multi_model",
        value_name = "BOOL",
        env = "SAGEMAKER_MULTI_MODEL"
    )]
    pub sagemaker_multi_model: Option<String>,
    /// HTTP port, on all addresses, as set by Vertex AI.
    #[arg(long = "aip_http_port", value_name = "PORT", env = "AIP_HTTP_PORT")]
    pub aip_http_port: Option<u16>,
    /// Path of health checks set by Vertex AI, in addition to /ping and /health.
    #[arg(
        long = "aip_health_route",
        value_name = "PATH",
        env = "AIP_HEALTH_ROUTE"
    )]
    pub aip_health_route: Option<String>,
    /// Path of predictions set by Vertex AI, in addition to /invocations.
    #[arg(
        long = "aip_predict_route",
        value_name = "PATH",
        env = "AIP_PREDICT_ROUTE"
    )]
    pub aip_predict_route: Option<String>,
    /// Folder with the model, as set by Vertex AI; served under the name "model" unless other
    /// arguments specify a model.
    #[arg(
        long = "aip_storage_uri",
        value_name = "FOLDER",
        env = "AIP_STORAGE_URI"
    )]
    pub aip_storage_uri: Option<String>,
}

/// Commands with which platforms start containers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ContainerCommand {
    /// Serves the model, as on SageMaker.
    Serve,
}

/// Paths requested by a platform, served in addition to the standard paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlatformRoutes {
    /// Path of health checks.
    pub health: Option<String>,
    /// Path of predictions.
    pub predict: Option<String>,
}

impl ContainerArgs {
    /// Returns the listen address of HTTP.
    pub(crate) fn http(&self, http: SocketAddr) -> SocketAddr {
        self.aip_http_port.map_or(http, |port| {
            SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port))
        })
    }

    /// Returns the models of other arguments, or that of the platform.
    ///
    /// # Errors
    /// The platform's model is not a folder or is missing, or the endpoint loads models later.
    pub(crate) fn models_or(
        &self,
        models: Vec<(String, Source)>,
    ) -> Result<Vec<(String, Source)>, String> {
        if !models.is_empty() {
            return Ok(models);
        }
        let uri = self.aip_storage_uri.as_deref().unwrap_or_default();
        let is_multi = |value: &str| value.eq_ignore_ascii_case("true");
        let is_multi = self.sagemaker_multi_model.as_deref().is_some_and(is_multi);
        let source = match (uri, self.command) {
            ("", Some(ContainerCommand::Serve)) if is_multi => {
                return Err(
                    "SAGEMAKER_MULTI_MODEL is true, but multi-model endpoints, which load models \
                     by a path, are not supported: create an endpoint with one model, or name all \
                     models with --model or --settings"
                        .to_owned(),
                );
            }
            ("", Some(ContainerCommand::Serve)) => Source::Path(SAGEMAKER_FOLDER.to_owned()),
            ("", None) => {
                return Err("AIP_STORAGE_URI is empty: give the model with --model".to_owned());
            }
            (uri, _) => vertex_folder(uri)?,
        };
        Ok(vec![named_model(PLATFORM_MODEL, source)?])
    }

    /// Returns the paths requested by the platform.
    ///
    /// # Errors
    /// A path does not begin with a slash, or both are the same.
    pub(crate) fn routes(&self) -> Result<PlatformRoutes, String> {
        let named = |name: &str, path: &Option<String>| match path.as_deref() {
            None | Some("") => Ok(None),
            Some(path) if path.starts_with('/') => Ok(Some(path.to_owned())),
            Some(path) => Err(format!(
                "{name} {path:?} is not a path: a path begins with a slash"
            )),
        };
        let health = named("AIP_HEALTH_ROUTE", &self.aip_health_route)?;
        let predict = named("AIP_PREDICT_ROUTE", &self.aip_predict_route)?;
        if health.is_some() && health == predict {
            return Err("AIP_HEALTH_ROUTE and AIP_PREDICT_ROUTE are the same path".to_owned());
        }
        Ok(PlatformRoutes { health, predict })
    }
}

/// Returns the folder of an `AIP_STORAGE_URI`, with or without a trailing slash.
fn vertex_folder(uri: &str) -> Result<Source, String> {
    let source = match uri.split_once("://") {
        None => Source::Path(uri.to_owned()),
        Some(("file", path)) if path.starts_with('/') => Source::Path(path.to_owned()),
        Some(_) => Source::Url(format!("{}/", uri.trim_end_matches('/'))),
    };
    let checked = source.check();
    checked.map_err(|problem| format!("AIP_STORAGE_URI {problem}"))?;
    Ok(source)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::args::{Args, ModelSource, ServerConfig};

    fn config(arguments: &[&str]) -> Result<ServerConfig, String> {
        let all = ["albacore-server"].iter().chain(arguments);
        let parsed = Args::try_parse_from(all).map_err(|error| error.to_string())?;
        parsed.check()
    }

    fn model(arguments: &[&str]) -> (String, String) {
        let ModelSource::Arguments { models, .. } = config(arguments).unwrap().models else {
            panic!("{arguments:?}");
        };
        let [model] = &models[..] else {
            panic!("{models:?}");
        };
        (model.name.clone(), model.source.to_string())
    }

    #[test]
    fn the_platform_model_is_served_unless_another_is_given() {
        for (arguments, name, path) in [
            (&["serve"][..], "model", "/opt/ml/model"),
            (&["serve", "--model=a=/b"], "a", "/b"),
            (&["--aip_storage_uri=/m"], "model", "/m"),
            (&["--aip_storage_uri=file:///m"], "model", "/m"),
            (&["--aip_storage_uri=gs://b/m"], "model", "gs://b/m/"),
            (&["--aip_storage_uri=s3://b/m/"], "model", "s3://b/m/"),
            (&["serve", "--aip_storage_uri="], "model", "/opt/ml/model"),
            (
                &["serve", "--sagemaker_multi_model=false"],
                "model",
                "/opt/ml/model",
            ),
            (
                &["serve", "--sagemaker_multi_model=true", "--model=a=/b"],
                "a",
                "/b",
            ),
            (&["--model=a=/b", "--aip_storage_uri=gs://b/m"], "a", "/b"),
        ] {
            assert_eq!(model(arguments), (name.to_owned(), path.to_owned()));
        }
        assert_eq!(config(&["serve"]).unwrap().http.port(), 8080);
    }

    #[test]
    fn invalid_platform_variables_are_rejected_by_name() {
        for (arguments, part) in [
            (
                &["--aip_storage_uri=ftp://b/m"][..],
                "AIP_STORAGE_URI \"ftp://b/m/\" is not an http:// or https:// URL",
            ),
            (&["--aip_storage_uri="], "AIP_STORAGE_URI is empty"),
            (
                &["serve", "--aip_health_route=ping"],
                "\"ping\" is not a path",
            ),
            (
                &["serve", "--aip_health_route=/p", "--aip_predict_route=/p"],
                "are the same path",
            ),
            (
                &["serve", "--sagemaker_multi_model=true"],
                "SAGEMAKER_MULTI_MODEL is true, but multi-model endpoints",
            ),
            (&["predict"], "invalid value 'predict'"),
        ] {
            let error = config(arguments).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn vertex_paths_and_port_are_applied() {
        let config = config(&[
            "serve",
            "--aip_http_port=8085",
            "--aip_health_route=/v1/endpoints/1",
            "--aip_predict_route=/v1/endpoints/1:predict",
        ]);
        let config = config.unwrap();
        assert_eq!(config.http, "[::]:8085".parse().unwrap());
        let routes = PlatformRoutes {
            health: Some("/v1/endpoints/1".to_owned()),
            predict: Some("/v1/endpoints/1:predict".to_owned()),
        };
        assert_eq!(config.platform_routes, routes);
    }
}
