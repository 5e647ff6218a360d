//! What the settings say, what was told, and what of both is in force.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use albacore_engine::{BatchingParams, Engine, NoSlot, Objective};
use albacore_proto::params::LatencyReport;
use tokio::sync::Notify;

use albacore_settings::agent_stream::Parameters;

use super::take::Told;

/// Models and their objectives.
pub(crate) type Objectives = Vec<(String, Option<Objective>)>;

/// The only one that tells the engine rules and objectives.
#[derive(Debug)]
pub(crate) struct Desk {
    engine: Arc<Engine>,
    held: Mutex<Held>,
    changed: Notify,
}

#[derive(Debug)]
struct Held {
    rules: BatchingParams,
    models: Objectives,
    told: Option<Told>,
    /// `None` without `--params`.
    link: Option<Link>,
    lost_at: Option<Instant>,
}

/// What is known of the stream of `--params`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Link {
    /// Whether it is open and has said something.
    pub(crate) is_connected: bool,
    /// Of the parameters in force, if those were told.
    pub(crate) generation: Option<u64>,
    pub(crate) parameters: Option<Parameters>,
    /// Why what was told last is not in force.
    pub(crate) refused: Option<String>,
    /// Messages taken, refused, and attempts to connect or streams that ended.
    pub(crate) taken_total: u64,
    pub(crate) refused_total: u64,
    pub(crate) lost_total: u64,
}

impl Desk {
    /// A desk for an engine that follows these settings. It is told so by [`Desk::settle`].
    pub(crate) fn new(engine: Arc<Engine>, rules: BatchingParams, is_told: bool) -> Self {
        let held = Held {
            rules,
            models: Vec::new(),
            told: None,
            link: is_told.then(Link::default),
            lost_at: None,
        };
        Self {
            engine,
            held: Mutex::new(held),
            changed: Notify::new(),
        }
    }

    /// The settings say this from now on.
    ///
    /// # Errors
    /// More models than slots.
    pub(crate) fn settle(&self, rules: BatchingParams, models: Objectives) -> Result<(), NoSlot> {
        let mut held = self.lock();
        held.rules = rules;
        held.models = models;
        if held.lost_at.is_some() {
            held.forget();
        }
        self.enforce(&held)
    }

    /// This was told from now on. Whether it is other than before.
    pub(super) fn tell(&self, told: Told) -> bool {
        let mut held = self.lock();
        held.lost_at = None;
        let is_new = held.told.as_ref() != Some(&told);
        let (generation, parameters) = (told.generation, told.parameters.clone());
        held.told = Some(told);
        held.note(|link| {
            link.is_connected = true;
            link.generation = Some(generation);
            link.parameters = Some(parameters);
            link.refused = None;
            link.taken_total += 1;
        });
        if is_new {
            self.enforce_or_say(&held);
            self.changed.notify_waiters();
        }
        is_new
    }

    /// Waits until latency is to be reported, then how often.
    pub(super) async fn report_period(&self) -> Duration {
        // bound: one pass each change of what is told.
        loop {
            let changed = self.changed.notified();
            let period = self.lock().told.as_ref().and_then(|told| told.report);
            if let Some(period) = period {
                return period;
            }
            changed.await;
        }
    }

    /// Times from arrival to reply, over all models and kinds of output, since the start.
    pub(super) fn latency(&self) -> LatencyReport {
        let stats = self.engine.stats();
        let kinds = stats.models.iter().flat_map(|model| &model.kinds);
        let mut report = LatencyReport::default();
        for histogram in kinds.map(|kind| &kind.total_nanos) {
            let bounds = histogram.bounds.iter().map(|nanos| nanos / 1000);
            report.bounds_us = bounds.collect();
            report.counts.resize(histogram.buckets.len(), 0);
            let counts = report.counts.iter_mut().zip(histogram.buckets);
            counts.for_each(|(sum, count)| *sum += count);
        }
        report
    }

    /// What was told is wrong. Whether that is news.
    pub(super) fn refuse(&self, error: &str) -> bool {
        let mut held = self.lock();
        held.lost_at = None;
        let mut is_new = false;
        held.note(|link| {
            link.is_connected = true;
            link.refused_total += 1;
            is_new = link.refused.as_deref() != Some(error);
            link.refused = Some(error.to_owned());
        });
        is_new
    }

    /// The stream ended, or could not be opened.
    pub(super) fn lose(&self) {
        let mut held = self.lock();
        if held.told.is_some() {
            held.lost_at.get_or_insert_with(Instant::now);
        }
        held.note(|link| {
            link.is_connected = false;
            link.lost_total += 1;
        });
    }

    /// Goes back to the settings if the stream was away for `patience`. Whether it did.
    pub(super) fn give_up_after(&self, patience: Duration) -> bool {
        let mut held = self.lock();
        let is_over = held.lost_at.is_some_and(|at| at.elapsed() >= patience);
        if is_over {
            held.forget();
            self.enforce_or_say(&held);
        }
        is_over
    }

    /// The rules in force, and what is known of the stream, if there is to be one.
    pub(crate) fn seen(&self) -> (BatchingParams, Option<Link>) {
        let held = self.lock();
        let rules = held.told.as_ref().map_or(held.rules, |told| told.rules);
        (rules, held.link.clone())
    }

    fn enforce(&self, held: &Held) -> Result<(), NoSlot> {
        let objective = |(name, own): &(String, Option<Objective>)| match &held.told {
            None => *own,
            Some(told) => {
                let mut of = told.objectives.iter();
                of.find(|(model, _)| model == name).map(|(_, slo)| *slo)
            }
        };
        let models = held.models.iter();
        let models: Vec<(&str, Option<Objective>)> = models
            .map(|model| (model.0.as_str(), objective(model)))
            .collect();
        self.engine.declare(&models)?;
        let rules = held.told.as_ref().map_or(held.rules, |told| told.rules);
        self.engine.set_batching(&rules);
        Ok(())
    }

    /// For models that are declared already: each has its slot.
    fn enforce_or_say(&self, held: &Held) {
        if let Err(error) = self.enforce(held) {
            tracing::error!(%error, "parameters cannot be put in force");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    fn forget(&mut self) {
        self.told = None;
        self.lost_at = None;
        self.note(|link| (link.generation, link.parameters) = (None, None));
    }

    fn note(&mut self, change: impl FnOnce(&mut Link)) {
        if let Some(link) = &mut self.link {
            change(link);
        }
    }
}
