//! Phases and their times, by a clock that the tests wind.

use super::*;

fn room() -> Arc<Room> {
    Arc::new(Room::new(Reached::default()))
}

fn seat(room: &Arc<Room>) -> Arc<Seat> {
    Arc::new(Seat::new(Arc::clone(room)))
}

/// Lets `time` pass.
fn wait(room: &Room, time: Duration) {
    for _ in 0..time.as_millis() / SWEEP_PERIOD.as_millis() {
        room.tick();
    }
}

/// What it was told, if anything.
fn heard(seat: &Seat) -> Option<Told> {
    seat.told.lock().unwrap().take()
}

/// Why it is told to leave after exactly so much time, and not before.
fn leaves_after(room: &Room, seat: &Seat, time: Duration) -> Bound {
    wait(room, time);
    seat.look();
    assert_eq!(
        heard(seat),
        None,
        "its time lasts until {time:?} have passed"
    );
    wait(room, 2 * SWEEP_PERIOD);
    seat.look();
    match heard(seat) {
        Some(Told::Leave(seen, bound)) if seat.is_still(seen) => bound,
        told => panic!("{told:?}"),
    }
}

#[test]
fn each_phase_has_its_time() {
    let room = room();
    let seat = seat(&room);
    let bound = leaves_after(&room, &seat, FIRST_BYTES_TIME_MAX);
    assert_eq!(bound, Bound::FirstBytesTime);
    seat.hears();
    assert_eq!(leaves_after(&room, &seat, HEAD_TIME_MAX), Bound::HeadTime);
    let mut call = seat.begin();
    seat.awaits_body(true);
    wait(&room, Duration::from_secs(1_000));
    seat.look();
    seat.awaits_body(false);
    wait(&room, Duration::from_secs(1_000));
    seat.look();
    assert_eq!(
        heard(&seat),
        None,
        "bodies and batches have bounds of their own"
    );
    let bytes = Bytes::from_static(b"small");
    assert_eq!(call.send(bytes.clone()), Some(bytes));
    drop(call);
    assert_eq!(leaves_after(&room, &seat, REPLY_TIME_MAX), Bound::ReplyTime);
    seat.flushed();
    assert_eq!(leaves_after(&room, &seat, IDLE_TIME_MAX), Bound::IdleTime);
}

#[test]
fn who_went_on_is_not_as_it_was_seen() {
    let room = room();
    let seat = seat(&room);
    wait(&room, FIRST_BYTES_TIME_MAX + 2 * SWEEP_PERIOD);
    seat.look();
    seat.hears();
    let Some(Told::Leave(seen, _)) = heard(&seat) else {
        panic!("it was told to leave")
    };
    assert!(!seat.is_still(seen));
}

#[test]
fn the_least_in_need_are_those_that_never_asked_then_the_longest_idle() {
    let room = room();
    let idle = || {
        let seat = seat(&room);
        drop(seat.begin().send(Bytes::new()));
        seat.flushed();
        seat
    };
    let old = idle();
    wait(&room, 2 * CROWDED_IDLE_MIN);
    let young = idle();
    assert_eq!(young.rank(), None, "between two requests");
    wait(&room, 2 * CROWDED_IDLE_MIN);
    let (fresh, busy) = (seat(&room), seat(&room));
    let call = busy.begin();
    assert_eq!(busy.rank(), None);
    let mut seats = [&young, &old, &fresh];
    seats.sort_by_key(|seat| seat.rank().unwrap());
    assert!(Arc::ptr_eq(seats[0], &fresh));
    assert!(Arc::ptr_eq(seats[1], &old));
    old.crowd_out();
    assert_eq!(old.rank(), None, "it is asked once");
    old.stays();
    assert!(old.rank().is_some());
    drop(call);
}

#[test]
fn calls_of_http_2_keep_it_busy_until_their_replies_are_sent() {
    let room = room();
    let seat = seat(&room);
    seat.speaks_two();
    let (mut first, second) = (seat.begin(), seat.begin());
    let reply = first.send(Bytes::from_static(b"reply")).unwrap();
    drop((first, second));
    assert!(seat.is_serving(), "a reply is not sent");
    wait(&room, IDLE_TIME_MAX_H2 * 2);
    seat.look();
    assert_eq!(heard(&seat), None);
    drop(reply);
    assert!(!seat.is_serving());
    let bound = leaves_after(&room, &seat, IDLE_TIME_MAX_H2);
    assert_eq!(bound, Bound::IdleTime);
}

#[test]
fn a_reply_over_http_2_that_is_not_read_for_two_eras_ends_its_connection() {
    let room = room();
    let seat = seat(&room);
    seat.speaks_two();
    let mut call = seat.begin();
    let reply = call.send(Bytes::from_static(b"reply")).unwrap();
    let mut eras = 0;
    let start = room.now();
    while eras < 2 {
        if room.tick() {
            eras += 1;
            seat.look_for_unread();
            let told = heard(&seat);
            assert_eq!(told, (eras == 2).then_some(Told::Out(Bound::ReplyTime)));
        }
    }
    assert!(room.now() - start > ticks(reply_time(REPLY_BYTES_MAX)));
    drop(reply);
    seat.look_for_unread();
    assert_eq!(heard(&seat), None);
}

#[test]
fn most_calls_given_up_end_a_connection_and_some_do_not() {
    let room = room();
    let seat = seat(&room);
    seat.speaks_two();
    for _ in 0..RESETS_FREE {
        drop(seat.begin());
    }
    assert_eq!(heard(&seat), None);
    drop(seat.begin());
    assert_eq!(heard(&seat), Some(Told::Out(Bound::Resets)));
    let other = self::seat(&room);
    other.speaks_two();
    for _ in 0..3 * RESETS_FREE {
        drop(other.begin());
        for _ in 0..2 {
            other.begin().answered();
        }
    }
    assert_eq!(heard(&other), None, "a third of its calls");
}

#[test]
fn large_replies_of_all_connections_share_a_bound() {
    let room = room();
    let seat = seat(&room);
    let large = Bytes::from(vec![0; REPLIES_BYTES_MAX / 2]);
    let mut calls = [seat.begin(), seat.begin(), seat.begin()];
    let first = calls[0].send(large.clone()).unwrap();
    let second = calls[1].send(large.clone()).unwrap();
    assert_eq!(calls[2].send(large.clone()), None);
    let small = Bytes::from_static(b"come again");
    assert!(calls[2].send(small).is_some(), "the refusal is sent");
    drop(first);
    assert!(seat.begin().send(large).is_some());
    drop(second);
}
