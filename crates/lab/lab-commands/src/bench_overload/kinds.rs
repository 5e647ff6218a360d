//! Kinds and sizes of requests.

use std::net::SocketAddr;

use albacore_load::{InferRequest, Request, WireFormat};

use super::MODEL;
use crate::bench_isolation::{INPUT, rows};

/// A requested output with a number of rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestKind {
    Predict1,
    Predict10,
    Contribs1,
    Contribs10,
    Interactions1,
}

pub(super) fn kind_of(name: &str) -> Option<RequestKind> {
    RequestKind::ALL
        .into_iter()
        .find(|kind| kind.name() == name)
}

impl RequestKind {
    pub(super) const ALL: [Self; 5] = [
        Self::Predict1,
        Self::Predict10,
        Self::Contribs1,
        Self::Contribs10,
        Self::Interactions1,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Predict1 => "predict1",
            Self::Predict10 => "predict10",
            Self::Contribs1 => "contribs1",
            Self::Contribs10 => "contribs10",
            Self::Interactions1 => "interactions1",
        }
    }

    fn output(self) -> Option<&'static str> {
        match self {
            Self::Predict1 | Self::Predict10 => None,
            Self::Contribs1 | Self::Contribs10 => Some("contribs"),
            Self::Interactions1 => Some("interactions"),
        }
    }

    fn rows(self) -> usize {
        match self {
            Self::Predict1 | Self::Contribs1 | Self::Interactions1 => 1,
            Self::Predict10 | Self::Contribs10 => 10,
        }
    }

    pub(super) fn requests(self, address: SocketAddr) -> Vec<Request> {
        let rows: Vec<Vec<f32>> = rows().collect();
        let features = rows[0].len();
        let request = |first: usize| {
            let of = (first..first + self.rows()).flat_map(|row| rows[row % rows.len()].iter());
            let call = InferRequest {
                model: MODEL,
                input: INPUT,
                output: self.output(),
                values: &of.copied().collect::<Vec<f32>>(),
                features,
            };
            call.request(WireFormat::Json, address)
        };
        (0..rows.len()).map(request).collect()
    }
}
