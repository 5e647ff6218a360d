//! Phases and their times, by a clock that the tests wind.

use super::*;

fn listener() -> Arc<ListenerState> {
    Arc::new(ListenerState::new(LimitMetrics::default()))
}

fn conn(listener: &Arc<ListenerState>) -> Arc<ConnState> {
    Arc::new(ConnState::new(Arc::clone(listener)))
}

/// Lets `time` pass.
fn wait(listener: &ListenerState, time: Duration) {
    for _ in 0..time.as_millis() / SWEEP_PERIOD.as_millis() {
        listener.tick();
    }
}

/// What it was told, if anything.
fn heard(conn: &ConnState) -> Option<Control> {
    conn.control.lock().unwrap().take()
}

/// Why it is told to leave after exactly so much time, and not before.
fn leaves_after(listener: &ListenerState, conn: &ConnState, time: Duration) -> Limit {
    wait(listener, time);
    conn.look();
    assert_eq!(
        heard(conn),
        None,
        "its time lasts until {time:?} have passed"
    );
    wait(listener, 2 * SWEEP_PERIOD);
    conn.look();
    match heard(conn) {
        Some(Control::Leave(seen, bound)) if conn.is_still(seen) => bound,
        told => panic!("{told:?}"),
    }
}

#[test]
fn each_phase_has_its_time() {
    let listener = listener();
    let conn = conn(&listener);
    let bound = leaves_after(&listener, &conn, FIRST_BYTES_TIME_MAX);
    assert_eq!(bound, Limit::FirstBytesTime);
    conn.hears();
    assert_eq!(
        leaves_after(&listener, &conn, HEAD_TIME_MAX),
        Limit::HeadTime
    );
    let mut call = conn.begin();
    conn.awaits_body(true);
    wait(&listener, Duration::from_secs(1_000));
    conn.look();
    conn.awaits_body(false);
    wait(&listener, Duration::from_secs(1_000));
    conn.look();
    assert_eq!(
        heard(&conn),
        None,
        "bodies and batches have bounds of their own"
    );
    let bytes = Bytes::from_static(b"small");
    assert_eq!(call.send(bytes.clone()), Some(bytes));
    drop(call);
    assert_eq!(
        leaves_after(&listener, &conn, REPLY_TIME_MAX),
        Limit::ReplyTime
    );
    conn.flushed();
    assert_eq!(
        leaves_after(&listener, &conn, IDLE_TIME_MAX),
        Limit::IdleTime
    );
}

#[test]
fn who_went_on_is_not_as_it_was_seen() {
    let listener = listener();
    let conn = conn(&listener);
    wait(&listener, FIRST_BYTES_TIME_MAX + 2 * SWEEP_PERIOD);
    conn.look();
    conn.hears();
    let Some(Control::Leave(seen, _)) = heard(&conn) else {
        panic!("it was told to leave")
    };
    assert!(!conn.is_still(seen));
}

#[test]
fn the_least_in_need_are_those_that_never_asked_then_the_longest_idle() {
    let listener = listener();
    let idle = || {
        let conn = conn(&listener);
        drop(conn.begin().send(Bytes::new()));
        conn.flushed();
        conn
    };
    let old = idle();
    wait(&listener, 2 * CROWDED_IDLE_MIN);
    let young = idle();
    assert_eq!(young.rank(), None, "between two requests");
    wait(&listener, 2 * CROWDED_IDLE_MIN);
    let (fresh, busy) = (conn(&listener), conn(&listener));
    let call = busy.begin();
    assert_eq!(busy.rank(), None);
    let mut conns = [&young, &old, &fresh];
    conns.sort_by_key(|conn| conn.rank().unwrap());
    assert!(Arc::ptr_eq(conns[0], &fresh));
    assert!(Arc::ptr_eq(conns[1], &old));
    old.crowd_out();
    assert_eq!(old.rank(), None, "it is asked once");
    old.stays();
    assert!(old.rank().is_some());
    drop(call);
}

#[test]
fn calls_of_http_2_keep_it_busy_until_their_replies_are_sent() {
    let listener = listener();
    let conn = conn(&listener);
    conn.speaks_http2();
    let (mut first, second) = (conn.begin(), conn.begin());
    let reply = first.send(Bytes::from_static(b"reply")).unwrap();
    drop((first, second));
    assert!(conn.is_serving(), "a reply is not sent");
    wait(&listener, IDLE_TIME_MAX_H2 * 2);
    conn.look();
    assert_eq!(heard(&conn), None);
    drop(reply);
    assert!(!conn.is_serving());
    let bound = leaves_after(&listener, &conn, IDLE_TIME_MAX_H2);
    assert_eq!(bound, Limit::IdleTime);
}

#[test]
fn a_reply_over_http_2_that_is_not_read_for_two_eras_ends_its_connection() {
    let listener = listener();
    let conn = conn(&listener);
    conn.speaks_http2();
    let mut call = conn.begin();
    let reply = call.send(Bytes::from_static(b"reply")).unwrap();
    let mut epochs = 0;
    let start = listener.now();
    while epochs < 2 {
        if listener.tick() {
            epochs += 1;
            conn.look_for_unread();
            let told = heard(&conn);
            assert_eq!(
                told,
                (epochs == 2).then_some(Control::Out(Limit::ReplyTime))
            );
        }
    }
    assert!(listener.now() - start > ticks(reply_time(REPLY_BYTES_MAX)));
    drop(reply);
    conn.look_for_unread();
    assert_eq!(heard(&conn), None);
}

#[test]
fn most_calls_given_up_end_a_connection_and_some_do_not() {
    let listener = listener();
    let conn = conn(&listener);
    conn.speaks_http2();
    for _ in 0..RESETS_FREE {
        drop(conn.begin());
    }
    assert_eq!(heard(&conn), None);
    drop(conn.begin());
    assert_eq!(heard(&conn), Some(Control::Out(Limit::Resets)));
    let other = self::conn(&listener);
    other.speaks_http2();
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
    let listener = listener();
    let conn = conn(&listener);
    let large = Bytes::from(vec![0; REPLIES_BYTES_MAX / 2]);
    let mut calls = [conn.begin(), conn.begin(), conn.begin()];
    let first = calls[0].send(large.clone()).unwrap();
    let second = calls[1].send(large.clone()).unwrap();
    assert_eq!(calls[2].send(large.clone()), None);
    let small = Bytes::from_static(b"come again");
    assert!(calls[2].send(small).is_some(), "the refusal is sent");
    drop(first);
    assert!(conn.begin().send(large).is_some());
    drop(second);
}
