//! Tests of reads, writes, events and the rate limit against a real API server.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use albacore_cluster::{
    ApiResource, Cluster, ClusterError, ConnectOptions, ErrorClass, MetricsRegistry, ObjectEvent,
    ObjectKey, Resource as _, ResourceExt as _, Severity, Shutdown,
};
use albacore_testbed::{ControlPlane, Options};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

static PLANE: LazyLock<ControlPlane> =
    LazyLock::new(|| ControlPlane::start(&Options::default()).unwrap());

async fn connect_as(kubeconfig: &Path, metrics: &MetricsRegistry) -> Cluster {
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig.to_path_buf()),
        manager: "albacore-test",
        ..ConnectOptions::default()
    };
    Cluster::connect(&options, metrics).await.unwrap()
}

async fn connect() -> Cluster {
    connect_as(PLANE.kubeconfig(), &MetricsRegistry::new()).await
}

#[track_caller]
fn kubectl(arguments: &[&str]) -> String {
    let output = PLANE.kubectl(arguments).unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {text}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn map_kind() -> ApiResource {
    ApiResource::erase::<ConfigMap>(&())
}

fn map(name: &str, data: Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": name, "namespace": "default"}, "data": data,
    })
}

fn deployment(name: &str, more: Value) -> Value {
    let labels = json!({"app": name});
    let container = json!({"name": "server", "image": "x"});
    let mut spec = json!({
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [container]}},
    });
    for (field, value) in more.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": name, "namespace": "default"}, "spec": spec,
    })
}

#[tokio::test]
async fn an_apply_changes_owned_fields_only() {
    let cluster = connect().await;
    let kind = ApiResource::erase::<Deployment>(&());
    let key = ObjectKey::new("default", "shared-fields");
    let ours = deployment(
        "shared-fields",
        json!({"replicas": 2, "minReadySeconds": 5}),
    );
    cluster.apply(&kind, &ours).await.unwrap();
    // Another manager takes over the number of replicas and adds an annotation.
    let theirs = r#"{"metadata":{"annotations":{"theirs":"1"}},"spec":{"replicas":7}}"#;
    let manager = "--field-manager=theirs";
    kubectl(&[
        "patch",
        "deployment",
        "shared-fields",
        "-p",
        theirs,
        manager,
    ]);
    // Without the number of replicas the field is no longer owned and keeps the other manager's
    // value; other fields that are no longer applied are removed.
    let ours = deployment("shared-fields", json!({}));
    let applied = cluster.apply(&kind, &ours).await.unwrap();
    assert_eq!(applied.data["spec"]["replicas"], 7);
    assert_eq!(applied.annotations()["theirs"], "1");
    assert_eq!(applied.data["spec"]["minReadySeconds"], Value::Null);
    // If applied again, it is owned again; a repeated apply changes nothing.
    let ours = deployment("shared-fields", json!({"replicas": 3}));
    let first = cluster.apply(&kind, &ours).await.unwrap();
    assert_eq!(first.data["spec"]["replicas"], 3);
    let again = cluster.apply(&kind, &ours).await.unwrap();
    assert_eq!(first.resource_version(), again.resource_version());
    // Status is a separate part.
    let condition = json!({
        "type": "Available", "status": "True", "reason": "Test", "message": "",
        "lastUpdateTime": "2026-01-01T00:00:00Z", "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    let status = json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "shared-fields", "namespace": "default"},
        "status": {"conditions": [condition]},
    });
    let reported = cluster.apply_status(&kind, &status).await.unwrap();
    assert_eq!(reported.data["status"]["conditions"][0]["reason"], "Test");
    let read = cluster.get(&kind, &key).await.unwrap().unwrap();
    assert_eq!(read.data["spec"]["replicas"], 3);
}

#[tokio::test]
async fn rejections_have_a_class_and_name_the_field() {
    let cluster = connect().await;
    let kind = ApiResource::erase::<Deployment>(&());
    let unknown = deployment("refused", json!({"replicants": 2}));
    let error = cluster.apply(&kind, &unknown).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
    assert!(error.to_string().contains(".spec.replicants"), "{error}");
    let wrong = deployment("refused", json!({"replicas": -1}));
    let error = cluster.apply(&kind, &wrong).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Invalid, "{error}");
    assert_eq!(error.fields(), ["spec.replicas"]);
    let mut elsewhere = map("x", json!({}));
    elsewhere["metadata"]["namespace"] = json!("nowhere");
    let error = cluster.apply(&map_kind(), &elsewhere).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound, "{error}");
    let mut nameless = map("x", json!({}));
    nameless["metadata"]["name"] = Value::Null;
    let error = cluster.apply(&map_kind(), &nameless).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Bug, "{error}");
    let nobody = PLANE.kubeconfig_of("nobody", None).unwrap();
    let stranger = connect_as(&nobody, &MetricsRegistry::new()).await;
    let error = stranger
        .apply(&map_kind(), &map("x", json!({})))
        .await
        .unwrap_err();
    assert_eq!(error.class(), ErrorClass::Forbidden, "{error}");
    let nowhere = ConnectOptions {
        kubeconfig: Some("/nowhere/config".into()),
        ..ConnectOptions::default()
    };
    let error = Cluster::connect(&nowhere, &MetricsRegistry::new())
        .await
        .unwrap_err();
    assert!(error.to_string().contains("/nowhere/config"), "{error}");
}

#[tokio::test]
async fn only_the_object_that_is_meant_is_changed_or_deleted() {
    let cluster = connect().await;
    let kind = map_kind();
    let key = ObjectKey::new("default", "meant");
    assert!(cluster.get(&kind, &key).await.unwrap().is_none());
    let mut meant = map("meant", json!({"a": "1"}));
    let uid = cluster.apply(&kind, &meant).await.unwrap().uid().unwrap();
    let other = "00000000-0000-0000-0000-000000000000";
    meant["metadata"]["uid"] = json!(other);
    let error = cluster.apply(&kind, &meant).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict, "{error}");
    let error = cluster.delete(&kind, &key, other).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict, "{error}");
    assert!(cluster.delete(&kind, &key, &uid).await.unwrap());
    assert!(!cluster.delete(&kind, &key, &uid).await.unwrap());
    meant["metadata"]["uid"] = json!(uid);
    let error = cluster.apply(&kind, &meant).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::Conflict, "{error}");
}

#[tokio::test]
async fn kinds_are_found_and_lists_come_in_pages() {
    let cluster = connect().await;
    let found = cluster
        .discover("policy/v1", "PodDisruptionBudget")
        .await
        .unwrap();
    assert_eq!(found.unwrap().plural, "poddisruptionbudgets");
    let found = cluster.discover("v1", "ConfigMap").await.unwrap();
    assert_eq!(found, Some(map_kind()));
    for (version, kind) in [
        ("monitoring.coreos.com/v1", "ServiceMonitor"),
        ("policy/v1", "PodDisruption"),
        ("policy/v7", "PodDisruptionBudget"),
    ] {
        assert_eq!(cluster.discover(version, kind).await.unwrap(), None);
    }
    kubectl(&["create", "namespace", "pages"]);
    let items: Vec<Value> = (0..130)
        .map(|n| {
            let mut map = map(&format!("page-{n}"), json!({}));
            map["metadata"]["namespace"] = json!("pages");
            map["metadata"]["labels"] = json!({"parity": if n % 2 == 0 { "even" } else { "odd" }});
            map
        })
        .collect();
    let folder = std::env::temp_dir().join(format!("albacore-pages-{}.json", std::process::id()));
    let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
    std::fs::write(&folder, list.to_string()).unwrap();
    kubectl(&["create", "-f", folder.to_str().unwrap()]);
    std::fs::remove_file(&folder).unwrap();
    let count = async |labels| {
        let list = cluster.list(&map_kind(), Some("pages"), labels).await;
        list.unwrap().len()
    };
    assert_eq!(count("").await, 130);
    assert_eq!(count("parity=even").await, 65);
}

#[tokio::test]
async fn a_spec_is_merged_only_into_the_object_that_was_read() {
    let cluster = connect().await;
    let kind = ApiResource::erase::<Deployment>(&());
    let key = ObjectKey::new("default", "merged");
    let object = deployment("merged", json!({"replicas": 2, "minReadySeconds": 5}));
    let read = cluster.apply(&kind, &object).await.unwrap();
    let more = json!({"replicas": 7});
    cluster.try_merge_spec(&kind, &key, &more).await.unwrap();
    let unknown = json!({"replicants": 7});
    let refused = cluster.try_merge_spec(&kind, &key, &unknown).await;
    assert_eq!(refused.unwrap_err().class(), ErrorClass::Invalid);
    let same = cluster.get(&kind, &key).await.unwrap().unwrap();
    assert_eq!(same.resource_version(), read.resource_version());
    let patch = json!({"replicas": 3, "minReadySeconds": null});
    let merged = cluster.merge_spec(&kind, &read, &patch).await.unwrap();
    assert_eq!(merged.data["spec"]["replicas"], 3);
    assert_eq!(merged.data["spec"]["minReadySeconds"], Value::Null);
    let late = cluster.merge_spec(&kind, &read, &more).await.unwrap_err();
    assert_eq!(late.class(), ErrorClass::Conflict, "{late}");
}

/// Times (since the epoch) at which requests of `user` arrived at the API server, in order.
fn arrivals(user: &str) -> Vec<Duration> {
    let log = PLANE.audit_log().unwrap();
    let events = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut arrivals: Vec<Duration> = events
        .filter(|event| event["user"]["username"] == user)
        .map(|event| {
            let text = event["requestReceivedTimestamp"].as_str().unwrap();
            let micros = text.parse::<Timestamp>().unwrap().as_microsecond();
            Duration::from_micros(micros.try_into().unwrap())
        })
        .collect();
    arrivals.sort_unstable();
    arrivals
}

#[tokio::test]
async fn the_request_rate_limit_is_enforced() {
    let config = PLANE
        .kubeconfig_of("spender", Some("system:masters"))
        .unwrap();
    let metrics = MetricsRegistry::new();
    let cluster = connect_as(&config, &metrics).await;
    let start = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let mut requests = tokio::task::JoinSet::new();
    for n in 0..250 {
        let cluster = cluster.clone();
        let key = ObjectKey::new("default", format!("spent-{n}"));
        requests.spawn(async move { cluster.get(&map_kind(), &key).await.unwrap() });
    }
    requests.join_all().await;
    let arrivals = arrivals("spender");
    assert_eq!(arrivals.len(), 250);
    for (before, &arrival) in arrivals.iter().enumerate() {
        // A burst of 100, then one each 20 ms; the log has microseconds. A request may be late, but
        // never early.
        let due = Duration::from_millis(20) * u32::try_from(before.saturating_sub(99)).unwrap();
        let passed = arrival - start + Duration::from_millis(1);
        assert!(passed >= due, "request {before} came after {passed:?}");
    }
    let text = metrics.text().unwrap();
    let line = r#"albacore_kube_requests_total{verb="get",resource="configmaps",code="404"} 250"#;
    assert!(text.contains(line), "{text}");
}

/// A server that answers each request with the next of `answers` and records when it arrived.
async fn scripted(
    answers: &'static [&'static str],
) -> (String, Arc<std::sync::Mutex<Vec<Instant>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let arrivals: Arc<std::sync::Mutex<Vec<Instant>>> = Arc::default();
    let noted = arrivals.clone();
    tokio::spawn(async move {
        for answer in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            noted.lock().unwrap().push(Instant::now());
            stream.write_all(answer.as_bytes()).await.unwrap();
        }
    });
    (address, arrivals)
}

/// A real API server requires a pause of one second at unpredictable times, so this one is
/// scripted; `crates/kubernetes/controller/tests/throttled.rs` tests a real one.
#[tokio::test]
async fn all_requests_honor_retry_after() {
    let (address, arrivals) = scripted(&[
        "HTTP/1.1 429 Too Many Requests\r\nRetry-After: 2\r\nContent-Length: 4\r\nConnection: close\r\n\r\nslow",
        "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n{\"code\":404,\"reason\":\"NotFound\"}",
    ])
    .await;
    let file = std::env::temp_dir().join(format!("albacore-scripted-{}.yaml", std::process::id()));
    let config = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         clusters: [{{name: c, cluster: {{server: '{address}'}}}}]\n\
         contexts: [{{name: c, context: {{cluster: c, user: u}}}}]\nusers: [{{name: u, user: {{}}}}]\n"
    );
    std::fs::write(&file, config).unwrap();
    let cluster = connect_as(&file, &MetricsRegistry::new()).await;
    std::fs::remove_file(&file).unwrap();
    let key = ObjectKey::new("default", "x");
    let error = cluster.get(&map_kind(), &key).await.unwrap_err();
    let ErrorClass::Throttled(after) = error.class() else {
        panic!("{error}")
    };
    assert!((1.5..=2.0).contains(&after.as_secs_f64()), "{after:?}");
    assert!(cluster.get(&map_kind(), &key).await.unwrap().is_none());
    let arrivals = arrivals.lock().unwrap();
    assert!(arrivals[1] - arrivals[0] >= Duration::from_millis(1990));
}

#[tokio::test]
async fn a_missing_response_is_a_transient_error() {
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = silent.local_addr().unwrap();
    drop(silent);
    let text = std::fs::read_to_string(PLANE.kubeconfig()).unwrap();
    let server = text.split("https://").nth(1).unwrap();
    let server = server
        .split(|c: char| c.is_whitespace() || c == '"')
        .next()
        .unwrap();
    let file = std::env::temp_dir().join(format!("albacore-nobody-{}.yaml", std::process::id()));
    std::fs::write(&file, text.replace(server, &address.to_string())).unwrap();
    let cluster = connect_as(&file, &MetricsRegistry::new()).await;
    std::fs::remove_file(&file).unwrap();
    let error = cluster
        .get(&map_kind(), &ObjectKey::new("default", "x"))
        .await
        .unwrap_err();
    assert!(
        matches!(error, ClusterError::NoResponse { .. }),
        "{error:?}"
    );
    assert_eq!(error.class(), ErrorClass::Transient);
}

#[tokio::test]
async fn events_are_written_once_and_counted() {
    let cluster = connect().await;
    let shutdown = Shutdown::new();
    let events = cluster.events(&shutdown);
    let subject = cluster
        .apply(&map_kind(), &map("eventful", json!({})))
        .await
        .unwrap();
    let subject: ConfigMap = subject.try_parse().unwrap();
    let mut regarding = subject.object_ref(&());
    regarding.kind = Some("ConfigMap".to_owned());
    for _ in 0..20 {
        events.record(ObjectEvent {
            regarding: regarding.clone(),
            severity: Severity::Warning,
            reason: "Broken",
            action: "Test",
            note: "\u{e9}".repeat(2000),
        });
    }
    events.record(ObjectEvent {
        regarding,
        severity: Severity::Normal,
        reason: "Mended",
        action: "Test",
        note: "fine again".to_owned(),
    });
    let deadline = Instant::now() + Duration::from_secs(60);
    let found = loop {
        let text = kubectl(&["get", "events.events.k8s.io", "-o", "json"]);
        let list: Value = serde_json::from_str(&text).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        let ours = items.filter(|event| event["regarding"]["name"] == "eventful");
        let found: BTreeMap<String, Value> = ours
            .map(|event| (event["reason"].as_str().unwrap().to_owned(), event.clone()))
            .collect();
        if found
            .get("Broken")
            .is_some_and(|event| event["series"]["count"] == 20)
        {
            break found;
        }
        assert!(Instant::now() < deadline, "{found:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    };
    assert_eq!(found.len(), 2, "one object for each reason: {found:#?}");
    assert_eq!(found["Broken"]["type"], "Warning");
    assert_eq!(found["Broken"]["note"].as_str().unwrap().len(), 1000);
    assert_eq!(found["Mended"]["note"], "fine again");
    let described = kubectl(&["describe", "configmap", "eventful"]);
    assert!(
        described.contains("Broken") && described.contains("Mended"),
        "{described}"
    );
}

#[tokio::test]
async fn a_program_that_stops_writes_its_recorded_events() {
    let cluster = connect().await;
    let shutdown = Shutdown::new();
    let events = cluster.events(&shutdown);
    let subject = cluster
        .apply(&map_kind(), &map("stopping", json!({})))
        .await
        .unwrap();
    let subject: ConfigMap = subject.try_parse().unwrap();
    let tell = |note: &str| {
        events.record(ObjectEvent {
            regarding: subject.object_ref(&()),
            severity: Severity::Normal,
            reason: "Stopping",
            action: "Test",
            note: note.to_owned(),
        });
    };
    for n in 0..20 {
        tell(&format!("event {n}"));
    }
    shutdown.trigger();
    // Running tasks continue to record.
    (0..3).for_each(|_| tell("event 19"));
    events.flush().await;
    let text = kubectl(&["get", "events.events.k8s.io", "-o", "json"]);
    let list: Value = serde_json::from_str(&text).unwrap();
    let items = list["items"].as_array().unwrap().iter();
    let ours = items.filter(|event| event["reason"] == "Stopping");
    let ours: BTreeMap<&str, &Value> = ours.map(|e| (e["note"].as_str().unwrap(), e)).collect();
    assert_eq!(ours.len(), 20, "{ours:#?}");
    assert_eq!(ours["event 19"]["series"]["count"], 4);
}
