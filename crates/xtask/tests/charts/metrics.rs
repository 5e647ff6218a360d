//! Every metric used in dashboard, rules and examples exists in the program that is said to export
//! it. For this, the programs are run: the server answers a request, and controller and agent work
//! with the permissions of the chart's accounts.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use albacore_testbed::product;
use serde_json::Value;

use crate::plane::{apply, file, kubectl, namespace, plane, run, wait};
use crate::rendered::{of_kind, render};
use crate::root;

/// A process that is killed on drop.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends one request on its own connection; returns the whole reply including its head.
fn call(address: &str, head: &str, body: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    write!(
        stream,
        "{head} HTTP/1.1\r\nHost: test\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply)?;
    Ok(reply)
}

/// Names of metrics in a text; recorded series contain a colon.
fn named(text: &str) -> BTreeSet<String> {
    let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    text.split(|c| !is_name(c))
        .filter(|word| word.starts_with("albacore_"))
        .map(str::to_owned)
        .collect()
}

fn all_named() -> BTreeSet<String> {
    let files = [
        "manifests/monitoring/dashboard.json",
        "manifests/monitoring/rules.yaml",
        "manifests/examples/autoscaling/keda.yaml",
        "manifests/examples/autoscaling/hpa-load-factor.yaml",
    ];
    let texts = files.map(|file| std::fs::read_to_string(root().join(file)).unwrap());
    // Descriptions in the dashboard contain no metrics; its uid and tags do not match.
    texts.iter().flat_map(|text| named(text)).collect()
}

fn server_metrics() -> String {
    let model = root().join("examples/fraud.ubj");
    let mut child = Command::new(product("albacore-server").unwrap())
        .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--model"])
        .arg(format!("fraud={}", model.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
    let _running = Running(child);
    let mut event = |name: &str| {
        let mut lines = events.by_ref().map(|line| -> Value {
            let line = line.unwrap();
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
        });
        lines.find(|event| event["event"] == name).unwrap()
    };
    let address = event("listening")["http"].as_str().unwrap().to_owned();
    event("ready");
    let request = std::fs::read_to_string(root().join("examples/fraud_request.json")).unwrap();
    let reply = call(&address, "POST /v2/models/fraud/infer", &request).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    call(&address, "GET /metrics", "").unwrap()
}

/// The chart's controller with these values, run with the arguments and as the account defined by
/// the chart.
struct Controller {
    _running: Running,
    listen: String,
}

impl Controller {
    fn start(values: &[&str]) -> Self {
        crate::rights::set_up(values);
        let rendered = render(values);
        let pod = &of_kind(&rendered, "Deployment")[0]["spec"]["template"]["spec"];
        let account = pod["serviceAccountName"].as_str().unwrap();
        let account = plane().kubeconfig_of_account("albacore-system", account, None);
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let listen = free.local_addr().unwrap().to_string();
        drop(free);
        let arguments = pod["containers"][0]["args"].as_array().unwrap().iter();
        let here = |argument: &str| match argument {
            "--listen=[::]:9090" => format!("--listen={listen}"),
            other => other.to_owned(),
        };
        let child = Command::new(product("albacore-controller").unwrap())
            .args(arguments.map(|argument| here(argument.as_str().unwrap())))
            .arg("--kubeconfig")
            .arg(account.unwrap())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let _running = Running(child);
        Self { _running, listen }
    }

    /// Lets it reconcile a deployment in `namespace` and its deletion; returns its metrics.
    fn work_in(&self, namespace: &str) -> String {
        let deployment = file(&format!(
            "apiVersion: albacore.dev/v1beta1\nkind: InferenceDeployment\n\
             metadata: {{name: fraud, namespace: {namespace}}}\n\
             spec: {{replicas: 1, models: [{{name: fraud, uri: 'file:///models/fraud.ubj'}}]}}\n"
        ));
        apply(&deployment);
        let get = |what: &str, output: &str| {
            let arguments = ["get", what, "--namespace", namespace, "--output", output];
            run("kubectl", &arguments)
        };
        for kind in CHILDREN {
            wait(kind, || get(&format!("{kind}/fraud"), "name").is_ok());
        }
        let observed = "jsonpath={.status.observedGeneration}";
        wait("a status", || get("infd/fraud", observed).unwrap() == "1");
        let object = get("infd/fraud", "json").unwrap();
        let (health, message) = crate::health::health(&serde_json::from_str(&object).unwrap());
        assert_eq!(
            health, "Progressing",
            "no kubelet, no pod that serves: {message}"
        );
        let is_event = |text: &str| text.contains("albacore-controller");
        wait("an event", || {
            get("events.events.k8s.io", "yaml").is_ok_and(|e| is_event(&e))
        });
        wait("readiness", || {
            call(&self.listen, "GET /readyz", "")
                .is_ok_and(|reply| reply.starts_with("HTTP/1.1 200"))
        });
        kubectl(&["delete", "infd", "fraud", "--namespace", namespace]);
        let metrics = call(&self.listen, "GET /metrics", "").unwrap();
        let is_refused =
            |line: &&str| line.contains("code=\"401\"") || line.contains("code=\"403\"");
        let refused: Vec<&str> = metrics.lines().filter(is_refused).collect();
        assert!(refused.is_empty(), "rights are missing: {refused:?}");
        metrics
    }
}

const CHILDREN: [&str; 7] = [
    "deployment",
    "service",
    "configmap",
    "serviceaccount",
    "networkpolicy",
    "poddisruptionbudget",
    "servicemonitor",
];

/// Runs the controller with permissions for some namespaces, then for all namespaces; returns its
/// metrics.
fn controller_metrics() -> String {
    crate::cluster::serve_prometheus_kinds();
    for name in ["metrics-1", "metrics-2", "metrics-3"] {
        namespace(name);
    }
    // One after another: two controllers with different leases would reconcile the same objects.
    let namespaced = Controller::start(&[
        "--set",
        "controller.watchNamespaces={metrics-1,metrics-2}",
        "--set",
        "fullnameOverride=walled-metrics",
    ]);
    for name in ["metrics-1", "metrics-2"] {
        namespaced.work_in(name);
    }
    drop(namespaced);
    Controller::start(&[]).work_in("metrics-3")
}

/// Runs an observing agent with the permissions of the chart's account, and albacore-params fed by
/// it; returns the metrics of both, as served by albacore-params.
fn node_metrics() -> String {
    crate::admission::set_up();
    let account = crate::admission::agent_on("metrics-node");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    // There is no kubelet that creates cgroups, so the agent is degraded and reports it.
    std::fs::create_dir(path("cgroup")).unwrap();
    let start = |name: &str, arguments: &[&str]| {
        let mut command = Command::new(product(name).unwrap());
        command.args(["--feed", &path("feed")]).args(arguments);
        Running(command.stdout(Stdio::null()).spawn().unwrap())
    };
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let listen = free.local_addr().unwrap().to_string();
    drop(free);
    let _agent = start(
        "albacore-agent",
        &[
            "--node-name=metrics-node",
            "--enforcement=Observe",
            "--kubeconfig",
            account.to_str().unwrap(),
            "--cgroup",
            &path("cgroup"),
            "--heartbeat",
            &path("heartbeat"),
        ],
    );
    let _params = start(
        "albacore-params",
        &["--grpc", "127.0.0.1:0", "--listen", &listen],
    );
    let metrics = || call(&listen, "GET /metrics", "").unwrap_or_default();
    wait("what the agent counts", || {
        metrics().contains("\nalbacore_agent_degraded{") && metrics().contains("_feed_fresh 1")
    });
    wait("the report of the node", || {
        run("kubectl", &["get", "nodeplacement", "metrics-node"]).is_ok()
    });
    let metrics = metrics();
    let is_refused = |line: &&str| line.contains("code=\"401\"") || line.contains("code=\"403\"");
    let refused: Vec<&str> = metrics.lines().filter(is_refused).collect();
    assert!(refused.is_empty(), "rights are missing: {refused:?}");
    metrics
}

#[test]
fn every_metric_that_is_named_exists_and_the_charts_accounts_are_enough() {
    let named = all_named();
    assert!(named.len() > 25, "{named:?}");
    let (server, controller, node) = (server_metrics(), controller_metrics(), node_metrics());
    let is_missing = |name: &&String| {
        let samples = [format!("\n{name}{{"), format!("\n{name} ")];
        let has = |text: &str| samples.iter().any(|sample| text.contains(sample));
        !has(&server) && !has(&controller) && !has(&node)
    };
    let missing: Vec<&String> = named.iter().filter(is_missing).collect();
    assert!(
        missing.is_empty(),
        "no program has {missing:?}\n{server}\n{controller}\n{node}"
    );
    let reference = root().join("docs/reference/metrics.md");
    let reference = std::fs::read_to_string(reference).unwrap();
    let pages = [&server, &controller, &node];
    let rows = pages.map(|page| albacore_xtask::docs::missing_rows(&reference, page).concat());
    assert!(
        rows.concat().is_empty(),
        "docs/reference/metrics.md lacks these rows:\n{}",
        rows.concat()
    );
}
