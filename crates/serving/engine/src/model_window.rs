//! Outcomes and latencies of one model's requests in the last minute, by kind of output.
//!
//! Memory: for each kind that was ever requested, the spans of the window with about 3 KiB of
//! latencies each; there are five kinds, and at most [`crate::limits::SLOTS_MAX`] models.

use albacore_batching::{ModelLoad, Nanos, RequestCounts};
use albacore_values::LogHistogram;

use super::Kind;
use super::window::{NEWEST, Outcomes, SlidingWindow, number};

/// Latencies in microseconds; quantiles are at most one part in 16 too high.
pub type Latencies = LogHistogram<16>;

/// Requests for one kind of output of a model in one span.
#[derive(Clone, Debug, Default)]
struct KindSpan {
    outcomes: Outcomes,
    latencies: Latencies,
}

/// The window of one model: by the most expensive kind of each request, `None` for requests that
/// were rejected before their body was read.
#[derive(Clone, Debug, Default)]
pub(super) struct ModelWindow(Vec<(Option<Kind>, SlidingWindow<KindSpan>)>);

/// Requests of the last minute for one kind of output of a model.
#[derive(Clone, Debug, PartialEq)]
pub struct KindLoad {
    /// The most expensive requested kind; `None`: rejected before the body was read.
    pub kind: Option<Kind>,
    pub outcomes: Outcomes,
    /// Outcomes of the last 15 to 20 s.
    pub newest: Outcomes,
    /// From submission to reply.
    pub latencies: Latencies,
}

impl KindLoad {
    pub(super) fn counts(&self) -> RequestCounts {
        RequestCounts {
            requests: self.outcomes.all(),
            bad: self.outcomes.bad(),
            recent_requests: self.newest.all(),
            recent_bad: self.newest.bad(),
        }
    }
}

/// The load of one model that the scaling rule uses.
pub(super) fn model_load(kinds: &[KindLoad], bad_rate_allowed: Option<f64>) -> ModelLoad {
    let mut all = RequestCounts::default();
    kinds.iter().for_each(|kind| all.add(&kind.counts()));
    let known = kinds.iter().filter(|kind| kind.kind.is_some());
    ModelLoad {
        bad_rate_allowed,
        all,
        kinds: known.map(KindLoad::counts).collect(),
    }
}

impl ModelWindow {
    fn of(&mut self, kind: Option<Kind>) -> &mut SlidingWindow<KindSpan> {
        let known = self.0.iter().position(|(known, _)| *known == kind);
        let at = known.unwrap_or(self.0.len());
        if known.is_none() {
            self.0.push((kind, SlidingWindow::new()));
        }
        &mut self.0[at].1
    }

    /// The current outcomes of a kind, for counting.
    pub(super) fn outcomes(&mut self, kind: Option<Kind>, now: Nanos) -> &mut Outcomes {
        &mut self.of(kind).of(number(now)).outcomes
    }

    /// Records requests completed in the span of `at`, which may be long ago.
    pub(super) fn record(
        &mut self,
        kind: Kind,
        outcomes: &Outcomes,
        latencies: &Latencies,
        at: Nanos,
    ) {
        let (spans, number) = (self.of(Some(kind)), number(at));
        if !spans.has_left(number) {
            let span = spans.of(number);
            span.outcomes.add(outcomes);
            span.latencies.merge(latencies);
        }
    }

    /// Records a request that was answered in time after `latency` nanoseconds.
    #[cfg(test)]
    pub(super) fn record_answered(&mut self, kind: Kind, latency: u64, at: Nanos) {
        let mut latencies = Latencies::default();
        latencies.record(latency / 1000);
        let good = 1;
        let outcomes = Outcomes {
            good,
            ..Outcomes::default()
        };
        self.record(kind, &outcomes, &latencies, at);
    }

    /// The window that ends now, for each kind that was ever requested.
    pub(super) fn kinds(&self, now: Nanos) -> Vec<KindLoad> {
        let kinds = self.0.iter().map(|(kind, spans)| {
            let mut load = KindLoad {
                kind: *kind,
                outcomes: Outcomes::default(),
                newest: Outcomes::default(),
                latencies: Latencies::default(),
            };
            for span in spans.recent(now) {
                load.outcomes.add(&span.outcomes);
                load.latencies.merge(&span.latencies);
            }
            let newest = spans.last(NEWEST + 1, now);
            newest.for_each(|span| load.newest.add(&span.outcomes));
            load
        });
        kinds.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTRIBS: Option<Kind> = Some(Kind::Contribs);

    fn at(seconds: u64) -> Nanos {
        Nanos(seconds * 1_000_000_000)
    }

    fn outcomes(good: u64, late: u64, shed: u64) -> Outcomes {
        Outcomes {
            good,
            late,
            shed,
            failed: 0,
        }
    }

    #[test]
    fn outcomes_are_counted_by_kind_and_forgotten_after_a_minute() {
        let mut window = ModelWindow::default();
        let of = |window: &ModelWindow, now| -> Vec<_> {
            let kinds = window.kinds(at(now)).into_iter();
            kinds.map(|of| (of.kind, of.outcomes, of.newest)).collect()
        };
        window.outcomes(CONTRIBS, at(1)).good += 3;
        window.outcomes(CONTRIBS, at(30)).late += 1;
        window.outcomes(None, at(30)).shed += 2;
        let none = Outcomes::default();
        let (read, unread) = (outcomes(3, 1, 0), outcomes(0, 0, 2));
        let newest = outcomes(0, 1, 0);
        assert_eq!(
            of(&window, 45),
            [(CONTRIBS, read, newest), (None, unread, unread)]
        );
        assert_eq!(
            of(&window, 59),
            [(CONTRIBS, read, none), (None, unread, none)]
        );
        assert_eq!(of(&window, 60)[0], (CONTRIBS, newest, none));
        assert_eq!(
            of(&window, 500),
            [(CONTRIBS, none, none), (None, none, none)]
        );
        window.outcomes(CONTRIBS, at(500)).shed += 1;
        let kinds = window.kinds(at(500));
        assert!((kinds[0].outcomes.bad_rate() - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_kind_has_its_own_latencies() {
        let mut window = ModelWindow::default();
        window.record_answered(Kind::Value, 1_000_000, at(1));
        window.record_answered(Kind::Contribs, 90_000_000, at(1));
        let kinds = window.kinds(at(2));
        let p99 = |of: &KindLoad| of.latencies.quantile_bound(0.99);
        assert_eq!((p99(&kinds[0]), p99(&kinds[1])), (Some(1000), Some(90_000)));
        assert_eq!(kinds[1].outcomes, outcomes(1, 0, 0));
    }

    #[test]
    fn rejected_requests_of_unknown_kind_count_only_for_the_model() {
        let mut window = ModelWindow::default();
        window.outcomes(None, at(1)).shed += 5;
        window.record_answered(Kind::Value, 1000, at(1));
        let load = model_load(&window.kinds(at(1)), Some(0.01));
        assert_eq!((load.all.requests, load.all.bad), (6, 5));
        assert_eq!((load.kinds.len(), load.kinds[0].bad), (1, 0));
    }
}
