//! The stages of an answered call: in the header `Server-Timing`, in `/metrics`, and in the
//! statistics of Triton's extension.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use super::micros;
use albacore_engine::{Kind, KindSet, Timing};

/// Name of the header, and of the metadata over gRPC.
pub(super) const SERVER_TIMING: &str = "server-timing";

/// How many stages there are.
pub(super) const STAGES: usize = 6;

/// Names of stages in `/metrics`, in the order of [`CallStages::times`].
pub(super) const STAGE_NAMES: [&str; STAGES] = [
    "parse",
    "admission",
    "queue",
    "defer",
    "compute",
    "serialize",
];

/// The stages of an answered call, one after the other, so that together they take at most as long
/// as the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct CallStages {
    /// From the end of the body to rows in shared memory, but for `admission`.
    pub(super) parse: Duration,
    /// For a turn of the front, and for memory within the limits of the queue.
    pub(super) admission: Duration,
    /// Waiting and computing in the engine.
    pub(super) timing: Timing,
    /// When the results were available.
    pub(super) computed_at: Instant,
}

impl CallStages {
    /// By stage; `serialize` is what is left until the reply was encoded.
    pub(super) fn times(&self, encoded_at: Instant) -> [Duration; STAGES] {
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

    /// The value of `Server-Timing` of a reply that is encoded: milliseconds of each stage. `queue`
    /// includes `defer`; computing is called `shap` where SHAP values were asked for, and is
    /// also there as `run`, whatever was.
    pub(super) fn header(&self, kinds: KindSet) -> String {
        let [parse, admission, _, defer, compute, serialize] = self.times(Instant::now());
        let computing = match is_shap(kinds) {
            true => ", shap;dur=",
            false => ", compute;dur=",
        };
        let parts = [
            ("parse;dur=", parse),
            (", admission;dur=", admission),
            (", queue;dur=", self.timing.queue),
            (", defer;dur=", defer),
            (computing, compute),
            (", serialize;dur=", serialize),
            (", run;dur=", compute),
        ];
        let mut text = String::with_capacity(160);
        for (name, time) in parts {
            let micros = micros(time);
            // infallible: a String
            let _ = write!(text, "{name}{}.{:03}", micros / 1000, micros % 1000);
        }
        text
    }
}

fn is_shap(kinds: KindSet) -> bool {
    matches!(kinds.costliest(), Some(Kind::Contribs | Kind::Interactions))
}
