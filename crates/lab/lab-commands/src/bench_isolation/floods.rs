//! Requests of the clients of a flood.

use std::net::SocketAddr;

use albacore_bench::FEATURES;
use albacore_load::{InferRequest, Request, WireFormat};
use albacore_random::SplitMix64;

use super::{FLOODED, VICTIM};

/// Name of the input tensor, which the server does not check for these models.
pub(crate) const INPUT: &str = "input";

/// Number of distinct requests, sent round-robin.
const REQUESTS: usize = 32;

/// Kind of requests of a flood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flood {
    /// Predictions of ten rows.
    Predict,
    /// SHAP values of ten rows.
    Contribs,
    /// Interactions of one row.
    Interactions,
    /// Rows with too few values.
    Invalid,
    /// SHAP values of ten rows, from the victim's model.
    Siblings,
}

pub(super) fn flood_of(name: &str) -> Option<Flood> {
    Flood::ALL.into_iter().find(|flood| flood.name() == name)
}

impl Flood {
    pub(super) const ALL: [Self; 5] = [
        Self::Predict,
        Self::Contribs,
        Self::Interactions,
        Self::Invalid,
        Self::Siblings,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Predict => "predict",
            Self::Contribs => "contribs",
            Self::Interactions => "interactions",
            Self::Invalid => "invalid",
            Self::Siblings => "siblings",
        }
    }

    pub(super) fn requests(self, address: SocketAddr) -> Vec<Request> {
        let (model, output, rows_each) = match self {
            Self::Predict => (FLOODED, None, 10),
            Self::Contribs => (FLOODED, Some("contribs"), 10),
            Self::Interactions => (FLOODED, Some("interactions"), 1),
            Self::Invalid => (FLOODED, None, 10),
            Self::Siblings => (VICTIM, Some("contribs"), 10),
        };
        let rows: Vec<Vec<f32>> = rows().collect();
        let request = |first: usize| {
            let mut values: Vec<f32> = (first..first + rows_each)
                .flat_map(|row| rows[row % rows.len()].iter().copied())
                .collect();
            let mut features = FEATURES as usize;
            if self == Self::Invalid {
                features -= 1;
                values.truncate(rows_each * features);
            }
            let call = InferRequest {
                model,
                input: INPUT,
                output,
                values: &values,
                features,
            };
            call.request(WireFormat::Json, address)
        };
        (0..REQUESTS).map(request).collect()
    }
}

/// Random rows.
pub(crate) fn rows() -> impl Iterator<Item = Vec<f32>> {
    let mut random = SplitMix64::new(1);
    (0..REQUESTS).map(move |_| {
        let unit = |bits: u64| (bits >> 40) as f32 / (1_u64 << 24) as f32;
        (0..FEATURES)
            .map(|_| unit(random.draw()) * 4.0 - 2.0)
            .collect()
    })
}
