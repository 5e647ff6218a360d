//! Defaults and conflicting arguments.

use super::*;

fn settings(arguments: &[&str]) -> Result<ServerConfig, String> {
    let all = ["albacore-server", "--model", "m=a.ubj"]
        .iter()
        .chain(arguments);
    Args::try_parse_from(all)
        .map_err(|error| error.to_string())?
        .check()
}

#[test]
fn defaults_match_the_reference() {
    let settings = settings(&[]).unwrap();
    assert_eq!(settings.http, "[::]:8080".parse().unwrap());
    assert_eq!(settings.grpc, "[::]:8081".parse().unwrap());
    let ModelSource::Arguments { batching, .. } = settings.models else {
        panic!("{settings:?}");
    };
    assert_eq!((settings.workers, settings.threads), (1, 1));
    assert_eq!(batching.policy, Policy::Auto(Prefer::ShortWaits));
    assert_eq!(
        (batching.batch_rows_max, batching.queue_rows_max),
        (1024, 65536)
    );
    assert_eq!(settings.drain_timeout, Duration::from_secs(30));
}

#[test]
fn front_threads_default_to_a_quarter_of_the_cpus_within_bounds() {
    let by_default = |cpus| front_threads(None, cpus).unwrap();
    let threads = [0, 1, 2, 3, 4, 8, 12, 64, 512].map(by_default);
    assert_eq!(threads, [1, 1, 1, 1, 2, 2, 3, 16, 16]);
    assert_eq!(front_threads(Some(2), 2), Ok(2));
    let error = "--front-threads 3 is not between 1 and 2, the number of cpus that this server may \
                 use (at most 256)";
    assert_eq!(front_threads(Some(3), 2), Err(error.to_owned()));
    assert_eq!(front_threads(Some(256), 512), Ok(256));
    assert!(front_threads(Some(257), 512).is_err());
}

#[test]
fn cpus_max_is_passed_to_the_engine() {
    let batching = |of: &ServerConfig| match of.models {
        ModelSource::Arguments { batching, .. } => batching,
        ModelSource::SettingsFile(_) => panic!("{of:?}"),
    };
    for (arguments, max) in [(&["--cpus-max", "1"][..], Some(1)), (&[], None)] {
        let settings = settings(arguments).unwrap();
        assert_eq!(settings.engine(batching(&settings), 0).cpus_max, max);
    }
}

#[test]
fn a_settings_file_excludes_model_arguments() {
    let alone = ["albacore-server", "--settings", "a.yaml", "--workers", "2"];
    let settings = Args::try_parse_from(alone).unwrap().check().unwrap();
    assert_eq!(settings.models, ModelSource::SettingsFile("a.yaml".into()));
    for more in [
        &["--max-rows", "9"][..],
        &["--slo", "2ms"],
        &["--policy", "eager"],
    ] {
        let error = Args::try_parse_from(alone.iter().chain(more)).unwrap_err();
        assert!(error.to_string().contains("cannot be used with"), "{error}");
    }
    assert!(Args::try_parse_from(["albacore-server"]).is_err());
}

#[test]
fn an_objective_applies_to_one_model_or_to_all() {
    let settings = settings(&["--model", "n=b", "--slo", "25ms", "--slo", "n=1.5s"]).unwrap();
    let ModelSource::Arguments { models, .. } = settings.models else {
        panic!("{settings:?}");
    };
    let slos: Vec<_> = models.iter().map(|model| model.slo).collect();
    assert_eq!(slos, [25, 1500].map(|ms| Some(Duration::from_millis(ms))));
}

#[test]
fn conflicting_arguments_are_reported_by_name() {
    for (arguments, words) in [
        (&["--policy", "timeout"][..], "needs --max-delay"),
        (
            &["--max-delay", "2ms", "--policy", "deferred"],
            "--max-delay needs --policy timeout",
        ),
        (
            &["--max-delay", "2ms"],
            "--max-delay needs --policy timeout",
        ),
        (
            &["--max-delay", "2", "--policy", "timeout"],
            "for example 25ms",
        ),
        (
            &["--max-delay", "2h", "--policy", "timeout"],
            "for example 25ms",
        ),
        (&["--max-delay=-2ms", "--policy", "timeout"], "--max-delay"),
        (&["--model-cache-bytes-max", "1000"], "--model-cache <DIR>"),
        (&["--workers", "0"], "from 1 to 512"),
        (&["--threads", "many"], "from 1 to 512"),
        (
            &["--front-threads", "0"],
            "--front-threads 0 is not between 1 and",
        ),
        (&["--front-threads", "many"], "--front-threads"),
        (
            &["--cpus-max", "1", "--front-threads", "2"],
            "--front-threads 2 is not between 1 and 1,",
        ),
        (&["--cpus-max", "0"], "from 1 to 8192"),
        (&["--model", "m=b"], "--model m is given twice"),
        (&["--model", "=b"], "\"\" is not a valid name"),
        (&["--model", "a/b=c"], "\"a/b\" is not a valid name"),
        (&["--model", "b="], "has neither a path nor a URL"),
        (&["--slo", "x=2ms"], "--slo x: no --model has this name"),
        (
            &["--slo", "2ms", "--slo", "3ms"],
            "given twice for all models",
        ),
        (&["--http", "localhost"], "--http"),
        (&["--settings", "a.yaml"], "cannot be used with"),
        (&["--params", "a:80"], "http://HOST:PORT or unix:/PATH"),
    ] {
        let message = settings(arguments).unwrap_err();
        assert!(message.contains(words), "{arguments:?}: {message}");
    }
}
