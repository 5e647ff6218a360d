//! When a trial keeps a plan, and when it withdraws it.

use proptest::prelude::*;

use super::*;

const SPEC: TrialSpec = TrialSpec {
    window: Duration::from_secs(10),
    pairs: 8,
};

fn window(has_plan: bool, p99: f64, cpu: f64) -> Window {
    let stats = WindowStats {
        p99_seconds: p99,
        cpu_micros_per_request: cpu,
        migrations_per_second: None,
    };
    Window { has_plan, stats }
}

/// Drives a trial to its verdict; `serve` gives the latency in a window, in seconds. Returns the
/// verdict and the number of windows.
fn run(serve: impl Fn(usize, bool) -> f64) -> (TrialState, usize) {
    let mut now = Instant::now();
    let mut trial = TrialRun::new(SPEC, now);
    let (mut fast, mut slow, mut cpu, mut windows) = (0, 0, 0, 0);
    while let TrialState::Window { has_plan } = trial.state() {
        let sample = |fast, slow, cpu| Sample {
            latency: vec![
                (0.001, fast),
                (0.004, fast + slow),
                (f64::INFINITY, fast + slow),
            ],
            usage: PodUsage {
                cpu_micros: cpu,
                migrations: Some(cpu / 10),
                processes: vec![1],
            },
        };
        now = trial.due().unwrap();
        trial.add_sample(Some(sample(fast, slow, cpu)), now);
        match serve(windows, has_plan) <= 0.001 {
            true => fast += 1000,
            false => slow += 1000,
        }
        cpu += 1_000_000;
        now = trial.due().unwrap();
        trial.add_sample(Some(sample(fast, slow, cpu)), now);
        windows += 1;
    }
    (trial.state(), windows)
}

#[test]
fn a_plan_that_gains_stays_and_one_that_does_not_is_withdrawn() {
    let (state, windows) = run(|_, has_plan| if has_plan { 0.001 } else { 0.004 });
    assert!(
        matches!(&state, TrialState::Kept(why) if why.contains("8 of 8")),
        "{state:?}"
    );
    assert_eq!(windows, 16);
    let (state, _) = run(|_, has_plan| if has_plan { 0.004 } else { 0.001 });
    assert!(
        matches!(&state, TrialState::Withdrawn(why) if why.contains("0 of 8")),
        "{state:?}"
    );
    let (state, _) = run(|_, _| 0.001);
    assert!(
        matches!(state, TrialState::Withdrawn(_)),
        "no difference is no gain"
    );
    // 6 of 8 pairs agree: chance gives that in 29 of 100 trials.
    let (state, _) = run(|window, has_plan| {
        if has_plan == (window < 12) {
            0.001
        } else {
            0.004
        }
    });
    assert!(matches!(state, TrialState::Withdrawn(_)), "{state:?}");
}

#[test]
fn less_cpu_time_is_a_gain_unless_latency_gets_worse() {
    let windows = |p99_with: f64| {
        let pair = |i: usize| {
            let with = window(true, p99_with, 90.0);
            let without = window(false, 0.001, 100.0);
            if i.is_multiple_of(2) {
                [with, without]
            } else {
                [without, with]
            }
        };
        (0..8).flat_map(pair).collect::<Vec<_>>()
    };
    assert!(matches!(verdict(&windows(0.001)), TrialState::Kept(_)));
    assert!(matches!(verdict(&windows(0.002)), TrialState::Withdrawn(_)));
}

/// A sample of one process that has served `count` requests.
fn sample(count: u64, pid: i32) -> Option<Sample> {
    Some(Sample {
        latency: vec![(f64::INFINITY, count)],
        usage: PodUsage {
            processes: vec![pid],
            ..PodUsage::default()
        },
    })
}

#[test]
fn a_window_that_cannot_be_measured_is_repeated_with_its_pair() {
    let mut trial = TrialRun::new(SPEC, Instant::now());
    let step = |trial: &mut TrialRun, sample| {
        let now = trial.due().unwrap();
        trial.add_sample(sample, now);
    };
    let idle = TRIAL_REQUESTS_MIN - 1;
    for (first, last) in [
        (sample(0, 1), sample(idle, 1)),
        (sample(0, 1), sample(9000, 2)),
        (sample(9000, 1), sample(0, 1)),
        (sample(0, 1), None),
    ] {
        step(&mut trial, first);
        step(&mut trial, last);
        assert_eq!(
            trial.progress().unwrap(),
            "trial: window 1 of 16, with the plan"
        );
    }
    step(&mut trial, sample(0, 1));
    step(&mut trial, sample(1000, 1));
    assert_eq!(
        trial.progress().unwrap(),
        "trial: window 2 of 16, without the plan"
    );
    step(&mut trial, None);
    assert_eq!(
        trial.progress().unwrap(),
        "trial: window 1 of 16, with the plan"
    );
}

#[test]
fn a_server_that_stops_reporting_keeps_its_plan() {
    let mut now = Instant::now();
    let mut trial = TrialRun::new(SPEC, now);
    for windows in 0..16 {
        for window in 0..windows {
            for count in [0, 1000] {
                now = trial.due().unwrap();
                trial.add_sample(sample(1000 * window + count, 1), now);
            }
        }
        assert!(!trial.lacks_reports());
        now = trial.due().unwrap();
        trial.report_missing(now);
        assert_eq!(trial.state(), TrialState::Window { has_plan: true });
        assert!(trial.lacks_reports());
        assert_eq!(trial.progress().unwrap(), NO_LATENCY_REPORTS);
    }
    now = trial.due().unwrap();
    trial.add_sample(sample(0, 1), now);
    assert_eq!(
        trial.progress().unwrap(),
        "trial: window 1 of 16, with the plan"
    );
}

proptest! {
    #[test]
    fn any_report_is_accepted_without_a_panic(
        figures in proptest::collection::vec(
            (proptest::collection::vec((any::<f64>(), any::<u64>()), 0..4), any::<u64>()),
            2..40,
        ),
    ) {
        let mut trial = TrialRun::new(TrialSpec { pairs: 1, ..SPEC }, Instant::now());
        for (latency, cpu_micros) in figures {
            let usage = PodUsage { cpu_micros, ..PodUsage::default() };
            let Some(now) = trial.due() else { break };
            trial.add_sample(Some(Sample { latency, usage }), now);
        }
    }

    #[test]
    fn a_percentile_lies_in_its_bucket_and_rises_with_its_share(
        counts in proptest::collection::vec(0_u64..1000, 1..8),
    ) {
        let mut sum = 0;
        let buckets: Vec<(f64, u64)> = counts
            .iter()
            .enumerate()
            .map(|(i, count)| { sum += count; (f64::from(i as u32 + 1), sum) })
            .collect();
        prop_assume!(sum > 0);
        let found: Vec<f64> = [0.1, 0.5, 0.99].iter().map(|s| percentile(&buckets, *s)).collect();
        prop_assert!(found.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", found);
        for (share, value) in [0.1, 0.5, 0.99].into_iter().zip(found) {
            let bucket = buckets.iter().find(|(_, c)| *c as f64 >= sum as f64 * share).unwrap();
            prop_assert!(value <= bucket.0 && value >= bucket.0 - 1.0, "{} {:?}", value, buckets);
        }
    }

    #[test]
    fn half_of_the_windows_have_the_plan(pairs in 1_usize..64) {
        let with = (0..pairs * 2).filter(|window| is_window_with_plan(*window)).count();
        prop_assert_eq!(with, pairs);
        for pair in 0..pairs {
            prop_assert_ne!(is_window_with_plan(pair * 2), is_window_with_plan(pair * 2 + 1));
        }
    }
}
