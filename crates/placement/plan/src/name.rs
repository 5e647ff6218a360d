//! Thread names by which the built-in server tells other processes the function of a thread:
//! `albw<worker>.<rank>` for threads of workers, `albf.io<n>` for event loops of the front end.

use albacore_solver::{Rank, Slot, WorkerIndex};

/// The name of the thread in a slot; at most 15 bytes, the limit of the kernel.
pub fn thread_name(slot: Slot) -> String {
    format!("albw{}.{}", slot.worker.0, slot.rank.0)
}

/// The slot that a thread name claims; `None` for any other name, including non-canonical ones such
/// as `albw01.2`.
pub fn parse_thread_name(comm: &str) -> Option<Slot> {
    let (worker, rank) = comm.strip_prefix("albw")?.split_once('.')?;
    let slot = Slot {
        worker: WorkerIndex(worker.parse().ok()?),
        rank: Rank(rank.parse().ok()?),
    };
    (thread_name(slot) == comm).then_some(slot)
}

/// The name of an event loop of the front end.
pub fn front_thread_name(index: u16) -> String {
    format!("albf.io{index}")
}

/// The index of the event loop that a thread name claims.
pub fn parse_front_thread_name(comm: &str) -> Option<u16> {
    let index = comm.strip_prefix("albf.io")?.parse().ok()?;
    (front_thread_name(index) == comm).then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_event_loops_round_trip_and_lookalikes_are_refused() {
        assert_eq!(parse_front_thread_name(&front_thread_name(255)), Some(255));
        for other in [
            "albf.io",
            "albf.io01",
            "albf.io+1",
            "albf.io1 ",
            "albf.io65536",
            "albf.1",
        ] {
            assert_eq!(parse_front_thread_name(other), None, "{other}");
        }
    }

    #[test]
    fn names_round_trip_and_lookalikes_are_refused() {
        let slot = Slot {
            worker: WorkerIndex(12),
            rank: Rank(3),
        };
        assert_eq!(
            (thread_name(slot).as_str(), parse_thread_name("albw12.3")),
            ("albw12.3", Some(slot))
        );
        for other in [
            "albw",
            "albw1",
            "albw1.",
            "albw.1",
            "albw01.2",
            "albw1.2 ",
            "albw+1.2",
            "xalbw1.2",
            "albw1.2.3",
            "albw70000.1",
            "albacore-server",
        ] {
            assert_eq!(parse_thread_name(other), None, "{other}");
        }
    }
}
