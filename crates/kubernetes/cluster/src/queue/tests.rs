//! Tests that no key is lost or processed concurrently with itself, and that pauses match the class
//! of the error.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

fn queue() -> WorkQueue<&'static str> {
    WorkQueue::new("test", &MetricsRegistry::new())
}

fn take(queue: &WorkQueue<&'static str>, now: Instant) -> Option<&'static str> {
    queue.lock().take_due(now).ok()
}

#[tokio::test]
async fn a_key_waits_once_and_the_earliest_time_counts() {
    let queue = queue();
    let now = Instant::now();
    let second = Duration::from_secs(1);
    queue.add_after("a", 10 * second);
    queue.add_after("b", 2 * second);
    queue.add_after("a", second);
    queue.add_after("a", 5 * second);
    assert_eq!(take(&queue, now), None);
    let later = now + 20 * second;
    assert_eq!(take(&queue, later), Some("a"));
    assert_eq!(take(&queue, later), Some("b"));
    assert_eq!(take(&queue, later), None);
}

#[tokio::test]
async fn a_key_that_is_added_while_it_is_worked_on_is_worked_on_again() {
    let queue = queue();
    queue.add("a");
    let now = Instant::now();
    assert_eq!(take(&queue, now), Some("a"));
    queue.add("a");
    assert_eq!(take(&queue, Instant::now()), None);
    queue.lock().finish("a", WorkOutcome::Done, Instant::now());
    assert_eq!(take(&queue, Instant::now()), Some("a"));
    queue.lock().finish("a", WorkOutcome::Done, Instant::now());
    assert_eq!(take(&queue, Instant::now()), None);
    assert!(queue.lock().entries.is_empty(), "nothing is kept for later");
}

#[tokio::test]
async fn the_class_of_a_failure_decides_its_pause() {
    let queue = queue();
    let hour = Duration::from_secs(3600);
    let pause_after = |class, times| {
        let mut pause = None;
        for _ in 0..times {
            queue.add("a");
            let now = Instant::now() + hour;
            assert_eq!(take(&queue, now), Some("a"));
            queue.lock().finish("a", WorkOutcome::Failed(class), now);
            pause = queue
                .lock()
                .order
                .first_key_value()
                .map(|(due, _)| due.0 - now);
        }
        queue.add("a");
        assert_eq!(take(&queue, Instant::now() + hour), Some("a"));
        queue.lock().finish("a", WorkOutcome::Done, Instant::now());
        pause
    };
    assert_eq!(pause_after(ErrorClass::Invalid, 3), None);
    let throttled = pause_after(ErrorClass::Throttled(Duration::from_secs(7)), 3).unwrap();
    assert!((7.0..=10.5).contains(&throttled.as_secs_f64()));
    for class in [
        ErrorClass::Conflict,
        ErrorClass::NotFound,
        ErrorClass::Transient,
        ErrorClass::Bug,
    ] {
        let [first, last] = [1, 20].map(|times| pause_after(class, times).unwrap());
        assert!((0.1..=0.15).contains(&first.as_secs_f64()), "{first:?}");
        assert!((60.0..=90.0).contains(&last.as_secs_f64()), "{last:?}");
    }
    let forbidden = pause_after(ErrorClass::Forbidden, 1).unwrap();
    assert!((1.0..=1.5).contains(&forbidden.as_secs_f64()));
    let forbidden = pause_after(ErrorClass::Forbidden, 20).unwrap();
    assert!((60.0..=90.0).contains(&forbidden.as_secs_f64()));
    for times in [1, 5, 20, 90] {
        let unknown = pause_after(ErrorClass::KindUnknown, times).unwrap();
        assert!(unknown.as_secs_f64() < 1.0, "{times}: {unknown:?}");
    }
    let unknown = pause_after(ErrorClass::KindUnknown, 91).unwrap();
    assert!((60.0..=90.0).contains(&unknown.as_secs_f64()));
}

#[tokio::test]
async fn a_change_is_worked_on_at_once_even_after_failures() {
    let queue = queue();
    queue.add("a");
    let now = Instant::now();
    assert_eq!(take(&queue, now), Some("a"));
    queue
        .lock()
        .finish("a", WorkOutcome::Failed(ErrorClass::Forbidden), now);
    assert_eq!(take(&queue, Instant::now()), None);
    queue.add("a");
    assert_eq!(take(&queue, Instant::now()), Some("a"));
}

#[tokio::test]
async fn work_is_bounded_never_twice_at_a_time_and_survives_panics() {
    let queue = WorkQueue::new("test", &MetricsRegistry::new());
    let shutdown = Shutdown::new();
    let running: Arc<Mutex<HashSet<usize>>> = Arc::default();
    let (most, calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for round in 0..3 {
        for key in 0..50 {
            queue.add_after(key, Duration::from_millis(round * 20));
        }
    }
    let work = |key: usize| {
        let (running, most, calls) = (running.clone(), most.clone(), calls.clone());
        let (stop, queue) = (shutdown.clone(), queue.clone());
        async move {
            let count = {
                let mut running = running.lock().unwrap();
                assert!(running.insert(key), "{key} is worked on twice");
                running.len()
            };
            most.fetch_max(count, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(3)).await;
            running.lock().unwrap().remove(&key);
            match calls.fetch_add(1, Ordering::SeqCst) {
                10 => panic!("on purpose"),
                20..40 => queue.add(key),
                200 => stop.trigger(),
                _ => {}
            }
            WorkOutcome::After(Duration::from_millis(5))
        }
    };
    queue.run(4, &shutdown, work).await;
    assert_eq!(most.load(Ordering::SeqCst), 4);
    assert!(running.lock().unwrap().is_empty(), "work was drained");
}
