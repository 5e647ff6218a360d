//! Stage times that a server reports in `Server-Timing`.

use std::sync::Mutex;
use std::time::Duration;

/// Maximum number of stages of a response; later ones are dropped.
const STAGES_MAX: usize = 10;

/// Maximum number of distinct names in this process; later ones are dropped.
const NAMES_MAX: usize = 64;

/// Maximum length of a name in bytes.
const NAME_BYTES_MAX: usize = 32;

/// All names that were read; samples contain indices into it, so that they are small.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Stages of a response with their durations, in the order of the header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct StageTimes {
    count: usize,
    /// Index of the name, and microseconds.
    times: [(u8, u32); STAGES_MAX],
}

impl StageTimes {
    /// Parses a header value such as `run;dur=1.25, queue;dur=0.1`, in milliseconds. Metrics
    /// without a duration are ignored.
    pub(crate) fn parse(header: &str) -> Self {
        let mut stages = Self::default();
        for metric in header.split(',') {
            let mut parts = metric.split(';').map(str::trim);
            let name = parts.next().unwrap_or_default();
            let duration = parts.find_map(|part| part.strip_prefix("dur="));
            let ms = duration.and_then(|text| text.trim_matches('"').parse::<f64>().ok());
            let time = ms.and_then(|ms| Duration::try_from_secs_f64(ms / 1e3).ok());
            if let (Some(time), Some(index)) = (time, index_of(name))
                && let Some(slot) = stages.times.get_mut(stages.count)
            {
                let micros = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
                *slot = (index, micros);
                stages.count += 1;
            }
        }
        stages
    }

    /// Duration of a stage.
    pub fn time(&self, name: &str) -> Option<Duration> {
        let index = known_index(name)?;
        let mut times = self.times[..self.count].iter();
        let (_, micros) = times.find(|(known, _)| *known == index)?;
        Some(Duration::from_micros((*micros).into()))
    }

    /// All stage names in the responses of this process.
    pub fn names() -> Vec<String> {
        names().clone()
    }
}

fn names() -> std::sync::MutexGuard<'static, Vec<String>> {
    // the list is consistent even after a panic
    NAMES
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn known_index(name: &str) -> Option<u8> {
    let index = names().iter().position(|known| known == name)?;
    u8::try_from(index).ok()
}

/// Index of a name, which is added if new; `None` if the name is invalid or there are too many.
fn index_of(name: &str) -> Option<u8> {
    let mut names = names();
    let index = match names.iter().position(|known| known == name) {
        Some(index) => index,
        None if names.len() < NAMES_MAX && (1..=NAME_BYTES_MAX).contains(&name.len()) => {
            names.push(name.to_owned());
            names.len() - 1
        }
        None => return None,
    };
    u8::try_from(index).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn well_formed_stages_are_parsed() {
        let ms = |us| Some(Duration::from_micros(us));
        let run = |header: &str| StageTimes::parse(header).time("run");
        assert_eq!(run("run;dur=1.25"), ms(1250));
        assert_eq!(run("queue;dur=3, run;desc=x;dur=2"), ms(2000));
        for header in [
            "",
            "run",
            "run;dur=x",
            "run;dur=-1",
            "running;dur=1",
            "run;dur=nan",
        ] {
            assert_eq!(run(header), None, "{header}");
        }
        let both = StageTimes::parse("parse;dur=0.5, shap;dur=\"7\"");
        assert_eq!((both.time("parse"), both.time("shap")), (ms(500), ms(7000)));
        let names = StageTimes::names();
        assert!(names.iter().any(|name| name == "shap"), "{names:?}");
    }

    #[test]
    fn a_response_with_many_stages_keeps_the_first() {
        let many: Vec<String> = (0..12).map(|i| format!("many{i};dur={i}")).collect();
        let stages = StageTimes::parse(&many.join(","));
        let ms = Duration::from_millis;
        assert_eq!(stages.time("many9"), Some(ms(9)));
        assert_eq!(stages.time("many10"), None);
    }
}
