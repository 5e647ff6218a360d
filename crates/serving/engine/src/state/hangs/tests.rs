//! HangTimer with threads described by values: no clock, no process.

use albacore_os::Tid;

use super::*;

const MILLI: u64 = 1_000_000;
const CHECK_PERIOD: u64 = 50;

fn thread(tid: i32, state: u8, running: u64, waiting: u64) -> ThreadTimes {
    ThreadTimes {
        tid: Tid(tid),
        state,
        running_nanos: running * MILLI,
        waiting_nanos: waiting * MILLI,
    }
}

/// The time in milliseconds at which a worker with a timeout of 250 ms is detected as hung, given
/// its threads at each time; `None` if that takes more than ten minutes.
fn found(threads: impl Fn(u64) -> Option<Vec<ThreadTimes>>) -> Option<u64> {
    let mut hang_timer = HangTimer::new(Nanos(0), HANG_TIMEOUT_MIN);
    (0..600_000).step_by(CHECK_PERIOD as usize).find(|&milli| {
        let at = Nanos(milli * MILLI);
        if hang_timer.is_suspect(at) {
            hang_timer.add_sample(threads(milli), at);
        }
        hang_timer.is_expired(at)
    })
}

#[test]
fn stopped_and_blocked_workers_are_detected_after_the_timeout() {
    for state in [b'T', b't', b'S'] {
        let threads = |_| Some(vec![thread(7, state, 5, 9), thread(8, b'S', 1, 1)]);
        assert_eq!(found(threads), Some(300), "{}", char::from(state));
    }
    assert_eq!(found(|_| None), Some(300), "the clock alone counts");
}

#[test]
fn a_looping_worker_is_detected_by_its_cpu_time() {
    let alone = |milli| Some(vec![thread(7, b'R', milli, 3)]);
    assert_eq!(found(alone), Some(300));
    // A twenty-first of a cpu: 150 ms of elapsed time, and 125 ms of its own cpu time.
    let shared = |milli| Some(vec![thread(7, b'R', milli / 21, milli - milli / 21)]);
    let bound = 150 + 125 * 21 + CHECK_PERIOD;
    assert!(found(shared).is_some_and(|milli| milli <= bound));
    // A kernel that accounts running threads once per second (nohz_full).
    let seldom = |milli| Some(vec![thread(7, b'R', milli / 1000 * 1000, 0)]);
    assert!(found(seldom).is_some_and(|milli| milli <= 1_300));
}

#[test]
fn time_without_a_cpu_does_not_count() {
    // Its batch takes 80 ms of cpu time, with a hundredth of a cpu, and it waits in between.
    let starved = |milli: u64| {
        let ran = (milli / 100).min(80);
        let (state, waited) = match ran {
            80 => (b'S', 7_920),
            _ => (b'R', milli - ran),
        };
        Some(vec![thread(7, state, ran, waited)])
    };
    let done = 8_000;
    assert!(found(starved).is_some_and(|milli| milli > done));
    // A page read from a slow disk takes as long.
    let paging = |milli: u64| Some(vec![thread(7, b'D', milli / 100, 0)]);
    assert!(found(paging).is_some_and(|milli| milli > done));
    // Waits that have ended before the check, when the thread sleeps again.
    let woken = |milli: u64| Some(vec![thread(7, b'S', milli / 100, milli - milli / 100)]);
    assert!(found(woken).is_some_and(|milli| milli > done));
}

#[test]
fn half_of_the_timeout_remains_after_a_late_first_check() {
    let mut hang_timer = HangTimer::new(Nanos(0), HANG_TIMEOUT_MIN);
    let thread_at = |ran| Some(vec![thread(7, b'R', ran, 0)]);
    hang_timer.add_sample(thread_at(10), Nanos(240 * MILLI));
    // It has run for 30 of 300 ms.
    hang_timer.add_sample(thread_at(40), Nanos(540 * MILLI));
    assert!(!hang_timer.is_expired(Nanos(540 * MILLI)), "{hang_timer:?}");
    hang_timer.add_sample(thread_at(140), Nanos(1_540 * MILLI));
    assert!(
        hang_timer.is_expired(Nanos(1_540 * MILLI)),
        "{hang_timer:?}"
    );
}

#[test]
fn a_main_thread_that_waits_for_a_peer_without_a_cpu_is_no_hang() {
    let threads = |milli: u64| {
        let peer = thread(8, b'R', milli / 100, milli - milli / 100);
        Some(vec![thread(7, b'S', 5, 0), peer])
    };
    assert!(found(threads).is_some_and(|milli| milli > 8_000));
}

#[test]
fn a_worker_that_never_gets_a_cpu_is_eventually_judged_by_elapsed_time() {
    let never = |_| Some(vec![thread(7, b'R', 5, 9)]);
    let found = found(never).unwrap();
    let bound = HANG_STARVED_MAX.as_millis() as u64;
    assert!((bound..=bound + 300).contains(&found), "{found}");
}

#[test]
fn time_in_which_the_machine_was_stalled_does_not_count() {
    let mut hang_timer = HangTimer::new(Nanos(0), HANG_TIMEOUT_MIN);
    let stopped = || Some(vec![thread(7, b'T', 5, 9)]);
    // Before it is a suspect, and after.
    hang_timer.excuse_stall(Nanos(60_000 * MILLI));
    let mut now = 60_000;
    assert!(!hang_timer.is_suspect(Nanos(now * MILLI)));
    now += 150;
    assert!(hang_timer.is_suspect(Nanos(now * MILLI)));
    hang_timer.add_sample(stopped(), Nanos(now * MILLI));
    now += 60_000;
    hang_timer.excuse_stall(Nanos(60_000 * MILLI));
    hang_timer.add_sample(stopped(), Nanos(now * MILLI));
    assert!(!hang_timer.is_expired(Nanos(now * MILLI)), "{hang_timer:?}");
    now += 150;
    hang_timer.add_sample(stopped(), Nanos(now * MILLI));
    assert!(hang_timer.is_expired(Nanos(now * MILLI)), "{hang_timer:?}");
}
