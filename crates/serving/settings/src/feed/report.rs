//! The way back: the latency that a server reports, as a line from `albacore-params` to the agent.
//!
//! ```json
//! {"uid":"6a…","bounds_us":[1000,5000],"counts":[17,3,0]}
//! ```
//!
//! The pipe is another one than that of the feed, and its writer is not trusted: a line is bounded
//! ([`REPORT_LINE_BYTES_MAX`]), its lists are ([`REPORT_BUCKETS_MAX`]), and nothing else is taken.

use std::cell::Cell;
use std::rc::Rc;

use serde_json::{Value, json};

use super::check::check_word;
use crate::fields::{Fields, Unknown};
use crate::invalid::Invalid;
use crate::limits::{REPORT_BUCKETS_MAX, REPORT_LINE_BYTES_MAX};

/// The latency histogram of a pod's server since it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LatencyReport {
    /// The pod's uid, as `albacore-params` knows it by the address of the connection.
    pub uid: String,
    /// Upper bounds of the buckets, inclusive, microseconds, rising; the last bucket has none.
    pub bounds_us: Vec<u64>,
    /// Requests in each bucket, not cumulative: one more than bounds.
    pub counts: Vec<u64>,
}

impl LatencyReport {
    /// Checks a report that was not read: what [`LatencyReport::decode`] returns is checked.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        let Self {
            uid,
            bounds_us,
            counts,
        } = self;
        check_word("uid", uid)?;
        if counts.len() > REPORT_BUCKETS_MAX || counts.len() != bounds_us.len() + 1 {
            let problem = format!(
                "has {} entries for {} bounds: one more is needed, and at most {REPORT_BUCKETS_MAX}",
                counts.len(),
                bounds_us.len()
            );
            return Err(Invalid::of("counts", problem));
        }
        if bounds_us.windows(2).any(|pair| pair[0] >= pair[1]) {
            return Err(Invalid::of("bounds_us", "do not rise: sort them"));
        }
        Ok(())
    }

    /// The line, with its end.
    ///
    /// # Errors
    /// The first value that may not be in a report.
    pub fn encode(&self) -> Result<String, Invalid> {
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

    /// Reads a line, with or without its end. Fields that are not known are passed over.
    ///
    /// # Errors
    /// The first thing that is wrong, with the name of its field.
    pub fn decode(line_bytes: &[u8]) -> Result<Self, Invalid> {
        if line_bytes.len() > REPORT_LINE_BYTES_MAX {
            let problem = format!(
                "has {} bytes, at most {REPORT_LINE_BYTES_MAX}",
                line_bytes.len()
            );
            return Err(Invalid::of("the report", problem));
        }
        let tree: Value = serde_json::from_slice(line_bytes).map_err(|error| Invalid::NotJson {
            problem: error.to_string(),
        })?;
        let unknown = Unknown::Counted(Rc::new(Cell::new(0)));
        let mut fields = Fields::of_whole("the report", tree, unknown)?;
        let report = Self {
            uid: fields.text("uid")?.unwrap_or_default(),
            bounds_us: fields.longs("bounds_us")?,
            counts: fields.longs("counts")?,
        };
        fields.end()?;
        report.check()?;
        Ok(report)
    }
}
