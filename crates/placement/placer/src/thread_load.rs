//! Load class of a thread, from its CPU demand. Two busy threads on one cpu get half of it each, so
//! run-queue waiting time is included.

use albacore_os::Micros;

use crate::LoadClass;
use crate::limits::{COOL_PERCENT_MAX, HOT_PERCENT_MIN};

/// The demand of a thread at the last reading, and the resulting class.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ThreadLoad {
    last: Option<(Micros, Micros)>,
    /// `None` until measured over one period.
    pub(crate) class: Option<LoadClass>,
}

impl ThreadLoad {
    /// Records the total running and waiting time of a thread. Between the two thresholds the class
    /// is kept; it is initially cool.
    pub(crate) fn record(&mut self, demand: Micros, now: Micros) {
        if let Some((demand_before, before)) = self.last {
            let time = now.0.saturating_sub(before.0).max(1);
            let percent = demand.0.saturating_sub(demand_before.0).saturating_mul(100) / time;
            self.class = Some(match self.class {
                _ if percent >= HOT_PERCENT_MIN => LoadClass::Hot,
                Some(class) if percent > COOL_PERCENT_MAX => class,
                _ => LoadClass::Cool,
            });
        }
        self.last = Some((demand, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_changes_only_beyond_the_other_threshold() {
        let mut load = ThreadLoad::default();
        let (mut demand, mut now) = (Micros(70_000), Micros(1_000_000));
        load.record(demand, now);
        assert_eq!(load.class, None, "one reading tells nothing");
        let mut after_a_minute_at = |percent: u64| {
            now.0 += 60_000_000;
            demand.0 += 600_000 * percent;
            load.record(demand, now);
            load.class
        };
        assert_eq!(after_a_minute_at(40), Some(LoadClass::Cool));
        assert_eq!(after_a_minute_at(49), Some(LoadClass::Cool));
        assert_eq!(after_a_minute_at(50), Some(LoadClass::Hot));
        assert_eq!(after_a_minute_at(30), Some(LoadClass::Hot));
        assert_eq!(after_a_minute_at(26), Some(LoadClass::Hot));
        assert_eq!(after_a_minute_at(25), Some(LoadClass::Cool));
        assert_eq!(after_a_minute_at(30), Some(LoadClass::Cool));
    }
}
