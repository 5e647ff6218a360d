//! Which server, and what its model takes.

use std::net::{SocketAddr, ToSocketAddrs as _};

use albacore_load::{Wire, get};
use serde_json::Value;

use super::{BenchServeArgs, Form};
use crate::failure::{Failure, sentence};

/// A server and a model of it.
#[derive(Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) wire: Wire,
    pub(super) input: String,
    pub(super) features: usize,
}

impl Target {
    /// Of the arguments and, where they do not say it, of the server's metadata.
    pub(super) fn find(args: &BenchServeArgs) -> Result<Self, Failure> {
        let (wire, place) = match args.url.split_once("://") {
            Some(("http", place)) if args.form == Form::Binary => (Wire::Binary, place),
            Some(("http", place)) => (Wire::Json, place),
            Some(("grpc", place)) => (Wire::Grpc, place),
            _ => {
                let what = "http://HOST:PORT or grpc://HOST:PORT is due";
                return Err(Failure::Usage(format!("{}: {what}", args.url)));
            }
        };
        let address = place.trim_end_matches('/').to_socket_addrs().ok();
        let address = address.and_then(|mut found| found.next());
        let address = address
            .ok_or_else(|| Failure::Usage(format!("{}: no such host and port", args.url)))?;
        let known = args
            .features
            .map(|features| (args.input.clone(), features as usize));
        let (input, features) = match known {
            Some(known) => known,
            None if wire == Wire::Grpc => {
                let what = "how many values a row has is not asked for over gRPC";
                return Err(Failure::Usage(format!("--features: {what}: name it")));
            }
            None => Self::ask(args, address)?,
        };
        Ok(Self {
            address,
            wire,
            input: args
                .input
                .clone()
                .or(input)
                .unwrap_or_else(|| "input".to_owned()),
            features,
        })
    }

    fn ask(args: &BenchServeArgs, address: SocketAddr) -> Result<(Option<String>, usize), Failure> {
        let path = format!("/v2/models/{}", args.model);
        let failed = |what: &str| {
            Failure::Failed(format!(
                "{}{path}: {what}; name --features and --input if it has no metadata",
                args.url
            ))
        };
        let (status, body) = get(address, &path).map_err(|e| failed(&sentence(&e)))?;
        if status != 200 {
            return Err(failed(&format!("it answers {status}")));
        }
        let metadata: Value =
            serde_json::from_slice(&body).map_err(|_| failed("it answers no JSON"))?;
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
