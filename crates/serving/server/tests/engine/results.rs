//! Results do not depend on workers, threads, batches or request sizes.

use super::*;

const FILES: [&str; 3] = ["main_small_d6.ubj", "lgb_binary.txt", "main_medium_d6.ubj"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_output_kind_equals_direct_computation_by_the_model() {
    let started = start(
        EngineConfig {
            batching: BatchingParams {
                batch_rows_max: 100,
                ..crate::BATCHING
            },
            ..config(2, 3)
        },
        &FILES,
    )
    .await;
    for (model, rows) in [
        (0, 1),
        (0, 7),
        (0, 99),
        (0, 100),
        (0, 101),
        (0, 350),
        (1, 250),
        (2, 5),
    ] {
        let input = started.rows(model, rows, rows as u64);
        let kinds = started.model(model).info().kinds();
        assert!(kinds.contains(Kind::Value) && kinds.contains(Kind::Leaf));
        let reply = started.submit(model, kinds, &input).await.unwrap();
        for kind in kinds.iter() {
            let expected = started.expected(model, kind, &input);
            assert!(
                reply.output(kind) == Some(&expected[..]),
                "{kind:?} of {rows} rows"
            );
        }
        let value = started.submit(model, value(), &input).await.unwrap();
        assert_eq!(value.output(Kind::Margin), None, "not asked for");
    }
    started
        .until("memory comes back", |engine| {
            engine.stats().arena_used_bytes == 0
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn f64_rows_are_accepted() {
    let started = start(config(1, 1), &FILES).await;
    let rows = started.rows(0, 10, 5);
    let mut reservation = started.reserve(0, 10, ElementType::F64, value()).unwrap();
    let bytes: Vec<u8> = rows
        .iter()
        .flat_map(|&value| f64::from(value).to_le_bytes())
        .collect();
    reservation.input_mut().copy_from_slice(&bytes);
    let reply = reservation.submit().await.unwrap();
    assert_eq!(
        reply.output(Kind::Value),
        Some(&started.expected(0, Kind::Value, &rows)[..])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_requests_of_all_sizes_share_batches_and_keep_their_own_results() {
    let started = Arc::new(
        start(
            EngineConfig {
                batching: BatchingParams {
                    batch_rows_max: 64,
                    ..crate::BATCHING
                },
                ..config(2, 2)
            },
            &FILES,
        )
        .await,
    );
    let clients = (0..16_u64).map(|client| {
        let started = Arc::clone(&started);
        tokio::spawn(async move {
            for call in 0..50_u64 {
                let model = (client % 2) as usize;
                let rows = started.rows(model, 1 + (client * 7 + call) as usize % 90, call);
                let reply = started.submit(model, value(), &rows).await.unwrap();
                let expected = started.expected(model, Kind::Value, &rows);
                assert_eq!(reply.output(Kind::Value), Some(&expected[..]));
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    let stats = started.engine.stats();
    assert_eq!(
        stats
            .models
            .iter()
            .map(|model| model.answered_total)
            .sum::<u64>(),
        800
    );
    assert!(
        stats
            .models
            .iter()
            .map(|model| model.batches_total)
            .sum::<u64>()
            > 0
    );
    assert_eq!((stats.queue_rows, stats.arena_used_bytes), (0, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn timeout_gathers_requests_into_one_batch() {
    let policy = Policy::Timeout {
        delay: Duration::from_millis(300),
    };
    let started = start(
        EngineConfig {
            batching: BatchingParams {
                policy,
                ..crate::BATCHING
            },
            ..config(1, 1)
        },
        &FILES[..1],
    )
    .await;
    let rows = started.rows(0, 1, 1);
    let calls: Vec<_> = (0..10).map(|_| started.submit(0, value(), &rows)).collect();
    for call in calls {
        assert!(call.await.unwrap().timing().queue >= Duration::from_millis(1));
    }
    let stats = &started.engine.stats().models[0];
    let of = &stats.kinds[0];
    assert_eq!((stats.batches_total, of.batch_rows.sum), (1, 10));
    // One worker was idle all the time, so the whole wait was deferral.
    assert_eq!(
        (of.kind, of.defer_nanos.sum),
        (Kind::Value, of.queue_nanos.sum)
    );
    assert_eq!(
        of.dispatch_reasons[albacore_engine::DispatchReason::Due as usize],
        1
    );
}
