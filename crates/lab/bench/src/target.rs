//! The server under test and its models.

use std::net::{SocketAddr, ToSocketAddrs as _};

use albacore_load::{WireFormat, get};
use serde_json::Value;

use crate::error::BenchError;
use crate::spec::Spec;

/// A server and the models under test.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) wire: WireFormat,
    /// In the order of [`Spec::models`].
    pub(crate) inputs: Vec<ModelInput>,
}

/// The input tensor of a model.
#[derive(Debug)]
pub(crate) struct ModelInput {
    pub(crate) name: String,
    pub(crate) features: usize,
}

impl Target {
    /// Resolves the target from the arguments, or else from the server's metadata.
    pub(crate) fn find(spec: &Spec) -> Result<Self, BenchError> {
        let (wire, place) = match spec.url.split_once("://") {
            Some(("http", place)) if spec.is_binary => (WireFormat::Binary, place),
            Some(("http", place)) => (WireFormat::Json, place),
            Some(("grpc", place)) => (WireFormat::Grpc, place),
            _ => {
                let what = "expected http://HOST:PORT or grpc://HOST:PORT";
                return Err(BenchError::Usage(format!("{}: {what}", spec.url)));
            }
        };
        let address = place.trim_end_matches('/').to_socket_addrs().ok();
        let address = address.and_then(|mut found| found.next());
        let address = address
            .ok_or_else(|| BenchError::Usage(format!("{}: cannot resolve HOST:PORT", spec.url)))?;
        let input_of = |model: &String| {
            let (input, features) = match spec.features {
                Some(features) => (None, features),
                None if wire == WireFormat::Grpc => {
                    let what = "metadata is not read over gRPC";
                    return Err(BenchError::Usage(format!(
                        "--features is missing: {what}: give the number of values of a row"
                    )));
                }
                None => Self::fetch_metadata(spec, model, address)?,
            };
            let name = spec.input.clone().or(input);
            Ok(ModelInput {
                name: name.unwrap_or_else(|| "input".to_owned()),
                features,
            })
        };
        Ok(Self {
            address,
            wire,
            inputs: spec.models.iter().map(input_of).collect::<Result<_, _>>()?,
        })
    }

    fn fetch_metadata(
        spec: &Spec,
        model: &str,
        address: SocketAddr,
    ) -> Result<(Option<String>, usize), BenchError> {
        let path = format!("/v2/models/{model}");
        let failed = |what: &str| {
            BenchError::Failed(format!(
                "{}{path}: {what}; give --features and --input if it has no metadata",
                spec.url
            ))
        };
        let (status, body) = get(address, &path).map_err(|source| BenchError::Fetch {
            url: format!("{}{path}", spec.url),
            source,
        })?;
        if status != 200 {
            return Err(failed(&format!("expected status 200, got {status}")));
        }
        let metadata: Value =
            serde_json::from_slice(&body).map_err(|_| failed("the response is not JSON"))?;
        let input = &metadata["inputs"][0];
        let features = input["shape"]
            .as_array()
            .and_then(|shape| shape.last()?.as_u64());
        let features = features.and_then(|features| usize::try_from(features).ok());
        let features = features.filter(|&features| features > 0);
        let features = features.ok_or_else(|| failed("its input has no fixed number of values"))?;
        Ok((input["name"].as_str().map(str::to_owned), features))
    }
}
