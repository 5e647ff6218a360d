//! When a model is loaded: after failures, after changes of its file, and after changes of its
//! settings.

use albacore_settings::Digest;

use super::*;

const POLL: Duration = Duration::from_secs(90);

fn watched(path: &str) -> WatchedModel {
    WatchedModel::new(model(path))
}

fn model(path: &str) -> settings::ModelSettings {
    settings::ModelSettings {
        name: "m".to_owned(),
        source: settings::Source::Path(path.to_owned()),
        sha256: None,
        iterations: None,
        slo: None,
        outputs: Vec::new(),
        threads: None,
        weight: settings::WEIGHT_DEFAULT,
        batching: None,
        schema_names: settings::SchemaNames::default(),
    }
}

fn loaded_file(digest: Digest) -> LoadedFile {
    LoadedFile {
        digest,
        python: None,
    }
}

fn attempt(model: &mut WatchedModel, result: Result<Digest, String>, now: Instant) -> bool {
    let request = model.due(now).unwrap();
    model.record_start(7, Arc::new(AtomicBool::new(true)));
    assert_eq!(model.due(now), None, "one at a time");
    let stamp = stamp_of(&request.source);
    let attempt = LoadAttempt {
        number: 7,
        request,
        stamp,
        version: None,
        result: result.map(loaded_file),
    };
    assert!(model.take_running(&attempt) && !model.take_running(&attempt));
    model.record_result(&attempt, now, POLL)
}

#[test]
fn a_failed_load_is_retried_with_exponential_backoff() {
    let mut model = watched("/absent");
    let mut now = Instant::now();
    for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
        assert!(attempt(&mut model, Err("no".to_owned()), now));
        assert_eq!(model.due(now), None);
        now += Duration::from_secs(seconds);
        assert!(model.due(now).is_some(), "{seconds}");
    }
    assert!(attempt(&mut model, Ok(Digest([1; 32])), now));
    assert_eq!(model.due(now + LOAD_BACKOFF_MAX), None);
}

#[test]
fn a_changed_file_is_loaded_once_it_is_stable() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let write = |text: &str| std::fs::write(&file, text).unwrap();
    write("1");
    let mut model = watched(file.path().to_str().unwrap());
    let now = Instant::now();
    attempt(&mut model, Ok(Digest([1; 32])), now);
    assert_eq!(model.due(now), None);
    write("22");
    assert_eq!(model.due(now), None);
    write("333");
    assert_eq!(model.due(now), None, "the file still changes");
    assert!(model.due(now).is_some());
    attempt(&mut model, Err("broken".to_owned()), now);
    assert_eq!(
        model.served,
        Some(ServedVersion::new(
            loaded_file(Digest([1; 32])),
            &model.request()
        )),
        "the served version stays"
    );
    std::fs::remove_file(&file).unwrap();
    assert_eq!((model.due(now), model.due(now)), (None, None));
}

#[test]
fn changed_settings_are_loaded_immediately_and_cancel_the_running_attempt() {
    let mut model = watched("/a");
    let now = Instant::now();
    let is_wanted = Arc::new(AtomicBool::new(true));
    let request = model.due(now).unwrap();
    model.record_start(1, Arc::clone(&is_wanted));
    assert!(model.set_settings(self::model("/b")));
    assert!(!is_wanted.load(Ordering::Relaxed));
    let late = LoadAttempt {
        number: 1,
        request,
        version: None,
        stamp: None,
        result: Err("no".to_owned()),
    };
    assert!(model.take_running(&late) && !model.record_result(&late, now, POLL));
    assert!(model.due(now).is_some(), "the new settings were not tried");
    attempt(&mut model, Ok(Digest([2; 32])), now);
    let mut with_slo = self::model("/b");
    with_slo.slo = Some(settings::Slo::uniform(Duration::from_millis(1), 99.0));
    assert!(!model.set_settings(with_slo), "an objective needs no load");
    assert_eq!(model.due(now), None);
    let mut with_iterations = self::model("/b");
    with_iterations.iterations = Some(settings::IterationsSetting::Best);
    assert!(
        model.set_settings(with_iterations),
        "other iterations need a load"
    );
    assert!(model.due(now).is_some());
}

#[test]
fn an_object_store_is_polled_for_new_versions_unless_a_digest_is_set() {
    let mut model = watched("/absent");
    model.settings.source = settings::Source::Url("s3://models/a.ubj".to_owned());
    let now = Instant::now();
    let one = Ok(Digest([1; 32]));
    assert!(attempt(&mut model, one.clone(), now));
    assert_eq!(model.due(now + POLL / 2), None);
    let later = now + POLL;
    assert!(attempt(&mut model, Err("no".to_owned()), later));
    assert!(model.due(later + LOAD_BACKOFF_MIN).is_some());
    let mut pinned = model.settings.clone();
    pinned.sha256 = Some(Digest([1; 32]));
    assert!(model.set_settings(pinned));
    assert!(attempt(&mut model, one, later));
    assert_eq!(model.due(later + 10 * POLL), None);
}

fn send_call(model: &mut WatchedModel, action: ModelAction) {
    let (call, _) = ModelCall::new("m", action, &Arc::default()).unwrap();
    model.accept_call(call);
}

#[test]
fn a_call_loads_a_model_that_is_not_due() {
    let now = Instant::now();
    for mut model in [watched("/absent"), WatchedModel::from_cli(model("/absent"))] {
        if model.is_watched {
            assert!(attempt(&mut model, Ok(Digest([1; 32])), now));
        }
        assert_eq!(model.due(now), None);
        send_call(&mut model, ModelAction::Load);
        assert!(model.requested_load().is_some());
        assert!(attempt(&mut model, Ok(Digest([2; 32])), now));
        assert!(model.requested_load().is_some(), "until it is answered");
    }
}

#[test]
fn a_call_is_completed_by_an_attempt_that_started_after_it() {
    let now = Instant::now();
    let mut model = watched("/absent");
    let finished = |number, request: &LoadRequest| LoadAttempt {
        number,
        request: request.clone(),
        stamp: None,
        version: None,
        result: Err("no".to_owned()),
    };
    let request = model.due(now).unwrap();
    model.record_start(1, Arc::new(AtomicBool::new(true)));
    send_call(&mut model, ModelAction::Load);
    assert_eq!(model.requested_load(), None, "one at a time");
    let earlier = finished(1, &request);
    assert!(model.take_running(&earlier) && model.take_load_call(&earlier).is_none());
    model.record_result(&earlier, now, POLL);
    assert_eq!(model.requested_load(), Some(request.clone()));
    model.record_start(2, Arc::new(AtomicBool::new(true)));
    let later = finished(2, &request);
    assert!(model.take_running(&later) && model.take_load_call(&later).is_some());
    assert_eq!(model.requested_load(), None);
}

#[test]
fn an_unloaded_model_is_loaded_only_by_a_call() {
    let now = Instant::now();
    let mut model = watched("/absent");
    model.due(now).unwrap();
    let is_wanted = Arc::new(AtomicBool::new(true));
    model.record_start(1, Arc::clone(&is_wanted));
    send_call(&mut model, ModelAction::Unload);
    assert!(!is_wanted.load(Ordering::Relaxed) && model.has_unload_call());
    assert!(model.take_unload_call().is_none(), "a load is running");
    model.running = None;
    assert_eq!(model.due(now), None);
    assert!(model.take_unload_call().is_some() && model.take_unload_call().is_none());
    model.unload();
    let other = settings::ModelSettings {
        sha256: Some(Digest([3; 32])),
        ..self::model("/other")
    };
    assert!(!model.set_settings(other), "edits do not load it");
    let later = now + LOAD_BACKOFF_MAX;
    assert_eq!(model.due(later), None);
    // A failed load is not retried either.
    send_call(&mut model, ModelAction::Load);
    assert!(attempt(&mut model, Err("no".to_owned()), now));
    model.pending_call = None;
    assert!(model.is_unloaded && model.due(later).is_none());
    send_call(&mut model, ModelAction::Load);
    assert!(attempt(&mut model, Ok(Digest([3; 32])), now));
    assert!(!model.is_unloaded);
}
