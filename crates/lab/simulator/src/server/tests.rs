//! The front end gathers requests that arrive while it reads; without it the scheduler alone
//! decides.

use albacore_batching::deadlines::Cost;
use albacore_batching::{BatchingParams, DEFAULT_WEIGHT, Nanos, Policy, Profile};

use super::*;

const US: u64 = 1_000;

/// One worker, one event loop that takes 10 us to read and 10 us to write, batches of 100 us plus 1
/// us per row, and an objective of 1 ms.
fn scenario(sent: &[u64]) -> ServerScenario {
    let cost = Cost::new(1_000.0, 100_000.0);
    ServerScenario {
        workers: 1,
        batching: BatchingParams {
            policy: Policy::Eager,
            ..BatchingParams::default()
        },
        front: FrontEnd {
            threads: 1,
            wake: Nanos(5 * US),
            cost: None,
            is_gathering: true,
        },
        queues: vec![ServerQueue {
            model: 0,
            weight: DEFAULT_WEIGHT,
            profile: Profile {
                cost: Some(cost),
                mean_cost: Some(cost),
                objective: Some(Nanos(1_000 * US)),
            },
            time: cost,
            spread: 0.0,
            row: Nanos(US),
        }],
        classes: vec![RequestClass {
            queue: 0,
            rows: 1,
            read: Nanos(10 * US),
            write: Nanos(10 * US),
        }],
        requests: sent
            .iter()
            .map(|&at| ServerRequest {
                class: 0,
                sent: Nanos(at * US),
            })
            .collect(),
        stalls: Stalls::default(),
        seed: 1,
    }
}

fn written(run: &ServerRun) -> Vec<u64> {
    run.replies
        .iter()
        .map(|reply| reply.written.0 / US)
        .collect()
}

#[test]
fn a_lone_request_is_read_computed_and_written() {
    let run = simulate_server(&scenario(&[0]));
    // 5 to wake, 10 to read, 101 to compute, 5 to wake, 10 to write.
    assert_eq!(written(&run), [131]);
    assert_eq!((run.batches[0].batches, run.batches[0].rows), (1, 1));
    assert_eq!(run.batches[0].busy, Nanos(106 * US));
}

#[test]
fn requests_that_arrive_while_the_front_end_reads_form_one_batch() {
    // The second arrives while the loop wakes; the third while it reads, and is only seen after the
    // first two are scheduled.
    let gathered = simulate_server(&scenario(&[0, 1, 12]));
    assert_eq!(gathered.batches[0].batches, 2);
    assert_eq!(gathered.batches[0].rows, 3);
    let mut alone = scenario(&[0, 1, 12]);
    alone.workers = 3;
    alone.front.is_gathering = false;
    assert_eq!(simulate_server(&alone).batches[0].batches, 3);
    alone.front.is_gathering = true;
    assert_eq!(simulate_server(&alone).batches[0].batches, 2);
}

#[test]
fn requests_that_would_be_late_are_refused_and_every_request_gets_a_reply() {
    let mut burst = scenario(&[0; 300]);
    burst.queues[0].profile.objective = Some(Nanos(500 * US));
    let run = simulate_server(&burst);
    let refused = run.replies.iter().filter(|reply| reply.is_refused).count();
    assert!((1..300).contains(&refused), "{refused}");
    assert!(run.replies.iter().all(|reply| reply.written != Nanos::MAX));
    assert_eq!(run.batches[0].rows as usize, 300 - refused);
}

#[test]
fn two_event_loops_divide_the_requests() {
    let mut two = scenario(&[0, 0]);
    (two.front.threads, two.workers) = (2, 2);
    let run = simulate_server(&two);
    assert_eq!(written(&run), [131, 131]);
}

#[test]
fn workers_are_idle_while_they_have_no_batch() {
    let run = simulate_server(&scenario(&[0, 1_000, 2_000]));
    // Two of three batches start and end before the last request.
    assert!(
        (run.idle_share - (1.0 - 212.0 / 2_000.0)).abs() < 1e-9,
        "{}",
        run.idle_share
    );
}

#[test]
fn spread_times_have_the_same_mean() {
    let sent: Vec<u64> = (0..20_000).map(|n| n * 1_000).collect();
    let mut spread = scenario(&sent);
    spread.queues[0].spread = 0.5;
    let run = simulate_server(&spread);
    let mean = run.batches[0].busy.0 as f64 / run.batches[0].batches as f64;
    assert!((mean / 106_000.0 - 1.0).abs() < 0.02, "{mean}");
    let again = simulate_server(&spread);
    assert_eq!(
        written(&run),
        written(&again),
        "equal seeds give equal runs"
    );
}

#[test]
fn stalls_are_proportional_to_the_work() {
    let sent: Vec<u64> = (0..20_000).map(|n| n * 10_000).collect();
    let mut stalled = scenario(&sent);
    stalled.stalls = Stalls {
        per_second: 1_000.0,
        mean: Nanos(3_000 * US),
    };
    let run = simulate_server(&stalled);
    let mean = run.batches[0].busy.0 as f64 / run.batches[0].batches as f64;
    // A batch of 101 us stalls with a probability of 0.101.
    assert!((mean / 409_000.0 - 1.0).abs() < 0.05, "{mean}");
}
