//! Requests of the demo, sent in a closed and in an open loop.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use albacore_load::{Load, Request, Sample, Shape, drive};
use anyhow::{Context, Result, ensure};

/// Latency objective of examples/fraud.yaml.
pub(crate) const SLO: Duration = Duration::from_millis(25);
/// Rows per request, as in the article's small payload.
const ROWS_PER_REQUEST: usize = 100;
/// Connections of the open loop: more than can be in flight within the objective at the offered
/// rates.
const CONNECTIONS: usize = 32;

/// Rows for the requests.
pub(crate) struct Rows {
    values: Vec<f32>,
    features: usize,
}

impl Rows {
    pub(crate) fn read(file: &Path) -> Result<Self> {
        let bytes =
            std::fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
        let npy = npyz::NpyFile::new(&bytes[..])
            .with_context(|| format!("{} is not an .npy file", file.display()))?;
        let features = usize::try_from(*npy.shape().last().context("no shape")?)?;
        let values = npy.into_vec::<f32>()?;
        ensure!(
            features > 0 && values.len() >= ROWS_PER_REQUEST * features,
            "too few rows"
        );
        Ok(Self { values, features })
    }

    pub(crate) fn per_request(&self) -> usize {
        ROWS_PER_REQUEST
    }

    /// Requests for SHAP contributions as binary tensors, each with different rows.
    pub(crate) fn requests(&self, address: SocketAddr) -> Result<Vec<Request>> {
        let size = ROWS_PER_REQUEST * self.features;
        let head = serde_json::json!({
            "inputs": [{
                "name": "input",
                "datatype": "FP32",
                "shape": [ROWS_PER_REQUEST, self.features],
                "parameters": {"binary_data_size": 4 * size},
            }],
            "outputs": [{"name": "contribs", "parameters": {"binary_data": true}}],
        })
        .to_string();
        let requests = self.values.chunks_exact(size).map(|rows| {
            let mut body = head.clone().into_bytes();
            body.extend(rows.iter().flat_map(|value| value.to_le_bytes()));
            let headers = vec![
                (
                    "content-type".to_owned(),
                    "application/octet-stream".to_owned(),
                ),
                (
                    "inference-header-content-length".to_owned(),
                    head.len().to_string(),
                ),
            ];
            let path = "/v2/models/fraud/infer".to_owned();
            Request {
                address,
                path,
                headers,
                body: body.into(),
            }
        });
        Ok(requests.collect())
    }
}

/// Throughput of a closed loop of four connections (2 W), in requests per second.
pub(crate) fn capacity(requests: &[Request]) -> Result<f64> {
    let length = Duration::from_secs(2);
    let shape = Shape::Closed(length);
    let samples = drive(Load {
        requests: requests.to_vec(),
        shape,
        connections: 4,
    })?;
    let answered = samples.iter().filter(|sample| sample.status == 200).count();
    Ok(answered as f64 / length.as_secs_f64())
}

/// Poisson arrivals at `rate` for `length`.
pub(crate) fn open(
    requests: &[Request],
    rate: f64,
    length: Duration,
    seed: u64,
) -> Result<Vec<Sample>> {
    let shape = Shape::Open(albacore_load::poisson(rate, length, seed));
    Ok(drive(Load {
        requests: requests.to_vec(),
        shape,
        connections: CONNECTIONS,
    })?)
}
