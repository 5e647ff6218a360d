//! When a batch is shared and in what pieces; who claims them; what waking a peer takes.

use super::*;
use crate::orders::EditionId;

fn segment(rows: usize, kind: Kind) -> Segment {
    Segment {
        edition: EditionId(0),
        kinds: KindSet::only(kind).bits(),
        is_double: false,
        first_row: 0,
        rows,
        request_rows: rows,
        input_offset: 0,
        results_offset: 0,
    }
}

/// Nothing was measured: no model is known.
fn cut(segments: &[Segment], threads: usize) -> Option<Cut> {
    let times = Times {
        models: &Table::default(),
        waking: 1e4,
    };
    Cut::new(segments, threads, &times)
}

#[test]
fn small_batches_and_single_threads_do_not_share() {
    assert_eq!(cut(&[segment(PARALLEL_ROWS - 1, Kind::Value)], 4), None);
    assert_eq!(cut(&[segment(10_000, Kind::Value)], 1), None);
    assert_eq!(cut(&[], 4), None);
}

#[test]
fn a_batch_is_shared_when_it_takes_longer_than_waking_somebody() {
    let waking = 20_000.0;
    assert_eq!(Cut::by_time(100, 2, waking, waking), None);
    assert_eq!(Cut::by_time(100, 2, 1.5 * waking, waking), None);
    let cut = |time| Cut::by_time(100, 2, time, waking).expect("a shared batch");
    let (short, long) = (cut(SHARING_PAYS * waking), cut(100.0 * waking));
    assert_eq!((short.rows, short.pieces), (34, 3));
    assert_eq!((long.rows, long.pieces), (13, 8));
}

#[test]
fn pieces_cover_the_batch() {
    for rows in 1..2000 {
        for kind in [Kind::Value, Kind::Contribs] {
            if let Some(cut) = cut(&[segment(rows, kind), segment(3, kind)], 3) {
                let pieces = cut.pieces as usize;
                assert!(cut.rows * pieces >= rows + 3);
                assert!(cut.rows * (pieces - 1) < rows + 3);
            }
        }
    }
}

#[test]
fn waking_a_peer_is_measured_and_no_answer_is_taken_for_a_piece() {
    let team = Team::new(2);
    std::thread::scope(|scope| {
        let peer = || {
            team.present.fetch_add(1, Ordering::Release);
            futex::wake(Reach::Process, &team.present, 1);
            let mut seen = 0;
            // bound: one pass for each drill.
            while seen != DISMISSED {
                futex::wait(Reach::Process, &team.generation, seen, None);
                let generation = team.generation.load(Ordering::Acquire);
                if generation != seen && generation != DISMISSED {
                    team.answers.fetch_add(1, Ordering::Release);
                    futex::wake(Reach::Process, &team.answers, 1);
                }
                seen = generation;
            }
        };
        scope.spawn(peer);
        team.assemble();
        team.drill();
        team.dismiss();
    });
    let waking = team.waking.load(Ordering::Acquire);
    assert!(
        waking > 0 && waking <= DRILL_PATIENCE.as_nanos() as u64,
        "{waking}"
    );
    assert_eq!(team.finished.load(Ordering::Acquire), 0);
}

#[test]
fn each_piece_is_claimed_once_and_none_by_a_late_peer() {
    let team = Team::new(2);
    team.claim.store(7 << 32, Ordering::Release);
    let claimed: Vec<u32> = std::iter::from_fn(|| team.claim_piece(7, 3)).collect();
    assert_eq!(claimed, [0, 1, 2]);
    team.claim
        .store(7 << 32 | u64::from(CLOSED), Ordering::Release);
    assert_eq!(team.claim_piece(7, 1000), None, "closed");
    team.claim.store(8 << 32, Ordering::Release);
    assert_eq!(team.claim_piece(7, 3), None, "another batch");
}
