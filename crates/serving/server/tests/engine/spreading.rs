//! The rows of one request on several idle workers.

use super::sharing::many_trees;
use super::*;

const ROWS: usize = 64;

const CALLS: u64 = 10;

/// Whether spreading pays follows from learned times: on a machine that is busy meanwhile a server
/// may not spread. So many times another one is started.
const SERVERS: usize = 10;

fn contribs() -> KindSet {
    KindSet::only(Kind::Contribs)
}

/// Two workers that have learned what batches cost.
async fn learned() -> Started {
    let started = start_with(config(2, 1), vec![("many".to_owned(), many_trees(1500))]).await;
    for rows in [4, 16, 40].repeat(6) {
        let input = started.rows(0, rows, 1);
        started.submit(0, contribs(), &input).await.unwrap();
    }
    started
}

/// Requests and batches so far, and requests that were spread.
fn counts(started: &Started) -> [u64; 3] {
    let of = &started.engine.stats().models[0];
    [of.requests_total, of.batches_total, of.spread_total]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_request_runs_on_all_idle_workers_and_its_bits_stay() {
    let mut seen = Vec::new();
    for _ in 0..SERVERS {
        let started = learned().await;
        let before = counts(&started);
        for call in 0..CALLS {
            let input = started.rows(0, ROWS, call);
            let reply = started.submit(0, contribs(), &input).await.unwrap();
            let expected = started.expected(0, Kind::Contribs, &input);
            assert!(reply.output(Kind::Contribs) == Some(&expected[..]));
        }
        let after = counts(&started);
        let [requests, batches, spread] = [0, 1, 2].map(|at| after[at] - before[at]);
        assert_eq!(requests, CALLS);
        assert_eq!(batches, requests + spread, "two parts each");
        if spread > 0 {
            // Its threads are bounded: it does not use those of other workers either.
            started.engine.set_batch_threads(&[("many", Some(1))]);
            let bounded = counts(&started)[2];
            for rows in [4, 16, 40].repeat(6) {
                let input = started.rows(0, rows, 1);
                started.submit(0, contribs(), &input).await.unwrap();
            }
            assert_eq!(counts(&started)[2], bounded);
            return;
        }
        seen.push([requests, batches, spread]);
    }
    panic!("requests, batches, spread: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_part_whose_worker_is_killed_runs_again_and_the_request_is_answered() {
    let mut seen = Vec::new();
    for _ in 0..SERVERS {
        let started = learned().await;
        let input = started.rows(0, ROWS * 4, 1);
        let before = counts(&started)[2];
        let call = tokio::spawn(started.submit(0, contribs(), &input));
        let is_spread = counts(&started)[2] > before;
        let is_running = || started.engine.stats().workers_busy == 2;
        let was_running = is_running();
        signal("-KILL", started.pids()[0]);
        let reply = call.await.unwrap().unwrap();
        let expected = started.expected(0, Kind::Contribs, &input);
        assert!(reply.output(Kind::Contribs) == Some(&expected[..]));
        drop(reply);
        started
            .until("memory comes back", |engine| {
                engine.stats().arena_used_bytes == 0
            })
            .await;
        let stats = started.engine.stats();
        assert_eq!((stats.models[0].failed_total, stats.queue_rows), (0, 0));
        if is_spread && was_running && stats.replayed_batches_total > 0 {
            return;
        }
        seen.push((is_spread, was_running, stats.replayed_batches_total));
    }
    panic!("spread, on both workers, replayed: {seen:?}");
}
