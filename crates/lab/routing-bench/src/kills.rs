//! Kills pods one at a time while requests are sent.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use albacore_random::SplitMix64;

use crate::error::RoutingError;
use crate::pod::Pod;

/// Interval at which the end of the load is polled.
const LOOK: Duration = Duration::from_millis(5);

/// Schedule of kills.
#[derive(Clone, Copy, Debug)]
pub struct Kills {
    /// Time from the start to the first kill.
    pub first: Duration,
    /// Time from one kill to the next.
    pub every: Duration,
    /// Equal seeds draw equal pods.
    pub seed: u64,
}

/// A pod that was killed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Kill {
    /// Index of the pod.
    pub pod: usize,
    /// Time after the start of the load.
    pub at: Duration,
    /// Time until the pod was ready again.
    pub down: Duration,
}

impl Kills {
    /// Kills pods one at a time, each drawn from all, until `is_over`; times are relative to
    /// `start`.
    fn run(
        &self,
        pods: &mut [Pod],
        start: Instant,
        is_over: &AtomicBool,
    ) -> Result<Vec<Kill>, RoutingError> {
        let mut random = SplitMix64::new(self.seed);
        let mut kills = Vec::new();
        let mut due = self.first;
        // bound: the load, at the end of which the caller sets `is_over`
        while !is_over.load(Ordering::Relaxed) {
            let left = due.saturating_sub(start.elapsed());
            if !left.is_zero() {
                std::thread::sleep(left.min(LOOK));
                continue;
            }
            let pod = (random.draw() % pods.len() as u64) as usize;
            let (at, down) = pods[pod].restart()?;
            let at = at.duration_since(start);
            kills.push(Kill { pod, at, down });
            due += self.every;
        }
        Ok(kills)
    }
}

/// Kills pods while `send` runs; the clock starts now.
///
/// # Errors
/// A pod does not start again, or `send` fails.
pub fn while_killing<T>(
    pods: &mut [Pod],
    kills: Kills,
    send: impl FnOnce() -> Result<T, RoutingError>,
) -> Result<(T, Vec<Kill>), RoutingError> {
    let (start, is_over) = (Instant::now(), AtomicBool::new(false));
    std::thread::scope(|scope| {
        let killer = scope.spawn(|| kills.run(pods, start, &is_over));
        let sent = send();
        is_over.store(true, Ordering::Relaxed);
        let killed = killer.join().unwrap_or_else(|_| {
            let what = "the thread that kills pods panicked";
            Err(RoutingError::Failed(what.to_owned()))
        });
        Ok((sent?, killed?))
    })
}
