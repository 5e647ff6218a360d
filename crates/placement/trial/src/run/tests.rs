//! Trials of simulated pods: winners, eliminated arms, and repeated trials.

use albacore_plan::{Enforcement, MainThread, PlacementMethod};
use albacore_random::Xoshiro256;
use albacore_solver::Mode;
use proptest::prelude::*;

use super::*;
use crate::limits::{LOAD_WINDOWS, REQUESTS_MIN};
use crate::sample::PodUsage;
use crate::verdict::Outcome;

fn policy() -> SubjectPolicy {
    SubjectPolicy {
        workers: 2,
        threads: 2,
        mode: Mode::Scatter,
        placement: PlacementMethod::Tuna,
        enforcement: Enforcement::Enforce,
        main_thread: MainThread::Pinned,
        distances: Default::default(),
        is_pool_size_known: true,
    }
}

fn spec(arms: &[Arm]) -> TrialSpec {
    TrialSpec {
        window: Duration::from_secs(10),
        rounds: 8,
        arms: arms.to_vec(),
        metric: TrialMetric::Latency,
    }
}

/// Performance of a pod in a window.
#[derive(Clone, Copy)]
struct Serves {
    p99: f64,
    cpu_per_request: f64,
}

const FAST: Serves = Serves {
    p99: 0.001,
    cpu_per_request: 1e-4,
};

fn serves(p99: f64) -> Serves {
    Serves { p99, ..FAST }
}

/// A pod with counters, and its trial.
struct Pod {
    trial: TrialRun,
    now: Instant,
    /// Requests per window.
    requests: u64,
    counts: Vec<u64>,
    cpu_micros: u64,
    windows: Vec<Arm>,
}

impl Pod {
    fn new(spec: TrialSpec, seed: u64) -> Self {
        let now = Instant::now();
        Self {
            trial: TrialRun::new(spec, &policy(), seed, now),
            now,
            requests: 1000,
            counts: vec![0; 1200],
            cpu_micros: 0,
            windows: Vec::new(),
        }
    }

    /// Buckets of 1 % from 10 us.
    fn sample(&self) -> Sample {
        let mut sum = 0;
        let ends = (1..).map(|bucket| 1e-5 * 1.01_f64.powi(bucket));
        let latency = ends.zip(&self.counts).map(|(end, count)| {
            sum += count;
            (end, sum)
        });
        Sample {
            latency: latency.collect(),
            usage: PodUsage {
                cpu_micros: self.cpu_micros,
                waiting_micros: 0,
                migrations: Some(self.cpu_micros / 10),
                processes: vec![1],
            },
        }
    }

    fn sample_now(&mut self, mapping: Option<u32>) -> bool {
        self.now = self.trial.due().unwrap().max(self.now);
        let sample = self.sample();
        self.trial.add_sample(Some(sample), mapping, self.now)
    }

    /// Runs one window with this performance.
    fn window(&mut self, serves: Serves, mapping: Option<u32>) {
        self.windows.push(self.trial.state().arm());
        self.sample_now(mapping);
        let bucket = ((serves.p99 / 1e-5).ln() / 1.01_f64.ln()) as usize;
        self.counts[bucket.min(1199)] += self.requests;
        self.cpu_micros += (serves.cpu_per_request * 1e6 * self.requests as f64) as u64;
        self.sample_now(mapping);
    }

    /// Runs windows until the verdict.
    fn run(&mut self, mut serve: impl FnMut(Arm) -> Serves) -> Verdict {
        loop {
            match self.trial.state() {
                TrialState::Over(verdict) => return verdict,
                TrialState::Window(arm) => {
                    let serves = serve(arm);
                    self.window(serves, None);
                }
            }
        }
    }

    fn count(&self, arm: Arm) -> usize {
        self.windows.iter().filter(|&&of| of == arm).count()
    }
}

fn noise(random: &mut Xoshiro256) -> f64 {
    (0..12).map(|_| random.unit()).sum::<f64>() - 6.0
}

#[test]
fn a_clear_winner_is_found_and_the_others_are_eliminated_early() {
    let mut pod = Pod::new(spec(&Arm::ALL), 1);
    let mut random = Xoshiro256::new(1, 0);
    let verdict = pod.run(|arm| {
        let p99 = match arm {
            Arm::Compact => 0.010,
            Arm::Scatter => 0.013,
            Arm::RoundRobin | Arm::None => 0.020,
        };
        serves(p99 * (0.02 * noise(&mut random)).exp())
    });
    assert_eq!(
        (verdict.winner, verdict.outcome),
        (Arm::Compact, Outcome::Changed)
    );
    let text = "trial: Compact instead of Scatter; p99 relative to Compact: Scatter 1.";
    assert!(verdict.text.starts_with(text), "{}", verdict.text);
    assert!(verdict.text.contains("RoundRobin ") && verdict.text.contains("None "));
    assert_eq!(
        pod.windows.len(),
        16,
        "the first look after four rounds decides"
    );
}

#[test]
fn the_kernel_and_whom_nothing_beats_stay() {
    let mut all_equal = Pod::new(spec(&Arm::ALL), 2);
    let verdict = all_equal.run(|_| FAST);
    assert_eq!(
        (verdict.winner, verdict.outcome),
        (Arm::None, Outcome::Withdrawn)
    );
    let text = "withdrawn, the trial shows no gain; p99 relative to None: Scatter 1.00 (";
    assert!(verdict.text.starts_with(text), "{}", verdict.text);
    // Equal to an arm that beats the kernel's placement: no reason for a change.
    let mut one_of_two = Pod::new(spec(&Arm::ALL), 3);
    let verdict = one_of_two.run(|arm| match arm {
        Arm::Scatter | Arm::Compact => FAST,
        Arm::RoundRobin | Arm::None => serves(0.002),
    });
    assert_eq!(
        (verdict.winner, verdict.outcome),
        (Arm::Scatter, Outcome::Kept)
    );
    assert_eq!(one_of_two.count(Arm::None), 4, "it was left out");
    // Without the kernel's placement among the arms, placement is never withdrawn.
    let mut plans = Pod::new(spec(&[Arm::Compact, Arm::RoundRobin]), 4);
    let verdict = plans.run(|_| FAST);
    assert_eq!(
        (verdict.winner, verdict.outcome),
        (Arm::Scatter, Outcome::Kept)
    );
}

#[test]
fn less_cpu_time_is_a_gain_unless_latency_gets_worse() {
    let judge = |p99: f64| {
        let mut pod = Pod::new(spec(&[Arm::Scatter, Arm::None]), 5);
        let mut random = Xoshiro256::new(5, 0);
        pod.run(|arm| {
            let noise = (0.01 * noise(&mut random)).exp();
            match arm {
                Arm::None => Serves {
                    p99: 0.01 * noise,
                    cpu_per_request: 1e-4,
                },
                _ => Serves {
                    p99: p99 * noise,
                    cpu_per_request: 0.9e-4,
                },
            }
        })
    };
    let kept = judge(0.01);
    assert_eq!(kept.outcome, Outcome::Kept, "{}", kept.text);
    assert!(
        kept.text
            .starts_with("trial: Scatter stays; cpu time per request: None 1.1")
    );
    assert_eq!(judge(0.013).outcome, Outcome::Withdrawn);
}

#[test]
fn equal_arms_seem_to_differ_in_less_than_one_of_twenty_trials() {
    for arms in [&Arm::ALL[..], &[Arm::Scatter, Arm::None]] {
        let mut random = Xoshiro256::new(6, 0);
        let (mut claims, trials) = (0, 2_000);
        for seed in 0..trials {
            let now = Instant::now();
            let mut trial = TrialRun::new(spec(arms), &policy(), seed, now);
            while trial.verdict.is_none() {
                let window = trial.pending_arms.pop_front().unwrap();
                let stats = WindowStats {
                    primary: (0.1 * noise(&mut random)).exp(),
                    cpu_per_request: Some((0.05 * noise(&mut random)).exp()),
                    migrations_per_second: None,
                    load: 1.0,
                };
                trial.round.push(Window {
                    arm: window,
                    stats,
                    mapping: None,
                });
                if trial.pending_arms.is_empty() {
                    trial.finish_round(now);
                }
            }
            let is_eliminated = trial.arms.iter().any(|arm| arm.elimination.is_some());
            let outcome = trial.verdict.map(|verdict| verdict.outcome);
            claims += usize::from(is_eliminated || outcome != Some(Outcome::Withdrawn));
        }
        assert!(
            claims * 20 < trials as usize,
            "{claims} of {trials}, {arms:?}"
        );
        assert!(claims > 0, "with so many trials chance makes some");
    }
}

#[test]
fn arms_with_the_same_mapping_are_measured_once() {
    let mut pod = Pod::new(spec(&Arm::ALL), 7);
    while let TrialState::Window(arm) = pod.trial.state() {
        let mapping = match arm {
            Arm::Scatter | Arm::RoundRobin => Some(7),
            Arm::Compact => Some(8),
            Arm::None => None,
        };
        pod.window(FAST, mapping);
    }
    let counts = Arm::ALL.map(|arm| pod.count(arm));
    assert_eq!(counts[2], 1, "{counts:?}");
    assert!(
        counts[0] > 1 && counts[1] > 1 && counts[3] > 1,
        "{counts:?}"
    );
    let TrialState::Over(verdict) = pod.trial.state() else {
        panic!("{:?}", pod.trial.state())
    };
    assert!(
        verdict.text.contains("; RoundRobin places as Scatter"),
        "{}",
        verdict.text
    );
}

#[test]
fn a_window_that_cannot_be_measured_is_repeated_with_its_round() {
    let mut pod = Pod::new(spec(&[Arm::Scatter, Arm::None]), 8);
    let first = "trial: round 1 of 8, Scatter";
    for _ in 0..3 {
        pod.requests = REQUESTS_MIN - 1;
        pod.window(FAST, None);
        assert_eq!(pod.trial.progress().unwrap(), first);
        pod.sample_now(None);
        pod.now = pod.trial.due().unwrap();
        pod.trial.add_sample(None, None, pod.now);
        assert_eq!(pod.trial.progress().unwrap(), first);
    }
    pod.requests = 1000;
    pod.window(FAST, None);
    let second = pod.trial.progress().unwrap();
    assert_eq!(second, "trial: round 1 of 8, None");
    pod.now = pod.trial.due().unwrap();
    pod.trial.add_sample(None, None, pod.now);
    assert_eq!(
        pod.trial.progress().unwrap(),
        first,
        "the round begins again"
    );
    for _ in 0..4 {
        pod.window(FAST, None);
    }
    let progress = pod.trial.progress().unwrap();
    assert!(progress.contains("round 3 of 8") && progress.contains("None 1.00 (1.00 to 1.00)"));
}

#[test]
fn a_server_that_stops_reporting_keeps_its_plan() {
    let mut pod = Pod::new(spec(&Arm::ALL), 9);
    for windows in 0..16 {
        for _ in 0..windows {
            pod.window(FAST, None);
        }
        assert!(!pod.trial.is_missing_reports() || windows == 0);
        pod.now = pod.trial.due().unwrap();
        assert!(pod.trial.handle_missing_report(pod.now));
        assert_eq!(pod.trial.state(), TrialState::Window(Arm::Scatter));
        assert!(pod.trial.is_missing_reports());
        let progress = pod.trial.progress().unwrap();
        assert!(progress.starts_with("trial: no latency is reported, so Scatter stays"));
    }
    pod.sample_now(None);
    assert_eq!(
        pod.trial.progress().unwrap(),
        "trial: round 1 of 8, Scatter"
    );
}

/// A finished trial with Compact as the winner.
fn decided() -> Pod {
    let mut pod = Pod::new(spec(&Arm::ALL), 10);
    let verdict = pod.run(|arm| match arm {
        Arm::Compact => FAST,
        _ => serves(0.002),
    });
    assert_eq!(verdict.winner, Arm::Compact);
    pod
}

/// Runs windows with this many requests after the verdict; true if the trial is repeated.
fn watch(pod: &mut Pod, requests: u64, windows: u32) -> bool {
    (0..windows).any(|_| {
        pod.counts[0] += requests;
        pod.sample_now(None)
    })
}

#[test]
fn a_trial_is_repeated_when_the_load_has_changed_but_not_within_an_hour() {
    let mut pod = decided();
    assert!(!watch(&mut pod, 1800, 400), "less than twice the load");
    assert!(pod.now.duration_since(pod.trial.trial_started_at) > REPEAT_PAUSE);
    assert!(!watch(&mut pod, 2500, LOAD_WINDOWS - 1));
    assert!(!watch(&mut pod, 1000, 1), "a burst is none");
    assert!(
        !watch(&mut pod, REQUESTS_MIN - 1, 50),
        "too little for a trial"
    );
    assert!(watch(&mut pod, 2500, LOAD_WINDOWS + 1));
    assert_eq!(
        pod.trial.state(),
        TrialState::Window(Arm::Compact),
        "the winner so far"
    );
    let progress = pod.trial.progress().unwrap();
    let text = "trial repeated, the load is 250 requests/s, was 100: round 1 of 8, Compact";
    assert_eq!(progress, text);
    pod.requests = 2500;
    let verdict = pod.run(|arm| match arm {
        Arm::Scatter => FAST,
        _ => serves(0.002),
    });
    assert_eq!(
        (verdict.winner, verdict.outcome),
        (Arm::Scatter, Outcome::Kept)
    );
    // The next change occurs within the hour.
    assert!(!watch(&mut pod, 1000, 300));
    assert!(watch(&mut pod, 1000, 60), "the hour is over");
}

#[test]
fn reports_that_are_missing_after_the_verdict_change_nothing() {
    let mut pod = decided();
    for _ in 0..1000 {
        pod.now = pod.trial.due().unwrap();
        assert!(!pod.trial.handle_missing_report(pod.now));
    }
    assert!(!watch(&mut pod, 1000, 10) && !pod.trial.is_missing_reports());
    assert_eq!(pod.trial.state().arm(), Arm::Compact);
}

#[test]
fn a_trial_without_another_arm_is_over_at_once() {
    let now = Instant::now();
    let policy = SubjectPolicy {
        threads: 1,
        ..policy()
    };
    let trial = TrialRun::new(spec(&[Arm::Scatter, Arm::Compact]), &policy, 1, now);
    let TrialState::Over(verdict) = trial.state() else {
        panic!("{:?}", trial.state())
    };
    assert_eq!(verdict.winner, Arm::Scatter);
    assert_eq!((trial.due(), trial.progress()), (None, None));
}

proptest! {
    #[test]
    fn any_report_is_accepted_without_a_panic(
        figures in proptest::collection::vec(
            (proptest::collection::vec((any::<f64>(), any::<u64>()), 0..4), any::<u64>()),
            2..60,
        ),
        is_latency in any::<bool>(),
    ) {
        let metric = if is_latency { TrialMetric::Latency } else { TrialMetric::RunDelay };
        let spec = TrialSpec { metric, rounds: 2, ..spec(&Arm::ALL) };
        let mut trial = TrialRun::new(spec, &policy(), 0, Instant::now());
        for (latency, number) in figures {
            let usage = PodUsage {
                cpu_micros: number,
                waiting_micros: number.rotate_left(9),
                ..PodUsage::default()
            };
            let Some(now) = trial.due() else { break };
            trial.add_sample(Some(Sample { latency, usage }), None, now);
            let _ = trial.progress();
        }
    }
}
