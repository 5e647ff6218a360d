//! Arguments that KServe's runtimes pass to their servers, with KServe's names. KServe appends the
//! arguments of an InferenceService to those of the runtime, so the last occurrence takes
//! precedence.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use albacore_settings::Source;
use clap::Args;

use crate::args::named_model;

/// Arguments of KServe, used instead of `--model`, `--http` and `--grpc`.
#[derive(Debug, Default, Args)]
pub struct KserveArgs {
    /// Name of the model in --model_dir, as passed by KServe.
    #[arg(
        long = "model_name",
        value_name = "NAME",
        requires = "model_dir",
        conflicts_with = "models",
        overrides_with = "model_name"
    )]
    pub model_name: Option<String>,
    /// Folder with the model file, as passed by KServe; without --model_name each folder in it is a
    /// model with that folder's name.
    #[arg(
        id = "model_dir",
        long = "model_dir",
        value_name = "FOLDER",
        conflicts_with = "models",
        overrides_with = "model_dir"
    )]
    pub model_folder: Option<PathBuf>,
    /// HTTP port, on all addresses, as passed by KServe.
    #[arg(
        long = "http_port",
        value_name = "PORT",
        conflicts_with = "http",
        overrides_with = "http_port"
    )]
    pub http_port: Option<u16>,
    /// gRPC port, on all addresses, as passed by KServe.
    #[arg(
        long = "grpc_port",
        value_name = "PORT",
        conflicts_with = "grpc",
        overrides_with = "grpc_port"
    )]
    pub grpc_port: Option<u16>,
}

impl KserveArgs {
    /// Returns the models of `--model_dir`, or else those of `--model`.
    ///
    /// # Errors
    /// The folder cannot be read or contains no model folders.
    pub(crate) fn models_or(
        &self,
        models: Vec<(String, Source)>,
    ) -> Result<Vec<(String, Source)>, String> {
        let Some(folder) = &self.model_folder else {
            return Ok(models);
        };
        match &self.model_name {
            Some(name) => Ok(vec![named_model(name, source(folder)?)?]),
            None => {
                let found = albacore_storage::model_folders(folder);
                let found = found
                    .map_err(|problem| format!("--model_dir {} {problem}", folder.display()))?;
                let named = found.into_iter();
                named
                    .map(|(name, path)| named_model(&name, source(&path)?))
                    .collect()
            }
        }
    }

    /// Returns the listen addresses of HTTP and gRPC.
    pub(crate) fn addresses(&self, http: SocketAddr, grpc: SocketAddr) -> (SocketAddr, SocketAddr) {
        let on = |port: Option<u16>, address| {
            port.map_or(address, |port| {
                SocketAddr::from((std::net::Ipv6Addr::UNSPECIFIED, port))
            })
        };
        (on(self.http_port, http), on(self.grpc_port, grpc))
    }
}

fn source(path: &Path) -> Result<Source, String> {
    let utf8 = path.to_str().map(str::to_owned);
    let utf8 = utf8.ok_or_else(|| format!("--model_dir: {} is not UTF-8", path.display()))?;
    Ok(Source::Path(utf8))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use crate::args::{Args, ModelSource, ServerConfig};

    fn config(arguments: &[&str]) -> Result<ServerConfig, String> {
        let all = ["albacore-server"].iter().chain(arguments);
        let parsed = Args::try_parse_from(all).map_err(|error| error.to_string())?;
        parsed.check()
    }

    fn models(arguments: &[&str]) -> Vec<(String, String)> {
        let ModelSource::Arguments { models, .. } = config(arguments).unwrap().models else {
            panic!("{arguments:?}");
        };
        let all = models.into_iter();
        all.map(|model| (model.name, model.source.to_string()))
            .collect()
    }

    #[test]
    fn arguments_of_a_kserve_runtime_are_accepted() {
        let runtime = ["--model_name=fraud", "--model_dir=/mnt/models"];
        let model = ("fraud".to_owned(), "/mnt/models".to_owned());
        assert_eq!(models(&runtime), [model]);
        let ports = ["--http_port=8085", "--grpc_port=9000"];
        let config = config(&[&runtime[..], &ports].concat()).unwrap();
        assert_eq!(config.http, "[::]:8085".parse().unwrap());
        assert_eq!(config.grpc, "[::]:9000".parse().unwrap());
    }

    #[test]
    fn an_inference_service_overrides_its_runtime() {
        let runtime = [
            "--model_name=a",
            "--model_dir=/a",
            "--http_port=1",
            "--grpc_port=2",
        ];
        let own = [
            "--model_name=b",
            "--model_dir=/b",
            "--http_port=3",
            "--grpc_port=4",
        ];
        let both = [runtime, own].concat();
        assert_eq!(models(&both), [("b".to_owned(), "/b".to_owned())]);
        let config = config(&both).unwrap();
        assert_eq!((config.http.port(), config.grpc.port()), (3, 4));
    }

    #[test]
    fn each_folder_is_a_model_without_a_model_name() {
        let folder = tempfile::tempdir().unwrap();
        let argument = format!("--model_dir={}", folder.path().display());
        let error = config(&["--model_dir=/no/such/folder"]).unwrap_err();
        assert!(
            error.ends_with("No such file or directory (os error 2)"),
            "{error}"
        );
        let error = config(&[&argument]).unwrap_err();
        assert!(
            error.contains("has no folders") && error.ends_with("--model_name"),
            "{error}"
        );
        for name in ["a", "b"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let path = |name| folder.path().join(name).display().to_string();
        let expected = ["a", "b"].map(|name| (name.to_owned(), path(name)));
        assert_eq!(models(&[&argument]), expected);
        std::fs::create_dir(folder.path().join("a b")).unwrap();
        let error = config(&[&argument]).unwrap_err();
        assert!(error.contains("\"a b\" is not a valid name"), "{error}");
    }

    #[test]
    fn kserve_arguments_conflict_with_those_that_they_replace() {
        for arguments in [
            &["--model_dir=/m", "--model_name=a", "--model=b=/b"][..],
            &["--model_dir=/m", "--model_name=a", "--settings=b.yaml"],
            &["--model_name=a", "--model=b=/b"],
            &["--model=b=/b", "--http_port=1", "--http=[::]:2"],
            &["--model=b=/b", "--grpc_port=1", "--grpc=[::]:2"],
        ] {
            let error = config(arguments).unwrap_err();
            assert!(error.contains("cannot be used with"), "{error}");
        }
        let error = config(&["--model_name=a"]).unwrap_err();
        assert!(error.contains("--model_dir"), "{error}");
    }
}
