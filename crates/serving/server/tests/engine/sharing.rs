//! How the threads of a worker share a batch: by rows, or by trees if there are few rows.

use std::fmt::Write;

use albacore_engine::WorkDivision;

use super::*;

const FEATURES: usize = 10;

/// A model in LightGBM's format: complete trees of 32 leaves.
fn many_trees(trees: usize) -> Vec<u8> {
    let (leaves, splits) = (32, 31);
    let list = |count: usize, of: &dyn Fn(usize) -> String| -> String {
        (0..count).map(of).collect::<Vec<_>>().join(" ")
    };
    let mut text = format!(
        "tree\nversion=v4\nnum_tree_per_iteration=1\nmax_feature_idx={}\n",
        FEATURES - 1
    );
    // Splits are numbered in breadth-first order; leaves follow as -1, -2 ...
    let child = |number: usize| match number.checked_sub(splits) {
        Some(leaf) => format!("-{}", leaf + 1),
        None => number.to_string(),
    };
    let count = |split: usize| ((10 * leaves) >> (split + 1).ilog2()).to_string();
    for tree in 0..trees {
        let feature = |split: usize| ((tree + 3 * split) % FEATURES).to_string();
        let threshold = |split: usize| ((7 * tree + 5 * split) % 40) as f64 / 10.0 - 2.0;
        let leaf = |leaf: usize| ((tree * 31 + leaf * 17) % 97) as f64 / 97.0;
        write!(
            text,
            "\nTree={tree}\nnum_leaves={leaves}\nsplit_feature={}\nthreshold={}\n\
             decision_type={}\nleft_child={}\nright_child={}\nleaf_value={}\nleaf_count={}\n\
             internal_count={}\n",
            list(splits, &feature),
            list(splits, &|split| threshold(split).to_string()),
            list(splits, &|_| "10".to_owned()),
            list(splits, &|split| child(2 * split + 1)),
            list(splits, &|split| child(2 * split + 2)),
            list(leaves, &|number| leaf(number).to_string()),
            list(leaves, &|_| "10".to_owned()),
            list(splits, &count),
        )
        .unwrap();
    }
    text.push_str("\nend of trees\n");
    text.into_bytes()
}

fn batches(started: &Started, sharing: WorkDivision) -> u64 {
    let stats = started.engine.stats();
    let kinds = stats.models.iter().flat_map(|model| &model.kinds);
    kinds.map(|of| of.shared[sharing as usize]).sum()
}

/// Division depends on times measured at load and at the start of workers; on a busy machine a
/// server shares less. Number of servers that are started before the test fails.
const ATTEMPTS_MAX: usize = 10;

/// Requests predictions in sequence and compares every bit; returns the number of batches for each
/// way of sharing.
async fn count_batches(started: &Started, rows: usize, kinds: KindSet) -> [u64; 3] {
    let before = WorkDivision::ALL.map(|sharing| batches(started, sharing));
    for call in 0..10 {
        let input = started.rows(0, rows, call);
        let reply = started.submit(0, kinds, &input).await.unwrap();
        for kind in kinds.iter() {
            let expected = started.expected(0, kind, &input);
            assert!(
                reply.output(kind) == Some(&expected[..]),
                "{kind} of {rows} rows"
            );
        }
    }
    let mut counts = WorkDivision::ALL.map(|sharing| batches(started, sharing));
    for (count, before) in counts.iter_mut().zip(before) {
        *count -= before;
    }
    counts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn few_rows_are_split_by_trees_and_many_by_rows_with_equal_bits() {
    let contribs = KindSet::only(Kind::Contribs);
    let all = contribs
        .with(Kind::Value)
        .with(Kind::Margin)
        .with(Kind::Leaf);
    // Contributions of a row take hundreds of microseconds: many times the wake-up of a thread.
    let mut results = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let files = vec![("many".to_owned(), many_trees(1500))];
        let started = start_with(config(1, 2), files).await;
        let few = count_batches(&started, 1, contribs).await;
        let few_of_all = count_batches(&started, 1, all).await;
        let many = count_batches(&started, 64, contribs).await;
        if [few, few_of_all, many] == [[0, 0, 10], [0, 0, 10], [0, 10, 0]] {
            return;
        }
        results.push([few, few_of_all, many]);
    }
    panic!("alone, by rows, by trees: {results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_worker_with_one_thread_does_not_split_batches() {
    let started = start(config(1, 1), &["main_medium_d6.ubj"]).await;
    let contribs = KindSet::only(Kind::Contribs);
    for rows in [1, 64] {
        let input = started.rows(0, rows, 1);
        let reply = started.submit(0, contribs, &input).await.unwrap();
        let expected = started.expected(0, Kind::Contribs, &input);
        assert_eq!(reply.output(Kind::Contribs), Some(&expected[..]));
    }
    assert_eq!(batches(&started, WorkDivision::SingleThread), 2);
    let shared =
        [WorkDivision::Rows, WorkDivision::Trees].map(|sharing| batches(&started, sharing));
    assert_eq!(shared, [0, 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_neighbors_leave_a_batch_all_threads() {
    let mut results = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let files = vec![("many".to_owned(), many_trees(300))];
        let started = start_with(config(2, 2), files).await;
        let counts = count_batches(&started, 64, KindSet::only(Kind::Contribs)).await;
        if counts == [0, 10, 0] {
            return;
        }
        results.push(counts);
    }
    panic!("alone, by rows, by trees: {results:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_neighbors_leave_a_batch_one_thread() {
    let cpus = std::thread::available_parallelism().unwrap().get();
    let workers = cpus.max(2);
    let files = vec![("many".to_owned(), many_trees(300))];
    let engine = EngineConfig {
        batching: BatchingParams {
            batch_rows_max: 64,
            ..crate::BATCHING
        },
        ..config(workers, 2)
    };
    let started = start_with(engine, files).await;
    let contribs = KindSet::only(Kind::Contribs);
    let input = started.rows(0, 64, 3);
    let expected = started.expected(0, Kind::Contribs, &input);
    let by = |sharing| batches(&started, sharing);
    // Enough batches to keep every worker busy for a while, all queued before the first one starts.
    let pids = started.pids();
    pids.iter().for_each(|&pid| signal("-STOP", pid));
    let calls: Vec<_> = (0..8 * workers)
        .map(|_| started.submit(0, contribs, &input))
        .collect();
    pids.iter().for_each(|&pid| signal("-CONT", pid));
    for call in calls {
        let reply = call.await.unwrap();
        assert_eq!(reply.output(Kind::Contribs), Some(&expected[..]));
    }
    let alone = by(WorkDivision::SingleThread);
    assert!(alone >= workers as u64, "{alone} of {}", 8 * workers);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_uses_as_many_threads_as_it_is_given_from_its_next_batch_on() {
    let contribs = KindSet::only(Kind::Contribs);
    let mut results = Vec::new();
    for _ in 0..ATTEMPTS_MAX {
        let files = vec![("many".to_owned(), many_trees(1500))];
        let started = start_with(config(1, 2), files).await;
        let set = |threads| started.engine.set_batch_threads(&[("many", threads)]);
        set(Some(1));
        assert_eq!(count_batches(&started, 64, contribs).await, [10, 0, 0]);
        assert_eq!(started.engine.stats().models[0].threads, Some(1));
        set(None);
        let all = count_batches(&started, 64, contribs).await;
        // More threads than those of the worker mean all of its threads.
        set(Some(9));
        let many = count_batches(&started, 64, contribs).await;
        if [all, many] == [[0, 10, 0], [0, 10, 0]] {
            return;
        }
        results.push([all, many]);
    }
    panic!("alone, by rows, by trees: {results:?}");
}
