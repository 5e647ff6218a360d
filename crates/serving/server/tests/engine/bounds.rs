//! Refusals, backpressure, drains.

use albacore_engine::{ModelLookupError, Refusal};

use super::*;

const SMALL: [&str; 1] = ["main_small_d6.ubj"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_requests_until_it_drains() {
    let started = start(
        EngineConfig {
            batching: BatchingParams {
                queue_rows_max: 10,
                ..crate::BATCHING
            },
            ..config(1, 1)
        },
        &SMALL,
    )
    .await;
    signal("-STOP", started.pids()[0]);
    let row = started.rows(0, 1, 1);
    let mut calls = vec![started.submit(0, value(), &row)];
    started
        .until("one runs", |engine| engine.stats().workers_busy == 1)
        .await;
    calls.extend((0..9).map(|_| started.submit(0, value(), &row)));
    let reserve = |rows| started.reserve(0, rows, ElementType::F32, value());
    let held = reserve(1).unwrap();
    let refusal = reserve(1).unwrap_err();
    assert!(matches!(
        refusal,
        Refusal::QueueFull {
            queued_rows: 10,
            rows_max: 10,
            ..
        }
    ));
    drop(held);
    drop(reserve(1).unwrap());
    assert_eq!(
        reserve(2)
            .unwrap_err()
            .to_string()
            .split(':')
            .next()
            .unwrap(),
        "the queue is full (9 of 10 rows)"
    );
    signal("-CONT", started.pids()[0]);
    for call in calls {
        call.await.unwrap();
    }
    drop(reserve(10).unwrap());
    let stats = started.engine.stats();
    assert_eq!(
        (
            stats.models[0].shed_total,
            stats.queue_rows,
            stats.arena_used_bytes
        ),
        (2, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_memory_refuses_requests_until_some_is_freed() {
    let started = start(config(1, 1), &SMALL).await;
    let row_bytes = started
        .model(0)
        .info()
        .output(Kind::Interactions)
        .unwrap()
        .row_bytes();
    let rows = albacore_engine::limits::RESULTS_ARENA_BYTES / row_bytes / 2 + 1;
    let config = EngineConfig {
        batching: BatchingParams {
            queue_rows_max: 4 * rows,
            ..crate::BATCHING
        },
        ..config(1, 1)
    };
    let started = start(config, &SMALL).await;
    let kinds = KindSet::only(Kind::Interactions);
    let reserve = || started.reserve(0, rows, ElementType::F32, kinds);
    let first = reserve().unwrap();
    assert!(matches!(reserve().unwrap_err(), Refusal::MemoryFull { .. }));
    assert_eq!(started.engine.stats().queue_rows, rows);
    drop(first);
    drop(reserve().unwrap());
    let stats = started.engine.stats();
    assert_eq!(
        (
            stats.models[0].shed_total,
            stats.queue_rows,
            stats.arena_used_bytes
        ),
        (1, 0, 0)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_requests_are_refused() {
    let started = start(
        EngineConfig {
            batching: BatchingParams {
                queue_rows_max: 1 << 24,
                ..crate::BATCHING
            },
            ..config(1, 1)
        },
        &SMALL,
    )
    .await;
    let reserve =
        |model, rows, element, kinds| started.reserve(model, rows, element, kinds).unwrap_err();
    assert_eq!(
        started.engine.model("other").unwrap_err(),
        ModelLookupError::Unknown
    );
    assert!(matches!(
        reserve(0, 0, ElementType::F32, value()),
        Refusal::Invalid(_)
    ));
    assert!(matches!(
        reserve(0, 1, ElementType::I32, value()),
        Refusal::Invalid(_)
    ));
    assert!(matches!(
        reserve(0, 1, ElementType::F32, KindSet::EMPTY),
        Refusal::Invalid(_)
    ));
    for rows in [usize::MAX, (1 << 24) + 1, 1 << 24] {
        let refusal = reserve(0, rows, ElementType::F32, value());
        assert!(matches!(refusal, Refusal::TooLarge { .. }), "{refusal:?}");
    }
    assert_eq!(started.engine.stats().arena_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_answers_accepted_requests_and_leaves_no_worker() {
    let started = start(config(2, 2), &SMALL).await;
    let pids = started.pids();
    let rows = started.rows(0, 50, 1);
    let calls: Vec<_> = (0..200)
        .map(|_| tokio::spawn(started.submit(0, value(), &rows)))
        .collect();
    started.engine.drain();
    assert!(!started.engine.is_ready());
    started.submit(0, value(), &rows).await.unwrap();
    assert!(started.engine.stop(PATIENCE).await);
    for call in calls {
        call.await.unwrap().unwrap();
    }
    let refusal = started.reserve(0, 1, ElementType::F32, value());
    assert_eq!(refusal.unwrap_err(), Refusal::Draining);
    assert!(pids.iter().all(|&pid| !is_alive(pid)));
    assert_eq!(started.engine.stats().arena_used_bytes, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shutdown_kills_a_hung_worker_after_its_timeout() {
    let started = start(config(1, 1), &SMALL).await;
    let pid = started.pids()[0];
    signal("-STOP", pid);
    let row = started.rows(0, 1, 1);
    let call = tokio::spawn(started.submit(0, value(), &row));
    started
        .until("it waits", |engine| engine.stats().workers_busy == 1)
        .await;
    let late = started.reserve(0, 1, ElementType::F32, value()).unwrap();
    assert!(!started.engine.stop(Duration::from_millis(50)).await);
    assert_eq!(call.await.unwrap().unwrap_err(), RequestFailure::Stopped);
    assert_eq!(late.submit().await.unwrap_err(), RequestFailure::Stopped);
    assert!(!is_alive(pid));
}
