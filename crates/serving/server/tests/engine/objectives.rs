//! Objectives of models and requests: waiting for a batch, and refusal at admission.

use albacore_engine::{Priority, Slo};

use super::*;

const SMALL: [&str; 1] = ["main_small_d6.ubj"];

/// Requests in flight, more than the `CROWDED_REQUESTS_MIN` of the engine.
const CONCURRENT_REQUESTS: usize = 32;

/// Number of batches after which the cost of a batch is learned.
const LEARNING_BATCHES: usize = 8;

async fn learn(started: &Started, kinds: KindSet, rows: &[f32]) {
    for _ in 0..LEARNING_BATCHES {
        started.submit(0, kinds, rows).await.unwrap();
    }
}

/// An engine that has learned the cost of a row, with this objective, and the row.
async fn start_with_objective(config: EngineConfig, objective: Duration) -> (Started, Vec<f32>) {
    let started = start(config, &SMALL).await;
    let objective = Slo::uniform(objective, 99.0);
    started
        .engine
        .declare(&[(SMALL[0], Some(objective))])
        .unwrap();
    let row = started.rows(0, 1, 1);
    learn(&started, value(), &row).await;
    (started, row)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deferred_requests_wait_for_others_as_long_as_their_objective_allows() {
    let policy = Policy::Deferred;
    let config = EngineConfig {
        batching: BatchingParams {
            policy,
            ..crate::BATCHING
        },
        ..config(1, 1)
    };
    // On a busy machine the learned cost of a batch may be high, up to most of the objective.
    let (started, row) = start_with_objective(config, Duration::from_secs(6)).await;
    let before = started.engine.stats().models[0].batches_total;
    let calls: Vec<_> = (0..10).map(|_| started.submit(0, value(), &row)).collect();
    for call in calls {
        assert!(call.await.unwrap().timing().queue >= Duration::from_millis(500));
    }
    let stats = &started.engine.stats().models[0];
    assert_eq!((stats.batches_total - before, stats.failed_total), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_would_miss_their_deadline_are_refused_at_admission() {
    let started = start(config(1, 1), &SMALL).await;
    let rows = started.rows(0, 1000, 3);
    let kinds = KindSet::only(Kind::Interactions);
    learn(&started, kinds, &rows).await;
    let running = started.submit(0, kinds, &rows);
    let waiting = started.submit(0, kinds, &rows);
    // Neither request completes, however long this thread takes.
    let worker = exits::stop_while_busy(&started).await;
    let within = |time| {
        let model = started.model(0).with_time_limit(time);
        model.reserve(1000, ElementType::F32, kinds)
    };
    let refusal = within(Duration::from_millis(20)).unwrap_err();
    assert!(matches!(refusal, Refusal::Late { .. }), "{refusal}");
    drop(within(Duration::from_secs(3600)).unwrap());
    let admit_early = |seconds| {
        started
            .model(0)
            .with_time_limit(Duration::from_secs(seconds))
            .admit_early()
    };
    assert_eq!(admit_early(3600), Ok(()));
    let soon = started.model(0).with_time_limit(Duration::from_millis(1));
    let refusal = soon.admit_early().unwrap_err();
    assert!(matches!(refusal, Refusal::Late { .. }), "{refusal}");
    started
        .reserve(0, 1000, ElementType::F32, kinds)
        .map(drop)
        .unwrap();
    // Predictions wait in a separate queue, whose costs are unknown.
    let row = started.rows(0, 1, 1);
    let other = started.submit(0, value(), &row);
    signal("-CONT", worker);
    for call in [running, waiting] {
        call.await.unwrap();
    }
    other.await.unwrap();
    // An only request is admitted: it is late, but the cost of such requests is learned from it.
    let mut alone = within(Duration::from_millis(20)).unwrap();
    let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    alone.input_mut().copy_from_slice(&bytes);
    alone.submit().await.unwrap();
    let stats = started.engine.stats();
    assert_eq!(
        (stats.models[0].shed_total, stats.models[0].late_total),
        (2, 1)
    );
    // The kind of a request that is refused before its body is read is unknown.
    let late_and_shed = |kind| {
        let mut window = stats.models[0].window.iter();
        let of = window.find(|of| of.kind == kind).unwrap();
        (of.outcomes.late, of.outcomes.shed)
    };
    assert_eq!(late_and_shed(Some(Kind::Interactions)), (1, 1));
    assert_eq!(late_and_shed(None), (0, 1));
    assert_eq!((stats.queue_rows, stats.arena_used_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_that_crashed_two_workers_is_halved_and_its_requests_are_answered() {
    let policy = Policy::Timeout {
        delay: Duration::from_millis(300),
    };
    let config = EngineConfig {
        batching: BatchingParams {
            policy,
            ..crate::BATCHING
        },
        ..config(1, 1)
    };
    let started = start(config, &exits::SLOW).await;
    let rows = started.rows(0, 500, 3);
    let kinds = KindSet::only(Kind::Interactions);
    let expected = started.expected(0, Kind::Interactions, &rows);
    let calls: Vec<_> = (0..2)
        .map(|_| tokio::spawn(started.submit(0, kinds, &rows)))
        .collect();
    for crash in 0..2 {
        exits::kill_while_busy(&started, "-ABRT", crash).await;
    }
    for call in calls {
        let reply = call.await.unwrap().unwrap();
        assert!(reply.output(Kind::Interactions) == Some(&expected[..]));
    }
    let stats = started.engine.stats();
    assert_eq!(stats.models[0].failed_total, 0);
    // The batch, its retry, and two halves.
    assert_eq!(stats.models[0].batches_total, 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queued_requests_run_in_order_of_priority() {
    // Each request fills a batch.
    let config = EngineConfig {
        batching: BatchingParams {
            batch_rows_max: 1000,
            ..crate::BATCHING
        },
        ..config(1, 1)
    };
    let started = start(config, &SMALL).await;
    let objective = Slo::uniform(Duration::from_secs(3600), 99.0);
    started
        .engine
        .declare(&[(SMALL[0], Some(objective))])
        .unwrap();
    let rows = started.rows(0, 1000, 3);
    learn(&started, value(), &rows).await;
    let long = tokio::spawn(started.submit(0, KindSet::only(Kind::Interactions), &rows));
    // Holds the worker, so that the other requests wait while they are submitted.
    let worker = exits::stop_while_busy(&started).await;
    let start_time = Instant::now();
    let bytes: Vec<u8> = rows.iter().flat_map(|value| value.to_le_bytes()).collect();
    let submit = |priority| {
        let model = started.model(0).with_priority(priority);
        let mut reservation = model.reserve(1000, ElementType::F32, value()).unwrap();
        reservation.input_mut().copy_from_slice(&bytes);
        let submitted = start_time.elapsed();
        let reply = reservation.submit();
        async move { submitted + reply.await.unwrap().timing().queue }
    };
    let calls = [
        Priority::Low,
        Priority::Normal,
        Priority::Normal,
        Priority::High,
    ]
    .map(submit);
    signal("-CONT", worker);
    let [low, first, second, high] = calls;
    let (low, first, second, high) = tokio::join!(low, first, second, high);
    assert!(
        high < first && first < second && second < low,
        "{high:?} {first:?} {second:?} {low:?}"
    );
    long.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expired_requests_are_refused_and_abandoned_ones_are_late_only_past_their_deadline() {
    let started = start(config(1, 1), &SMALL).await;
    let model = started.model(0).with_time_limit(Duration::ZERO);
    let refusal = model.reserve(1, ElementType::F32, value()).unwrap_err();
    assert_eq!(refusal, Refusal::Expired);
    let rows = started.rows(0, 1000, 3);
    let long = started.submit(0, KindSet::only(Kind::Interactions), &rows);
    let worker = exits::stop_while_busy(&started).await;
    for (time, late) in [
        (Duration::from_secs(3600), 0),
        (Duration::from_millis(1), 1),
    ] {
        let model = started.model(0).with_time_limit(time);
        let mut reservation = model.reserve(1, ElementType::F32, value()).unwrap();
        reservation.input_mut().fill(0);
        let reply = reservation.submit();
        tokio::time::sleep(Duration::from_millis(2)).await;
        drop(reply);
        assert_eq!(started.engine.stats().models[0].late_total, late);
    }
    signal("-CONT", worker);
    long.await.unwrap();
    let stats = &started.engine.stats().models[0];
    assert_eq!((stats.shed_total, stats.abandoned_total), (1, 2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn contributions_and_interactions_have_separate_objectives() {
    let started = start(config(1, 1), &SMALL).await;
    let objective = Slo {
        contribs: Some(Duration::from_secs(3600)),
        interactions: Some(Duration::from_secs(7200)),
        ..Slo::uniform(Duration::from_nanos(1), 99.0)
    };
    started
        .engine
        .declare(&[(SMALL[0], Some(objective))])
        .unwrap();
    let row = started.rows(0, 1, 1);
    let late = || started.engine.stats().models[0].late_total;
    for (kind, is_late) in [
        (Kind::Contribs, 0),
        (Kind::Interactions, 0),
        (Kind::Value, 1),
        (Kind::Margin, 2),
    ] {
        started.submit(0, KindSet::only(kind), &row).await.unwrap();
        assert_eq!(late(), is_late, "{kind}");
    }
    assert_eq!(
        started.model(0).admit_early(),
        Ok(()),
        "it may ask for interactions"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_before_submission_counts_toward_the_deadline() {
    let second = Duration::from_secs(1);
    let (started, row) = start_with_objective(config(1, 1), second).await;
    // Requests must not arrive before the engine was started.
    tokio::time::sleep(3 * second).await;
    let reserve = |waited| {
        let model = started.model(0).with_arrival_time(Instant::now() - waited);
        model.reserve(1, ElementType::F32, value())
    };
    let old = second * 9 / 10;
    drop(reserve(old).unwrap()); // the front is idle, and so is a worker
    let worker = started.pids()[0];
    signal("-STOP", worker);
    let concurrent: Vec<_> = (0..CONCURRENT_REQUESTS)
        .map(|_| started.submit(0, value(), &row))
        .collect();
    drop(reserve(Duration::ZERO).unwrap());
    let refused = matches!(reserve(old), Err(Refusal::Late { .. }));
    assert!(refused, "it has waited for most of its time");
    signal("-CONT", worker);
    for running in concurrent {
        running.await.unwrap();
    }
    // Late because of the time before its submission, not because of the computation.
    let call = reserve(2 * second).unwrap().submit();
    call.await.unwrap();
    assert_eq!(started.engine.stats().models[0].late_total, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slow_reply_writing_reduces_admission() {
    let (started, row) = start_with_objective(config(1, 1), Duration::from_secs(2)).await;
    let reply = started.submit(0, value(), &row).await.unwrap();
    let mut concurrent = Vec::new();
    for _ in 0..CONCURRENT_REQUESTS {
        concurrent.push(started.submit(0, value(), &row).await.unwrap());
    }
    assert_eq!(started.model(0).admit_early(), Ok(()));
    tokio::time::sleep(Duration::from_secs(4)).await;
    drop(reply);
    let refused = started.model(0).admit_early().unwrap_err();
    assert!(matches!(refused, Refusal::Late { .. }), "{refused}");
    // The delay is soon forgotten.
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(started.model(0).admit_early(), Ok(()));
    drop(concurrent);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_slow_reply_does_not_reduce_admission() {
    let (started, row) = start_with_objective(config(1, 1), Duration::from_millis(200)).await;
    let stalled = started.submit(0, value(), &row).await.unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = started.submit(0, value(), &row).await.unwrap();
    drop(stalled);
    assert_eq!(started.model(0).admit_early(), Ok(()));
    drop(other);
}
