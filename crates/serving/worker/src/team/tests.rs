//! Claims of pieces, and measurement of the wake latency.

use super::*;

#[test]
fn probes_are_repeated_while_the_machine_is_busy() {
    let micros = Duration::from_micros;
    // No acknowledgement, then late ones, then those of an idle machine.
    let mut times = std::iter::repeat_n(None, 9)
        .chain(std::iter::repeat_n(Some(micros(900)), 9))
        .chain(std::iter::repeat(Some(micros(30))));
    assert_eq!(shortest_wake_latency(|| times.next().unwrap()), micros(30));
    let mut count = 0;
    let mut quiet = || {
        count += 1;
        Some(micros(20 + count))
    };
    assert_eq!(shortest_wake_latency(&mut quiet), micros(21));
    assert_eq!(count, WAKE_PROBES as u64);
    assert_eq!(shortest_wake_latency(|| None), WAKE_PROBE_TIMEOUT);
}

#[test]
fn wake_probes_are_measured_and_not_mistaken_for_pieces() {
    let team = Team::new(2);
    std::thread::scope(|scope| {
        let peer = || {
            team.started.fetch_add(1, Ordering::Release);
            futex::wake(futex::Sharing::ProcessPrivate, &team.started, 1);
            let mut last_generation = 0;
            // bound: one pass for each probe.
            while last_generation != SHUT_DOWN {
                futex::wait(
                    futex::Sharing::ProcessPrivate,
                    &team.generation,
                    last_generation,
                    None,
                );
                let generation = team.generation.load(Ordering::Acquire);
                if generation != last_generation && generation != SHUT_DOWN {
                    team.acknowledged.store(generation, Ordering::Release);
                    futex::wake(futex::Sharing::ProcessPrivate, &team.acknowledged, 1);
                }
                last_generation = generation;
            }
        };
        scope.spawn(peer);
        team.wait_for_peers();
        team.measure_wake_latency();
        team.shut_down();
    });
    let wake_latency = team.wake_latency.load(Ordering::Acquire);
    assert!(
        wake_latency > 0 && wake_latency <= WAKE_PROBE_TIMEOUT.as_nanos() as u64,
        "{wake_latency}"
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
