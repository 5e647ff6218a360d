//! Front and worker side of a ring in one process.

use super::*;

/// Submits a batch as the front does.
fn submit(front: &Ring, sequence: u32, segments: &[Segment], (threads, spin): (usize, Duration)) {
    let limits = ComputeLimits {
        threads,
        spin,
        event_loop: LoopIndex(3),
    };
    if front.submit(sequence, segments, limits) {
        front.wake();
    }
}

fn segment(rows: usize) -> Segment {
    Segment {
        revision: RevisionId(3),
        kinds: 5,
        is_double: true,
        first_row: 7,
        rows,
        request_rows: 90,
        input_offset: 64,
        results_offset: 128,
    }
}

#[test]
fn a_batch_and_its_segment_states_cross_the_ring() {
    let front = Ring::create("test").unwrap();
    let worker = Ring::open(front.fd().try_clone_to_owned().unwrap()).unwrap();
    assert!(!front.is_ready());
    worker.set_ready();
    assert!(front.is_ready());
    let sequence = Ring::next_sequence(0);
    submit(
        &front,
        sequence,
        &[segment(1), segment(2)],
        (3, Duration::ZERO),
    );
    assert_eq!(worker.wait_for_signal(0), Signal::Run(sequence));
    let mut segments = Vec::new();
    assert!(worker.read(&mut segments));
    assert_eq!(segments, [segment(1), segment(2)]);
    assert_eq!(
        (worker.threads(), front.work_division()),
        (3, WorkDivision::SingleThread)
    );
    worker.set_work_division(WorkDivision::Trees);
    assert_eq!(front.work_division(), WorkDivision::Trees);
    assert_eq!(front.state(1), SegmentState::Pending);
    assert!(!front.is_started(sequence));
    worker.begin(sequence);
    assert!(front.is_started(sequence));
    worker.fail(1, "why");
    assert!(!front.is_finished(sequence));
    worker.finish(sequence, 2, Duration::from_nanos(9));
    assert!(front.is_finished(sequence));
    assert_eq!(
        [front.state(0), front.state(1)],
        [SegmentState::Done, SegmentState::Failed]
    );
    assert_eq!(
        (front.compute_nanos(), front.reason()),
        (9, "why".to_owned())
    );
    front.stop();
    assert_eq!(worker.wait_for_signal(sequence), Signal::Stop);
}

#[test]
fn commands_cross_the_ring_as_a_batch_without_rows() {
    let front = Ring::create("test").unwrap();
    let worker = Ring::open(front.fd().try_clone_to_owned().unwrap()).unwrap();
    front.submit_command(1);
    assert_eq!(
        (worker.wait_for_signal(0), worker.is_command()),
        (Signal::Run(1), true)
    );
    let mut segments = Vec::new();
    assert!(worker.read(&mut segments) && segments.is_empty());
    worker.finish(1, 1, Duration::ZERO);
    assert_eq!(front.state(0), SegmentState::Done);
    front.submit_command(2);
    worker.fail(0, "no");
    worker.finish(2, 1, Duration::ZERO);
    assert_eq!(
        (front.state(0), front.reason()),
        (SegmentState::Failed, "no".to_owned())
    );
    submit(&front, 3, &[segment(1)], (1, Duration::ZERO));
    assert!(!worker.is_command());
}

#[test]
fn invalid_words_of_a_worker_are_rejected() {
    let front = Ring::create("test").unwrap();
    submit(&front, 1, &[segment(1)], (1, Duration::ZERO));
    for word in front.words.words() {
        word.store(u64::MAX, Ordering::Relaxed);
    }
    assert_eq!(front.state(0), SegmentState::Failed);
    assert!(front.reason().len() <= 4 * REASON_BYTES_MAX);
    assert!(!front.read(&mut Vec::new()));
}

#[test]
fn sequence_numbers_skip_the_two_reserved_values() {
    assert_eq!(Ring::next_sequence(0), 1);
    assert_eq!(Ring::next_sequence(STOP - 2), STOP - 1);
    assert_eq!(Ring::next_sequence(STOP - 1), 1);
}

#[test]
fn a_sleeping_worker_is_woken() {
    let front = Ring::create("test").unwrap();
    let worker = Ring::open(front.fd().try_clone_to_owned().unwrap()).unwrap();
    let sleeper = std::thread::spawn(move || worker.wait_for_signal(0));
    while front.futex(WAITING).load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    submit(&front, 1, &[], (1, Duration::ZERO));
    assert_eq!(sleeper.join().unwrap(), Signal::Run(1));
}

#[test]
fn a_worker_that_spins_is_not_woken_and_one_that_sleeps_is() {
    let front = Ring::create("test").unwrap();
    let worker = Ring::open(front.fd().try_clone_to_owned().unwrap()).unwrap();
    let is_asleep = || front.futex(WAITING).load(Ordering::SeqCst) != 0;
    for (spin, sleeps) in [(SPIN_TIME_MAX, false), (Duration::ZERO, true)] {
        let mut was_asleep = Vec::new();
        for sequence in (1..20).step_by(2) {
            submit(&front, sequence, &[segment(1)], (1, spin));
            assert_eq!(worker.wait_for_signal(sequence - 1), Signal::Run(sequence));
            std::thread::scope(|scope| {
                let next = scope.spawn(|| worker.wait_for_signal(sequence));
                if sleeps {
                    while !is_asleep() {
                        std::thread::yield_now();
                    }
                }
                was_asleep.push(is_asleep());
                submit(&front, sequence + 1, &[segment(1)], (1, spin));
                assert_eq!(next.join().unwrap(), Signal::Run(sequence + 1));
            });
        }
        // A thread that starts late on a busy machine finds the next batch at once and does not
        // sleep.
        assert!(was_asleep.contains(&sleeps), "{spin:?}");
    }
}
