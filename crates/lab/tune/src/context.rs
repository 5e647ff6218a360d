//! State shared by all steps of a tuning run.

use std::time::Instant;

use albacore_os::Signals;
use albacore_values::sentence;

use crate::cpus::Cpus;
use crate::deployment::Deployment;
use crate::error::TuneError;
use crate::ranking::Ranking;
use crate::request::TuneRequest;

pub(crate) struct Context<'a> {
    pub(crate) request: &'a TuneRequest,
    pub(crate) deployment: Deployment,
    pub(crate) cpus: Cpus,
    begin: Instant,
    signals: Signals,
    on_progress: &'a mut dyn FnMut(&str),
}

impl<'a> Context<'a> {
    /// The time limit starts now.
    pub(crate) fn new(
        request: &'a TuneRequest,
        on_progress: &'a mut dyn FnMut(&str),
    ) -> Result<Self, TuneError> {
        let deployment = Deployment::read(request)?;
        let cpus = Cpus::read(request.cpus.as_ref())?;
        std::fs::create_dir_all(&request.folder).map_err(TuneError::file(&request.folder))?;
        on_progress(&cpus.description());
        Ok(Self {
            request,
            deployment,
            cpus,
            begin: Instant::now(),
            signals: Signals::install().map_err(|e| TuneError::Failed(sentence(&e)))?,
            on_progress,
        })
    }

    pub(crate) fn report(&mut self, line: &str) {
        (self.on_progress)(line);
    }

    /// Elapsed time of the run, in seconds.
    pub(crate) fn elapsed(&self) -> f64 {
        self.begin.elapsed().as_secs_f64()
    }

    /// Rate per pod for the requested total rate, according to the best prediction.
    pub(crate) fn rate_of_pod(&self, ranking: &Ranking) -> Option<f64> {
        let rate = self.request.options.rate?;
        let each = ranking.predicted.first().map_or(rate, |best| best.goodput);
        Some(rate / (rate / each.max(1e-9)).ceil().max(1.0))
    }

    /// # Errors
    /// [`TuneError::Interrupted`] after SIGINT or SIGTERM.
    pub(crate) fn stop_if_interrupted(&self) -> Result<(), TuneError> {
        match self.signals.termination_count() {
            0 => Ok(()),
            _ => Err(TuneError::Interrupted),
        }
    }
}
