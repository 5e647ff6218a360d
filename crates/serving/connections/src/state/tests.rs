//! Phases and their deadlines, with a clock advanced by the tests.

use super::*;

fn listener() -> Arc<ListenerState> {
    Arc::new(ListenerState::new(
        LimitMetrics::default(),
        UnsentBytes::default(),
    ))
}

fn conn(listener: &Arc<ListenerState>) -> Arc<ConnState> {
    Arc::new(ConnState::new(Arc::clone(listener)))
}

/// Advances the clock by `time`.
fn advance(listener: &ListenerState, time: Duration) {
    for _ in 0..time.as_millis() / SWEEP_PERIOD.as_millis() {
        listener.tick();
    }
}

/// Takes the pending control message, if any.
fn control(conn: &ConnState) -> Option<Control> {
    conn.control.lock().unwrap().take()
}

/// Checks that the deadline expires after `time`; returns the limit.
fn limit_after(listener: &ListenerState, conn: &ConnState, time: Duration) -> Limit {
    advance(listener, time);
    conn.check_deadline();
    assert_eq!(control(conn), None, "the deadline is after {time:?}");
    advance(listener, 2 * SWEEP_PERIOD);
    conn.check_deadline();
    match control(conn) {
        Some(Control::CloseIfUnchanged(observed, limit)) if conn.is_unchanged(observed) => limit,
        other => panic!("{other:?}"),
    }
}

#[test]
fn each_phase_has_its_deadline() {
    let listener = listener();
    let conn = conn(&listener);
    let limit = limit_after(&listener, &conn, FIRST_BYTES_TIME_MAX);
    assert_eq!(limit, Limit::FirstBytesTime);
    conn.bytes_received();
    assert_eq!(
        limit_after(&listener, &conn, HEAD_TIME_MAX),
        Limit::HeadTime
    );
    let mut call = conn.begin_request();
    conn.set_reading_body(true);
    advance(&listener, Duration::from_secs(1_000));
    conn.check_deadline();
    conn.set_reading_body(false);
    advance(&listener, Duration::from_secs(1_000));
    conn.check_deadline();
    assert_eq!(
        control(&conn),
        None,
        "bodies and batches have bounds of their own"
    );
    let bytes = Bytes::from_static(b"small");
    assert_eq!(call.track(bytes.clone()), Some(bytes));
    drop(call);
    assert_eq!(
        limit_after(&listener, &conn, REPLY_TIME_MAX),
        Limit::ReplyTime
    );
    conn.flushed();
    assert_eq!(
        limit_after(&listener, &conn, IDLE_TIME_MAX),
        Limit::IdleTime
    );
}

#[test]
fn a_connection_in_a_new_phase_is_not_unchanged() {
    let listener = listener();
    let conn = conn(&listener);
    advance(&listener, FIRST_BYTES_TIME_MAX + 2 * SWEEP_PERIOD);
    conn.check_deadline();
    conn.bytes_received();
    let Some(Control::CloseIfUnchanged(observed, _)) = control(&conn) else {
        panic!("a message is sent")
    };
    assert!(!conn.is_unchanged(observed));
}

#[test]
fn connections_without_a_request_are_evicted_first_then_the_longest_idle() {
    let listener = listener();
    let idle = || {
        let conn = conn(&listener);
        drop(conn.begin_request().track(Bytes::new()));
        conn.flushed();
        conn
    };
    let old = idle();
    advance(&listener, 2 * EVICTION_IDLE_MIN);
    let young = idle();
    assert_eq!(young.eviction_rank(), None, "between two requests");
    advance(&listener, 2 * EVICTION_IDLE_MIN);
    let (fresh, busy) = (conn(&listener), conn(&listener));
    let call = busy.begin_request();
    assert_eq!(busy.eviction_rank(), None);
    let mut conns = [&young, &old, &fresh];
    conns.sort_by_key(|conn| conn.eviction_rank().unwrap());
    assert!(Arc::ptr_eq(conns[0], &fresh));
    assert!(Arc::ptr_eq(conns[1], &old));
    old.evict();
    assert_eq!(old.eviction_rank(), None, "it is asked once");
    old.cancel_eviction();
    assert!(old.eviction_rank().is_some());
    drop(call);
}

#[test]
fn an_http_2_connection_is_serving_until_its_replies_are_sent() {
    let listener = listener();
    let conn = conn(&listener);
    conn.set_http2();
    let (mut first, second) = (conn.begin_request(), conn.begin_request());
    let reply = first.track(Bytes::from_static(b"reply")).unwrap();
    drop((first, second));
    assert!(conn.is_serving(), "a reply is not sent");
    advance(&listener, IDLE_TIME_MAX_H2 * 2);
    conn.check_deadline();
    assert_eq!(control(&conn), None);
    drop(reply);
    assert!(!conn.is_serving());
    let limit = limit_after(&listener, &conn, IDLE_TIME_MAX_H2);
    assert_eq!(limit, Limit::IdleTime);
}

#[test]
fn a_reply_over_http_2_that_is_not_read_for_two_epochs_ends_its_connection() {
    let listener = listener();
    let conn = conn(&listener);
    conn.set_http2();
    let mut call = conn.begin_request();
    let reply = call.track(Bytes::from_static(b"reply")).unwrap();
    let mut epochs = 0;
    let start = listener.now();
    while epochs < 2 {
        if listener.tick() {
            epochs += 1;
            conn.check_unsent_replies();
            let message = control(&conn);
            assert_eq!(
                message,
                (epochs == 2).then_some(Control::Close(Limit::ReplyTime))
            );
        }
    }
    assert!(listener.now() - start > ticks(reply_time(REPLY_BYTES_MAX)));
    drop(reply);
    conn.check_unsent_replies();
    assert_eq!(control(&conn), None);
}

#[test]
fn a_connection_ends_after_most_of_its_calls_were_abandoned_but_not_after_some() {
    let listener = listener();
    let conn = conn(&listener);
    conn.set_http2();
    for _ in 0..RESETS_FREE {
        drop(conn.begin_request());
    }
    assert_eq!(control(&conn), None);
    drop(conn.begin_request());
    assert_eq!(control(&conn), Some(Control::Close(Limit::Resets)));
    let other = self::conn(&listener);
    other.set_http2();
    for _ in 0..3 * RESETS_FREE {
        drop(other.begin_request());
        for _ in 0..2 {
            other.begin_request().set_answered();
        }
    }
    assert_eq!(control(&other), None, "a third of its calls");
}

#[test]
fn large_replies_of_all_connections_share_a_bound() {
    let listener = listener();
    let conn = conn(&listener);
    let large = Bytes::from(vec![0; REPLIES_BYTES_MAX / 2]);
    let mut calls = [
        conn.begin_request(),
        conn.begin_request(),
        conn.begin_request(),
    ];
    let first = calls[0].track(large.clone()).unwrap();
    let second = calls[1].track(large.clone()).unwrap();
    assert_eq!(calls[2].track(large.clone()), None);
    let small = Bytes::from_static(b"come again");
    assert!(calls[2].track(small).is_some(), "the refusal is sent");
    drop(first);
    assert!(conn.begin_request().track(large).is_some());
    drop(second);
}
