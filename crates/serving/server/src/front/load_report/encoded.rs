//! A report encoded in the formats of replies.
//!
//! The prefixes and separators are those that Envoy parses.

use albacore_proto::orca::OrcaLoadReport;
use hyper::header::HeaderValue;
use prost::Message as _;
use serde::Serialize;
use std::collections::BTreeMap;
use tonic::metadata::{Binary, MetadataValue};

use super::ReportFormat;

/// A format is `None` if it is not a valid header value; replies then have no report.
pub(super) struct EncodedReport {
    text: Option<HeaderValue>,
    json: Option<HeaderValue>,
    binary: Option<HeaderValue>,
    trailer: Option<HeaderValue>,
}

impl EncodedReport {
    pub(super) fn new(report: &OrcaLoadReport) -> Self {
        let base64 = base64(&report.encode_to_vec());
        Self {
            text: HeaderValue::try_from(text(report)).ok(),
            json: json(report),
            binary: HeaderValue::try_from(format!("BIN {base64}")).ok(),
            trailer: HeaderValue::try_from(base64).ok(),
        }
    }

    /// The header value for HTTP replies.
    pub(super) fn header(&self, format: ReportFormat) -> Option<HeaderValue> {
        match format {
            ReportFormat::Text => self.text.clone(),
            ReportFormat::Json => self.json.clone(),
            ReportFormat::Binary => self.binary.clone(),
        }
    }

    /// The trailer value for gRPC replies.
    pub(super) fn trailer(&self) -> Option<HeaderValue> {
        self.trailer.clone()
    }
}

fn text(report: &OrcaLoadReport) -> String {
    let fields = [
        ("application_utilization", report.application_utilization),
        ("rps_fractional", report.rps_fractional),
        ("eps", report.eps),
    ];
    let mut entries: Vec<String> = fields
        .iter()
        .map(|(name, value)| format!("{name}:{value}"))
        .collect();
    let named = report.named_metrics.iter();
    // A separator in a name would make parsers split the name and reject the report.
    let named = named.filter(|(name, _)| name.bytes().all(is_plain));
    entries.extend(named.map(|(name, value)| format!("named_metrics.{name}:{value}")));
    format!("TEXT {}", entries.join(","))
}

fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-/".contains(&byte)
}

fn json(report: &OrcaLoadReport) -> Option<HeaderValue> {
    #[derive(Serialize)]
    struct Fields<'a> {
        application_utilization: f64,
        rps_fractional: f64,
        eps: f64,
        named_metrics: &'a BTreeMap<String, f64>,
    }
    let fields = Fields {
        application_utilization: report.application_utilization,
        rps_fractional: report.rps_fractional,
        eps: report.eps,
        named_metrics: &report.named_metrics,
    };
    let json = serde_json::to_string(&fields).ok()?;
    HeaderValue::try_from(format!("JSON {json}")).ok()
}

/// Encodes with padding, which gRPC accepts and Envoy requires.
fn base64(bytes: &[u8]) -> String {
    let value = MetadataValue::<Binary>::from_bytes(bytes);
    let unpadded = String::from_utf8_lossy(value.as_encoded_bytes());
    let length = unpadded.len().next_multiple_of(4);
    format!("{unpadded:=<length$}")
}
