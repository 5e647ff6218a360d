//! When a model is loaded: after failures, changes of its file, and other settings.

use albacore_settings::Digest;

use super::*;

fn followed(path: &str) -> Followed {
    Followed::new(model(path))
}

fn model(path: &str) -> settings::Model {
    settings::Model {
        name: "m".to_owned(),
        source: settings::Source::Path(path.to_owned()),
        sha256: None,
        iterations: None,
        slo: None,
        outputs: Vec::new(),
    }
}

fn attempt(model: &mut Followed, outcome: Result<Digest, String>, now: Instant) -> bool {
    let order = model.due(now).unwrap();
    model.start(7, Arc::new(AtomicBool::new(true)));
    assert_eq!(model.due(now), None, "one at a time");
    let stamp = stamp_of(&order.source);
    let attempt = Attempt {
        number: 7,
        order,
        stamp,
        outcome,
    };
    assert!(model.is_over(&attempt) && !model.is_over(&attempt));
    model.take(&attempt, now)
}

#[test]
fn a_failure_is_tried_again_after_pauses_that_grow() {
    let mut model = followed("/absent");
    let mut now = Instant::now();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert!(attempt(&mut model, Err("no".to_owned()), now));
        assert_eq!(model.due(now), None);
        now += Duration::from_secs(seconds);
        assert!(model.due(now).is_some(), "{seconds}");
    }
    assert!(attempt(&mut model, Ok(Digest([1; 32])), now));
    assert_eq!(model.due(now + LOAD_PAUSE_MAX), None);
}

#[test]
fn a_changed_file_is_read_once_it_is_steady() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("1");
    let mut model = followed(file.path().to_str().unwrap());
    let now = Instant::now();
    attempt(&mut model, Ok(Digest([1; 32])), now);
    assert_eq!(model.due(now), None);
    write("22");
    assert_eq!(model.due(now), None);
    write("333");
    assert_eq!(model.due(now), None, "it still changes");
    assert!(model.due(now).is_some());
    attempt(&mut model, Err("broken".to_owned()), now);
    assert_eq!(
        model.served,
        Some((Digest([1; 32]), None)),
        "what is served stays"
    );
    std::fs::remove_file(&file).unwrap();
    assert_eq!((model.due(now), model.due(now)), (None, None));
}

#[test]
fn other_settings_are_tried_at_once_and_make_the_running_attempt_unwanted() {
    let mut model = followed("/a");
    let now = Instant::now();
    let is_wanted = Arc::new(AtomicBool::new(true));
    let order = model.due(now).unwrap();
    model.start(1, Arc::clone(&is_wanted));
    assert!(model.change(self::model("/b")));
    assert!(!is_wanted.load(Ordering::Relaxed));
    let late = Attempt {
        number: 1,
        order,
        stamp: None,
        outcome: Err("no".to_owned()),
    };
    assert!(model.is_over(&late) && !model.take(&late, now));
    assert!(model.due(now).is_some(), "what is wanted was not tried");
    attempt(&mut model, Ok(Digest([2; 32])), now);
    let mut with_slo = self::model("/b");
    with_slo.slo = Some(settings::Slo::uniform(Duration::from_millis(1), 99.0));
    assert!(!model.change(with_slo), "an objective is no reason to load");
    assert_eq!(model.due(now), None);
    let mut with_iterations = self::model("/b");
    with_iterations.iterations = Some(settings::Iterations::Best);
    assert!(
        model.change(with_iterations),
        "other trees are another model"
    );
    assert!(model.due(now).is_some());
}
