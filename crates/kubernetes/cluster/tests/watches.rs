//! Tests of watches against a real API server that stores malformed objects, loses connections,
//! restarts and compacts old versions.
#![allow(clippy::unwrap_used, clippy::panic)] // tests fail by panicking

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use albacore_cluster::{
    ApiResource, Cluster, ConnectOptions, MetricsRegistry, ObjectChange, ObjectKey, ReadinessGates,
    ResourceExt as _, Scope, Shutdown, Watch, WatchOptions, serve,
};
use albacore_testbed::{ControlPlane, Options};
use kube_client::core::{NotUsed, Object};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// The type that the test expects; the API server accepts any value.
#[derive(Clone, Debug, Deserialize, PartialEq)]
struct WidgetSpec {
    size: u32,
}

type Widget = Object<WidgetSpec, NotUsed>;

const DEFINITION: &str = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.test.albacore.dev}
spec:
  group: test.albacore.dev
  names: {kind: Widget, plural: widgets}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
";

fn kind() -> ApiResource {
    ApiResource {
        group: "test.albacore.dev".to_owned(),
        version: "v1".to_owned(),
        api_version: "test.albacore.dev/v1".to_owned(),
        kind: "Widget".to_owned(),
        plural: "widgets".to_owned(),
    }
}

fn widget(name: &str, size: Value) -> Value {
    json!({
        "apiVersion": "test.albacore.dev/v1", "kind": "Widget",
        "metadata": {"name": name, "namespace": "default"}, "spec": {"size": size},
    })
}

/// A proxy to the API server whose connections can be cut.
struct Way {
    kubeconfig: PathBuf,
    is_open: watch::Sender<bool>,
}

impl Way {
    async fn to(kubeconfig: &Path, folder: &Path) -> Self {
        let text = std::fs::read_to_string(kubeconfig).unwrap();
        let server = text.split("https://").nth(1).unwrap();
        let server = server
            .split(|c: char| c.is_whitespace() || c == '"')
            .next()
            .unwrap();
        let server = server.to_owned();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let path = folder.join("way.yaml");
        std::fs::write(&path, text.replace(&server, &address)).unwrap();
        let (is_open, open) = watch::channel(true);
        tokio::spawn(async move {
            loop {
                let (mut near, _) = listener.accept().await.unwrap();
                let (mut open, server) = (open.clone(), server.clone());
                tokio::spawn(async move {
                    if !*open.borrow() {
                        return;
                    }
                    let Ok(mut far) = TcpStream::connect(&server).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                        _ = open.wait_for(|open| !*open) => {}
                    }
                });
            }
        });
        let kubeconfig = path;
        Self {
            kubeconfig,
            is_open,
        }
    }
}

/// The changes that a watch reported, by object.
#[derive(Clone, Default)]
struct ChangeLog(Arc<Mutex<BTreeMap<String, Vec<String>>>>);

impl ChangeLog {
    fn take(&self, change: ObjectChange<Widget>) {
        let (name, what) = match change {
            ObjectChange::Applied { new, .. } => (new.name_any(), new.spec.size.to_string()),
            ObjectChange::Deleted(old) => (old.name_any(), "gone".to_owned()),
            ObjectChange::Malformed(malformed) => {
                let name = malformed.regarding.name.unwrap();
                assert!(
                    malformed.error.starts_with("spec.size: invalid "),
                    "{}",
                    malformed.error
                );
                (name, "malformed".to_owned())
            }
        };
        self.0.lock().unwrap().entry(name).or_default().push(what);
    }

    fn of(&self, name: &str) -> Vec<String> {
        self.0
            .lock()
            .unwrap()
            .get(name)
            .cloned()
            .unwrap_or_default()
    }

    async fn wait_for(&self, name: &str, what: &[&str]) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while self.of(name) != what {
            let log = self.of(name);
            assert!(Instant::now() < deadline, "{name}: {log:?}, not {what:?}");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

struct Bench {
    plane: ControlPlane,
    folder: PathBuf,
}

impl Bench {
    fn start() -> Self {
        Self::with(&[])
    }

    /// Starts with additional flags for the API server.
    fn with(flags: &[&str]) -> Self {
        let options = Options {
            api_server: flags.iter().map(ToString::to_string).collect(),
            ..Options::default()
        };
        let mut plane = ControlPlane::start(&options).unwrap();
        let folder = plane.kubeconfig().parent().unwrap().to_path_buf();
        let definition = folder.join("widgets.yaml");
        std::fs::write(&definition, DEFINITION).unwrap();
        plane.serve_crds(&definition).unwrap();
        Self { plane, folder }
    }

    #[track_caller]
    fn kubectl(&self, arguments: &[&str]) {
        let output = self.plane.kubectl(arguments).unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}");
    }

    fn apply(&self, widgets: &[Value]) {
        let file = self.folder.join("apply.json");
        let list = json!({"apiVersion": "v1", "kind": "List", "items": widgets});
        std::fs::write(&file, list.to_string()).unwrap();
        self.kubectl(&["apply", "-f", file.to_str().unwrap()]);
    }

    fn resize(&self, name: &str, size: &str) {
        let patch = format!(r#"{{"spec":{{"size":{size}}}}}"#);
        self.kubectl(&["patch", "widget", name, "--type=merge", "-p", &patch]);
    }

    fn delete(&self, name: &str) {
        self.kubectl(&["delete", "widget", name]);
    }

    /// Number of lists of widgets by this crate so far.
    fn lists(&self) -> usize {
        let log = self.plane.audit_log().unwrap();
        let events = log
            .lines()
            .map(|line| serde_json::from_str::<Value>(line).unwrap());
        let is_ours = |event: &Value| {
            event["userAgent"] == "albacore-test"
                && event["verb"] == "list"
                && event["objectRef"]["resource"] == "widgets"
        };
        events.filter(is_ours).count()
    }
}

async fn connect(kubeconfig: &Path, metrics: &MetricsRegistry) -> Cluster {
    let options = ConnectOptions {
        kubeconfig: Some(kubeconfig.to_path_buf()),
        manager: "albacore-test",
        ..ConnectOptions::default()
    };
    Cluster::connect(&options, metrics).await.unwrap()
}

fn start_watch(
    cluster: &Cluster,
    scope: Scope,
    gates: &ReadinessGates,
    shutdown: &Shutdown,
) -> (Watch<Widget>, ChangeLog) {
    let log = ChangeLog::default();
    let recorder = log.clone();
    let mut options = WatchOptions::new("widgets", kind());
    options.scope = scope;
    let watch = cluster.watch(options, gates, shutdown, move |change| {
        recorder.take(change)
    });
    (watch, log)
}

/// The status line and the body of the response to `path` at `address`.
async fn fetch(address: std::net::SocketAddr, path: &str) -> (String, String) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).await.unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.lines().next().unwrap().to_owned();
    (status, body.to_owned())
}

/// A lost connection and a restart: the API server no longer has the version (410), so objects are
/// listed again. Objects deleted meanwhile are reported, recreated ones are reported as such,
/// unchanged ones are not reported again.
async fn forget_and_restart(bench: &mut Bench, way: &Way, log: &ChangeLog) {
    let lists = bench.lists();
    way.is_open.send_replace(false);
    bench.delete("healthy-04");
    bench.delete("healthy-05");
    bench.apply(&[widget("healthy-05", json!(6)), widget("late", json!(7))]);
    bench.resize("healthy-06", "\"huge\"");
    bench.plane.restart_api_server().unwrap();
    way.is_open.send_replace(true);
    log.wait_for("healthy-04", &["1", "gone"]).await;
    log.wait_for("healthy-05", &["1", "gone", "6"]).await;
    log.wait_for("healthy-06", &["1", "malformed"]).await;
    log.wait_for("late", &["7"]).await;
    let again = bench.lists() - lists;
    assert!((1..=3).contains(&again), "{again} lists");
    for n in 7..20 {
        let name = format!("healthy-{n:02}");
        assert_eq!(log.of(&name), ["1"], "{name} is as it was");
    }
    bench.resize("healthy-07", "8");
    log.wait_for("healthy-07", &["1", "8"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_survives_malformed_objects_lost_connections_and_restarts() {
    let mut bench = Bench::start();
    let healthy: Vec<String> = (0..20).map(|n| format!("healthy-{n:02}")).collect();
    let mut widgets: Vec<Value> = healthy.iter().map(|name| widget(name, json!(1))).collect();
    widgets.insert(7, widget("poison", json!("large")));
    bench.apply(&widgets);
    let way = Way::to(bench.plane.kubeconfig(), &bench.folder).await;
    let (gates, metrics, shutdown) = (
        ReadinessGates::default(),
        MetricsRegistry::new(),
        Shutdown::new(),
    );
    let local = "127.0.0.1:0".parse().unwrap();
    let address = serve(local, &gates, &metrics, &shutdown).await.unwrap();
    let early = gates.add("early", "the test");
    assert_eq!(
        fetch(address, "/readyz").await.0,
        "HTTP/1.1 503 Service Unavailable"
    );
    early.pass();
    let cluster = connect(&way.kubeconfig, &metrics).await;
    let (watch, log) = start_watch(&cluster, Scope::All, &gates, &shutdown);
    tokio::select! {
        () = watch.synced() => {}
        () = shutdown.triggered() => panic!("{:?}", shutdown.failure()),
    }
    assert_eq!(watch.select(|_| true).len(), 20);
    assert_eq!(log.of("poison"), ["malformed"]);
    let (status, body) = fetch(address, "/readyz").await;
    assert_eq!(status, "HTTP/1.1 200 OK");
    assert_eq!(body, "[+] early\n[+] watch widgets\n");
    let kept = watch.get(&ObjectKey::new("default", "healthy-03")).unwrap();
    assert!(kept.managed_fields().is_empty() && kept.annotations().is_empty());

    // Objects next to a malformed one are watched; a valid one becomes malformed and is corrected;
    // the malformed one is corrected.
    bench.resize("healthy-00", "2");
    bench.resize("healthy-01", "-1");
    log.wait_for("healthy-00", &["1", "2"]).await;
    log.wait_for("healthy-01", &["1", "malformed"]).await;
    assert!(
        watch
            .get(&ObjectKey::new("default", "healthy-01"))
            .is_none()
    );
    bench.resize("healthy-01", "3");
    bench.resize("poison", "4");
    log.wait_for("healthy-01", &["1", "malformed", "3"]).await;
    log.wait_for("poison", &["malformed", "4"]).await;

    // A lost connection: changes made meanwhile are reported without a new list.
    let lists = bench.lists();
    way.is_open.send_replace(false);
    bench.resize("healthy-02", "5");
    bench.delete("healthy-03");
    way.is_open.send_replace(true);
    log.wait_for("healthy-02", &["1", "5"]).await;
    log.wait_for("healthy-03", &["1", "gone"]).await;
    assert_eq!(bench.lists(), lists, "a watch is taken up where it ended");

    forget_and_restart(&mut bench, &way, &log).await;
    assert_eq!(watch.select(|widget| widget.spec.size == 1).len(), 12);
    let text = fetch(address, "/metrics").await.1;
    assert!(
        text.contains("albacore_watched_objects{name=\"widgets\"} 19"),
        "{text}"
    );
    assert!(
        text.contains("albacore_watched_malformed_objects{name=\"widgets\"} 1"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_the_wanted_namespaces_are_watched() {
    let bench = Bench::start();
    for namespace in ["a", "b", "c"] {
        bench.kubectl(&["create", "namespace", namespace]);
        let mut widget = widget(&format!("in-{namespace}"), json!(1));
        widget["metadata"]["namespace"] = json!(namespace);
        bench.apply(&[widget]);
    }
    let (gates, shutdown) = (ReadinessGates::default(), Shutdown::new());
    let cluster = connect(bench.plane.kubeconfig(), &MetricsRegistry::new()).await;
    let scope = Scope::Namespaces(vec!["a".to_owned(), "b".to_owned()]);
    let (watch, log) = start_watch(&cluster, scope, &gates, &shutdown);
    watch.synced().await;
    assert!(gates.is_ready());
    assert_eq!(watch.select(|_| true).len(), 2);
    bench.kubectl(&["delete", "widget", "in-b", "-n", "b"]);
    log.wait_for("in-b", &["1", "gone"]).await;
    assert_eq!(log.of("in-a"), ["1"]);
    assert!(log.of("in-c").is_empty());
    // The gate names the missing permission to list.
    let stranger = bench.plane.kubeconfig_of("stranger", None).unwrap();
    let stranger = connect(&stranger, &MetricsRegistry::new()).await;
    let gates = ReadinessGates::default();
    let (watch, _) = start_watch(&stranger, Scope::All, &gates, &shutdown);
    let deadline = Instant::now() + Duration::from_secs(60);
    while !gates
        .text()
        .contains("widgets.test.albacore.dev is forbidden")
    {
        assert!(Instant::now() < deadline, "{}", gates.text());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(!watch.is_synced());
    shutdown.trigger();
}

/// Without a watch cache the API server reads watches from etcd, and compacted versions are gone
/// (410) for a watch that was interrupted meanwhile: a new list reports the deletions.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_compacted_version_makes_a_watch_list_again() {
    let bench = Bench::with(&["--watch-cache=false", "--etcd-compaction-interval=1s"]);
    bench.apply(&[widget("kept", json!(1)), widget("lost", json!(1))]);
    let way = Way::to(bench.plane.kubeconfig(), &bench.folder).await;
    let (gates, metrics, shutdown) = (
        ReadinessGates::default(),
        MetricsRegistry::new(),
        Shutdown::new(),
    );
    let cluster = connect(&way.kubeconfig, &metrics).await;
    let (watch, log) = start_watch(&cluster, Scope::All, &gates, &shutdown);
    watch.synced().await;
    let lists = bench.lists();
    assert!(watch.get(&ObjectKey::new("default", "kept")).is_some());

    way.is_open.send_replace(false);
    bench.delete("lost");
    bench.resize("kept", "2");
    // Later than the version from which the watch resumes: when this one is compacted, that one is,
    // too.
    let get = [
        "get",
        "widget",
        "kept",
        "--output=jsonpath={.metadata.resourceVersion}",
    ];
    let version = bench.plane.kubectl(&get).unwrap().stdout;
    let version = String::from_utf8_lossy(&version).into_owned();
    assert!(version.parse::<u64>().is_ok(), "{version}");
    let again = format!(
        "/apis/test.albacore.dev/v1/widgets?watch=1&timeoutSeconds=1&resourceVersion={version}"
    );
    let deadline = Instant::now() + Duration::from_secs(90);
    // Each second etcd compacts versions older than a second, and only if objects were written
    // meanwhile.
    for size in 3.. {
        let asked = bench.plane.kubectl(&["get", "--raw", &again]).unwrap();
        let said = String::from_utf8_lossy(&asked.stdout).into_owned();
        if said.contains("\"code\":410") {
            break;
        }
        assert!(Instant::now() < deadline, "nothing is compacted: {said}");
        bench.resize("kept", &size.to_string());
    }
    bench.resize("kept", "1000000");
    way.is_open.send_replace(true);
    log.wait_for("lost", &["1", "gone"]).await;
    log.wait_for("kept", &["1", "1000000"]).await;
    let again = bench.lists() - lists;
    assert!((1..=3).contains(&again), "{again} lists");
    // The watch continues.
    bench.resize("kept", "7");
    log.wait_for("kept", &["1", "1000000", "7"]).await;
    shutdown.trigger();
}

#[tokio::test]
async fn a_watch_that_is_forbidden_asks_less_and_less_often() {
    let plane = ControlPlane::start(&Options::default()).unwrap();
    let options = ConnectOptions {
        kubeconfig: Some(plane.kubeconfig_of("nobody", None).unwrap()),
        manager: "nobody",
        ..ConnectOptions::default()
    };
    let metrics = MetricsRegistry::new();
    let cluster = Cluster::connect(&options, &metrics).await.unwrap();
    let shutdown = Shutdown::new();
    let pods = ApiResource::erase::<k8s_openapi::api::core::v1::Pod>(&());
    let mut wanted = WatchOptions::new("pods", pods);
    wanted.fields = "spec.nodeName=a".to_owned();
    let watch: Watch<k8s_openapi::api::core::v1::Pod> =
        cluster.watch(wanted, &ReadinessGates::default(), &shutdown, |_| {});
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(!watch.is_synced());
    let log = plane.audit_log().unwrap();
    let asked = log
        .lines()
        .filter(|line| line.contains("\"nobody\""))
        .count();
    // 0.2, 0.4, 0.8, 1.6, 3.2 s apart, each up to half longer: at most six by then.
    assert!((3..=7).contains(&asked), "{asked} requests");
    assert!(
        log.contains("fieldSelector=spec.nodeName%3Da"),
        "asked for this node's alone"
    );
    shutdown.trigger();
}
