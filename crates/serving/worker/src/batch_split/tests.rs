//! When a batch is shared, by rows or by trees, and into which pieces.

use super::*;
use crate::command::RevisionId;

fn segment(rows: usize, kind: Kind) -> Segment {
    Segment {
        revision: RevisionId(0),
        kinds: KindSet::only(kind).bits(),
        is_double: false,
        first_row: 0,
        rows,
        request_rows: rows,
        input_offset: 0,
        results_offset: 0,
    }
}

/// Without measurements of models.
fn split(segments: &[Segment], threads: usize) -> Option<BatchSplit> {
    let times = TimeEstimates {
        models: &ImageTable::default(),
        wake_latency: 1e4,
    };
    BatchSplit::new(segments, threads, &times)
}

#[test]
fn small_batches_and_single_threads_do_not_share() {
    assert_eq!(split(&[segment(PARALLEL_ROWS - 1, Kind::Value)], 4), None);
    assert_eq!(split(&[segment(10_000, Kind::Value)], 1), None);
    assert_eq!(split(&[], 4), None);
}

#[test]
fn a_batch_is_shared_if_it_takes_longer_than_waking_a_peer() {
    let wake_latency = 20_000.0;
    let best = |alone: f64| BatchSplit::best(alone, [alone / 2.0, f64::INFINITY], wake_latency);
    assert_eq!(best(wake_latency), WorkDivision::SingleThread);
    assert_eq!(best(1.5 * wake_latency), WorkDivision::SingleThread);
    assert_eq!(best(SHARING_PAYS * wake_latency), WorkDivision::Rows);
    let split = |time| BatchSplit::by_rows(100, 2, time, wake_latency);
    let (short, long) = (
        split(SHARING_PAYS * wake_latency),
        split(100.0 * wake_latency),
    );
    let pieces = |rows, pieces| Some(BatchSplit::Rows { rows, pieces });
    assert_eq!((short, long), (pieces(34, 3), pieces(13, 8)));
}

#[test]
fn trees_are_split_if_rows_would_leave_threads_idle() {
    let wake_latency = 20_000.0;
    // One row cannot be split.
    assert_eq!(
        BatchSplit::best(1e6, [1e6, 6e5], wake_latency),
        WorkDivision::Trees
    );
    assert_eq!(
        BatchSplit::best(1e6, [5e5, 6e5], wake_latency),
        WorkDivision::Rows
    );
    // The possible gain is too small.
    assert_eq!(
        BatchSplit::best(1e5, [1e5, 9e4], wake_latency),
        WorkDivision::SingleThread
    );
    assert_eq!(
        BatchSplit::best(4e4, [4e4, 2e4], wake_latency),
        WorkDivision::SingleThread
    );
}

#[test]
fn each_output_of_each_request_is_a_job() {
    let both = KindSet::only(Kind::Value).with(Kind::Contribs).bits();
    let segments = [
        segment(1, Kind::Leaf),
        Segment {
            kinds: both,
            ..segment(2, Kind::Value)
        },
    ];
    let expected = [(0, Kind::Leaf), (1, Kind::Value), (1, Kind::Contribs)];
    assert_eq!(jobs(&segments).collect::<Vec<_>>(), expected);
    let split = BatchSplit::by_trees(3, 2);
    assert_eq!(
        split,
        Some(BatchSplit::Trees {
            parts: 4,
            pieces: 12
        })
    );
}

#[test]
fn pieces_cover_the_batch() {
    for rows in 1..2000 {
        for kind in [Kind::Value, Kind::Contribs] {
            let split = split(&[segment(rows, kind), segment(3, kind)], 3);
            if let Some(BatchSplit::Rows { rows: each, pieces }) = split {
                let pieces = pieces as usize;
                assert!(each * pieces >= rows + 3);
                assert!(each * (pieces - 1) < rows + 3);
            }
        }
    }
}
