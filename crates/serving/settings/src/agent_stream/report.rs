//! The reverse direction: latency reports of servers, sent as lines from `albacore-params` to the
//! agent.
//!
//! ```json
//! {"uid":"6a…","bounds_us":[1000,5000],"counts":[17,3,0]}
//! ```
//!
//! Reports use a separate pipe. The agent does not trust its writer, so the length of a line
//! ([`REPORT_LINE_BYTES_MAX`]) and of its lists ([`REPORT_BUCKETS_MAX`]) is bounded.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::{Value, json};

use super::validate::check_name;
use crate::limits::{REPORT_BUCKETS_MAX, REPORT_LINE_BYTES_MAX};
use crate::object_reader::{ObjectReader, UnknownFields};
use crate::validation_error::ValidationError;

/// The latency histogram of a pod's server since it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyReport {
    /// Pod uid, which `albacore-params` looks up by the address of the connection.
    pub uid: String,
    /// Inclusive upper bounds of the buckets in microseconds, ascending; the last bucket has none.
    pub bounds_us: Vec<u64>,
    /// Requests per bucket, not cumulative; one entry more than `bounds_us`.
    pub counts: Vec<u64>,
}

impl LatencyReport {
    /// Checks a report built in memory; [`LatencyReport::decode`] returns only checked reports.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), ValidationError> {
        let Self {
            uid,
            bounds_us,
            counts,
        } = self;
        check_name("uid", uid)?;
        if counts.len() > REPORT_BUCKETS_MAX || counts.len() != bounds_us.len() + 1 {
            let problem = format!(
                "has {} entries for {} bounds: expected one more, and at most {REPORT_BUCKETS_MAX}",
                counts.len(),
                bounds_us.len()
            );
            return Err(ValidationError::field("counts", problem));
        }
        if bounds_us.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(ValidationError::field(
                "bounds_us",
                "are not in ascending order: sort them",
            ));
        }
        Ok(())
    }

    /// Returns the upper bound of each bucket in seconds (infinity for the last) with the
    /// cumulative number of requests.
    #[must_use]
    pub fn cumulative(&self) -> Vec<(f64, u64)> {
        let ends = self.bounds_us.iter().map(|micros| *micros as f64 / 1e6);
        let mut sum = 0_u64;
        let count = |count: &u64| {
            sum = sum.saturating_add(*count);
            sum
        };
        ends.chain([f64::INFINITY])
            .zip(self.counts.iter().map(count))
            .collect()
    }

    /// Returns the line with its terminator.
    ///
    /// # Errors
    /// The first invalid value.
    pub fn encode(&self) -> Result<String, ValidationError> {
        self.check()?;
        let Self {
            uid,
            bounds_us,
            counts,
        } = self;
        let mut line = json!({"uid": uid, "bounds_us": bounds_us, "counts": counts}).to_string();
        line.push('\n');
        Ok(line)
    }

    /// Decodes and checks a line, with or without its terminator. Unknown fields are ignored.
    ///
    /// # Errors
    /// The first error, with the path of its field.
    pub fn decode(line: &[u8]) -> Result<Self, ValidationError> {
        if line.len() > REPORT_LINE_BYTES_MAX {
            let problem = format!("has {} bytes, at most {REPORT_LINE_BYTES_MAX}", line.len());
            return Err(ValidationError::field("the report", problem));
        }
        let json: Value =
            serde_json::from_slice(line).map_err(|error| ValidationError::NotJson {
                problem: error.to_string(),
            })?;
        let unknown_fields = UnknownFields::Count(Rc::new(Cell::new(0)));
        let mut object = ObjectReader::root("the report", json, unknown_fields)?;
        let report = Self {
            uid: object.string("uid")?.unwrap_or_default(),
            bounds_us: object.u64s("bounds_us")?,
            counts: object.u64s("counts")?,
        };
        object.finish()?;
        report.check()?;
        Ok(report)
    }
}
