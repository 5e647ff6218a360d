//! Stages of an answered call, as reported in the header `Server-Timing`, in `/metrics`, and in the
//! statistics of Triton's extension.

use std::time::{Duration, Instant};

use albacore_engine::{Kind, KindSet, Timing};

/// Name of the header, and of the metadata over gRPC.
pub const SERVER_TIMING: &str = "server-timing";

/// Number of stages.
pub const STAGES: usize = 6;

/// Names of stages in `/metrics`, in the order of [`CallStages::times`].
pub const STAGE_NAMES: [&str; STAGES] = [
    "parse",
    "admission",
    "queue",
    "defer",
    "compute",
    "serialize",
];

/// The stages of an answered call. They are consecutive, so their sum is at most the duration of
/// the call.
#[derive(Clone, Copy, Debug)]
pub struct CallStages {
    /// From the end of the body until the rows are in shared memory, without `admission`.
    pub parse: Duration,
    /// Waiting for a turn of the front, and for memory within the limits of the queue.
    pub admission: Duration,
    /// Queueing delay and compute time in the engine.
    pub timing: Timing,
    /// When the results were available.
    pub computed_at: Instant,
}

impl CallStages {
    /// Times by stage; `serialize` is the remaining time until the reply was encoded.
    pub fn times(&self, encoded_at: Instant) -> [Duration; STAGES] {
        let Timing {
            queue,
            deferred,
            compute,
        } = self.timing;
        [
            self.parse,
            self.admission,
            queue.saturating_sub(deferred),
            deferred,
            compute,
            encoded_at.saturating_duration_since(self.computed_at),
        ]
    }

    /// Value of `Server-Timing` of an encoded reply: milliseconds of each stage. `queue` includes
    /// `defer`; the compute time is named `shap` if SHAP values were requested, and `compute`
    /// otherwise; it is repeated as `run` in both cases.
    pub fn header(&self, kinds: KindSet) -> Vec<u8> {
        let [parse, admission, _, defer, compute, serialize] = self.times(Instant::now());
        let computing = match is_shap(kinds) {
            true => ", shap;dur=",
            false => ", compute;dur=",
        };
        let parts: [(&str, Duration); 7] = [
            ("parse;dur=", parse),
            (", admission;dur=", admission),
            (", queue;dur=", self.timing.queue),
            (", defer;dur=", defer),
            (computing, compute),
            (", serialize;dur=", serialize),
            (", run;dur=", compute),
        ];
        let mut text = Vec::with_capacity(160);
        for (name, time) in parts {
            text.extend_from_slice(name.as_bytes());
            push_millis(&mut text, micros(time));
        }
        text
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Appends microseconds as milliseconds with three decimals; `write!` would take several times as
/// long, for each stage of each reply.
fn push_millis(text: &mut Vec<u8>, micros: u64) {
    const DECIMALS: usize = 3;
    // The 20 digits of a u64 and the decimal point.
    let mut digits = [b'0'; 21];
    let (mut remaining, mut at, mut count) = (micros, digits.len(), 0);
    // bound: each pass writes a digit
    while remaining > 0 || count <= DECIMALS {
        if count == DECIMALS {
            at -= 1;
            digits[at] = b'.';
        }
        at -= 1;
        digits[at] = b'0' + (remaining % 10) as u8;
        remaining /= 10;
        count += 1;
    }
    text.extend_from_slice(&digits[at..]);
}

fn is_shap(kinds: KindSet) -> bool {
    matches!(kinds.costliest(), Some(Kind::Contribs | Kind::Interactions))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn microseconds_are_written_as_milliseconds() {
        for (micros, written) in [
            (0, "0.000"),
            (7, "0.007"),
            (1_000, "1.000"),
            (12_034, "12.034"),
            (u64::MAX, "18446744073709551.615"),
        ] {
            let mut text = Vec::new();
            push_millis(&mut text, micros);
            assert_eq!(String::from_utf8(text).unwrap(), written);
        }
    }
}
