//! The choice for a queue, and its reason.

use std::fmt;

use super::forecast::Forecast;

/// Preference between eager and deferred batches where both sustain the load.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Prefer {
    /// Dispatch at once: lowest latency.
    #[default]
    ShortWaits,
    /// Defer: workers are idle in proportion to the load, so that some can be removed. Requests
    /// wait for most of their objective.
    IdleWorkers,
}

impl Prefer {
    /// All preferences, in the order of the documentation.
    pub const ALL: [Self; 2] = [Self::ShortWaits, Self::IdleWorkers];

    /// Name in files, messages and replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ShortWaits => "short_waits",
            Self::IdleWorkers => "idle_workers",
        }
    }

    /// Parses a name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|prefer| prefer.name() == name)
    }
}

/// Reason why a queue is deferred or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ChoiceReason {
    /// The objective, costs or rate are not known yet.
    #[default]
    Unknown,
    /// Arrivals are bursty: batches are large without waiting.
    Bursts,
    /// Idle workers are preferred.
    IdleWorkersPreferred,
    /// Deferring would raise goodput too little.
    SmallGain,
    /// Eager batches sustain the load.
    LowLoad,
    /// Deferring lowered the arrival rate when it was tried: clients wait for their replies.
    ClientsWait,
    /// Eager batches do not sustain the load, deferred ones sustain more.
    Overload,
}

impl ChoiceReason {
    /// Name in messages and replies.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Bursts => "bursts",
            Self::IdleWorkersPreferred => "idle_workers_preferred",
            Self::SmallGain => "small_gain",
            Self::LowLoad => "low_load",
            Self::ClientsWait => "clients_wait",
            Self::Overload => "overload",
        }
    }
}

/// The choice for a queue, with the figures that it is based on.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Choice {
    /// Batches are deferred; otherwise they are dispatched as soon as a worker is free.
    pub is_deferred: bool,
    pub reason: ChoiceReason,
    /// `None` while costs, objective or rate are not known.
    pub forecast: Option<Forecast>,
    /// Offered load of all queues with eager batches, as a fraction of the capacity of the workers.
    pub load: f64,
    /// Index of dispersion (variance over mean) of the arrivals within one objective: 1 if they are
    /// random.
    pub dispersion: f64,
    /// The batch size that the drop rule targets.
    pub(super) target_rows: Option<u64>,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.is_deferred {
            true => "deferred: ",
            false => "eager: ",
        })?;
        let percent = |share: f64| share * 100.0;
        match self.reason {
            ChoiceReason::Unknown => f.write_str("costs, objective or rate are not known yet")?,
            ChoiceReason::Bursts => write!(
                f,
                "arrivals come in bursts (variance/mean {:.1} within an objective)",
                self.dispersion
            )?,
            ChoiceReason::IdleWorkersPreferred => f.write_str("idle workers are preferred")?,
            ChoiceReason::SmallGain => f.write_str("deferring would gain little")?,
            ChoiceReason::LowLoad => write!(
                f,
                "eager batches sustain the load ({:.0} % of their capacity)",
                percent(self.load)
            )?,
            ChoiceReason::ClientsWait => {
                f.write_str("fewer requests arrived while deferred: clients wait for replies")?;
            }
            ChoiceReason::Overload => write!(
                f,
                "the load is {:.0} % of the capacity of eager batches",
                percent(self.load)
            )?,
        }
        let Some(forecast) = &self.forecast else {
            return Ok(());
        };
        write!(
            f,
            "; deferring gains {:.1} % goodput ({:.0} rows/s in batches of {} instead of {:.0} in batches of {}{}) and {:.2} idle workers, and costs {:.1} ms at p50",
            percent(forecast.goodput_gain()),
            forecast.deferred_goodput,
            forecast.deferred_rows,
            forecast.eager_goodput,
            forecast.eager_rows,
            match forecast.is_front_limit {
                true => ", limited by the front end",
                false => "",
            },
            forecast.idle_workers_gain,
            forecast.p50_cost.0 as f64 / 1e6,
        )
    }
}
