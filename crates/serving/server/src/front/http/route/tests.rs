//! Valid and invalid paths and methods.

use proptest::prelude::*;

use super::*;

fn model<'a>(name: &'a str, version: &'a str) -> ModelPath<'a> {
    ModelPath {
        name: name.into(),
        version: version.into(),
    }
}

fn found<'a>(method: &Method, path: &'a str) -> Result<Route<'a>, RouteError> {
    parse(method, path, &PlatformRoutes::default())
}

#[test]
fn every_call_of_the_protocol_has_a_path() {
    for (method, path, route) in [
        (Method::GET, "/v2", Route::Server),
        (Method::GET, "/v2/", Route::Server),
        (Method::HEAD, "/v2/health/live", Route::Live),
        (Method::GET, "/v2/health/ready", Route::Ready),
        (
            Method::GET,
            "/v2/models/a%20b",
            Route::Model(model("a b", "")),
        ),
        (
            Method::GET,
            "/v2/models/m/ready",
            Route::ModelReady(model("m", "")),
        ),
        (
            Method::GET,
            "/v2/models/m/versions/1",
            Route::Model(model("m", "1")),
        ),
        (
            Method::GET,
            "/v2/models/m/versions/1/ready",
            Route::ModelReady(model("m", "1")),
        ),
        (
            Method::POST,
            "/v2/models/m/infer",
            Route::Infer(model("m", "")),
        ),
        (
            Method::POST,
            "/v2/models/m/versions/2/infer",
            Route::Infer(model("m", "2")),
        ),
        (
            Method::GET,
            "/v2/models/m/config",
            Route::Config(model("m", "")),
        ),
        (
            Method::GET,
            "/v2/models/m/versions/1/config",
            Route::Config(model("m", "1")),
        ),
        (Method::GET, "/v2/models/stats", Route::Stats(model("", ""))),
        (
            Method::GET,
            "/v2/models/m/stats",
            Route::Stats(model("m", "")),
        ),
        (
            Method::GET,
            "/v2/models/m/versions/1/stats",
            Route::Stats(model("m", "1")),
        ),
        (Method::POST, "/v2/repository/index", Route::Index),
        (Method::GET, "/metrics", Route::Metrics),
        (Method::GET, "/albacore/v1/state", Route::State),
    ] {
        assert_eq!(found(&method, path).unwrap(), route, "{path}");
    }
}

#[test]
fn models_are_loaded_and_unloaded_by_name() {
    for (path, name, call) in [
        ("m/unload", "m", RepositoryCall::Unload),
        ("a%20b/load", "a b", RepositoryCall::Load),
    ] {
        let path = format!("/v2/repository/models/{path}");
        let route = found(&Method::POST, &path).unwrap();
        assert_eq!(route, Route::Repository(name.into(), call));
        assert_eq!(found(&Method::GET, &path).unwrap_err().allow, "POST");
    }
}

#[test]
fn every_call_of_other_protocols_has_a_path() {
    for (method, path, route) in [
        (Method::GET, "/", Route::Alive),
        (Method::GET, "/v1/models", Route::ModelNames),
        (Method::GET, "/v1/models/", Route::ModelNames),
        (
            Method::GET,
            "/v1/models/a%20b",
            Route::ModelStatus(model("a b", "")),
        ),
        (
            Method::POST,
            "/v1/models/a:b:predict",
            Route::Predict(model("a:b", "")),
        ),
        (
            Method::POST,
            "/v1/models/m:explain",
            Route::Explain(model("m", "")),
        ),
        (Method::GET, "/ping", Route::Ping),
        (Method::HEAD, "/health", Route::Ping),
        (Method::GET, "/version", Route::Version),
        (Method::POST, "/invocations", Route::Invocations),
        (
            Method::POST,
            "/models/a%20b/invoke",
            Route::Invoke(model("a b", "")),
        ),
    ] {
        assert_eq!(found(&method, path).unwrap(), route, "{path}");
    }
}

#[test]
fn unknown_paths_and_wrong_methods_are_distinguished() {
    for path in [
        "",
        "/v1",
        "/v1/modelsm",
        "/v1/models/m/versions/1",
        "/v1/models/%f:predict",
        "/v2x",
        "/v2/models",
        "/v2/models/m/versions",
        "/v2/models/%f",
    ] {
        assert_eq!(
            found(&Method::GET, path).unwrap_err().error.kind,
            ErrorKind::NotFound,
            "{path}"
        );
    }
    let wrong = found(&Method::GET, "/v2/models/m/infer").unwrap_err();
    assert_eq!((wrong.error.kind, wrong.allow), (ErrorKind::Method, "POST"));
    let wrong = found(&Method::DELETE, "/v2").unwrap_err();
    assert_eq!(
        (wrong.error.kind, wrong.allow),
        (ErrorKind::Method, "GET, HEAD")
    );
}

proptest! {
    #[test]
    fn any_path_has_an_answer(path in "/v2/[a-z/%0-9A-F\\PC]{0,30}|\\PC{0,30}") {
        let _ = found(&Method::GET, &path);
    }
}

#[test]
fn regions_of_shared_memory_have_paths_and_other_extensions_are_named() {
    let trace = Route::Unsupported(UnsupportedCall::Trace);
    let cuda = || Route::Unsupported(UnsupportedCall::CudaSharedMemory);
    for (method, path, route) in [
        (Method::GET, "status", Route::RegionStatus("".into())),
        (
            Method::GET,
            "region/a%20b/status",
            Route::RegionStatus("a b".into()),
        ),
        (
            Method::POST,
            "region/r/register",
            Route::Register("r".into()),
        ),
        (
            Method::POST,
            "region/r/unregister",
            Route::Unregister("r".into()),
        ),
        (Method::POST, "unregister", Route::Unregister("".into())),
    ] {
        let path = format!("/v2/systemsharedmemory/{path}");
        assert_eq!(found(&method, &path).unwrap(), route, "{path}");
    }
    for path in [
        "register",
        "region/register",
        "region//status",
        "region/r",
        "region/r/x",
        "",
    ] {
        let path = format!("/v2/systemsharedmemory/{path}");
        assert!(found(&Method::POST, &path).is_err(), "{path}");
    }
    assert_eq!(
        found(&Method::GET, "/v2/models/m/trace/setting").unwrap(),
        trace
    );
    assert_eq!(found(&Method::POST, "/v2/trace/setting").unwrap(), trace);
    assert_eq!(
        found(&Method::GET, "/v2/cudasharedmemory/status").unwrap(),
        cuda()
    );
    let register = "/v2/cudasharedmemory/region/r/register";
    assert_eq!(found(&Method::POST, register).unwrap(), cuda());
    let logging = Route::Unsupported(UnsupportedCall::Logging);
    assert_eq!(found(&Method::POST, "/v2/logging").unwrap(), logging);
}

#[test]
fn the_calls_of_multi_model_containers_are_known() {
    for (method, path) in [
        (Method::POST, "/models"),
        (Method::GET, "/models"),
        (Method::GET, "/models/a"),
        (Method::DELETE, "/models/a"),
    ] {
        let expected = Route::Unsupported(UnsupportedCall::MultiModel);
        assert_eq!(found(&method, path).unwrap(), expected, "{method} {path}");
    }
    for path in [
        "/models/",
        "/models/a/",
        "/models//invoke",
        "/models/a/other",
    ] {
        assert!(found(&Method::GET, path).is_err(), "{path}");
    }
}
