//! Dashboard, rules and examples name metrics; each exists in the program that is said to have it. So the programs run:
//! the server answers a request, the controller works on a deployment with the rights of the chart's account.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::plane::{file, kubectl, namespace, plane, run, wait};
use crate::rendered::{of_kind, render};
use crate::root;

/// Ends with its owner.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The program of another package, as cargo builds it for these very tests.
fn program(name: &str) -> PathBuf {
    let mut arguments = vec!["build", "--quiet", "--bins", "--package", name];
    if !cfg!(debug_assertions) {
        arguments.push("--release");
    }
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(root())
        .status()
        .unwrap();
    assert!(status.success(), "cargo build -p {name}: {status}");
    // This test lies in the folder `deps` below that of programs.
    let folder = std::env::current_exe().unwrap();
    folder.ancestors().nth(2).unwrap().join(name)
}

/// One request on a connection of its own; the reply, head and all.
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

/// Metrics that a text names; recorded series have a colon in their names.
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
    // Prose of the dashboard names none; its uid and tags are no metric.
    texts.iter().flat_map(|text| named(text)).collect()
}

fn server_metrics() -> String {
    let model = root().join("examples/fraud.ubj");
    let mut child = Command::new(program("albacore-server"))
        .args(["--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", "--model"])
        .arg(format!("fraud={}", model.display()))
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut events = BufReader::new(child.stdout.take().unwrap()).lines();
    let _running = Running(child);
    let mut event = |name: &str| {
        let mut told = events.by_ref().map(|line| -> Value {
            let line = line.unwrap();
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("{line}"))
        });
        told.find(|event| event["event"] == name).unwrap()
    };
    let address = event("listening")["http"].as_str().unwrap().to_owned();
    event("ready");
    let request = std::fs::read_to_string(root().join("examples/fraud_request.json")).unwrap();
    let reply = call(&address, "POST /v2/models/fraud/infer", &request).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200"), "{reply}");
    call(&address, "GET /metrics", "").unwrap()
}

/// The arguments of the chart's controller, for this machine.
fn controller_arguments(kubeconfig: &Path, listen: &str) -> Vec<String> {
    let rendered = render(&[]);
    let deployment = of_kind(&rendered, "Deployment")[0];
    let container = &deployment["spec"]["template"]["spec"]["containers"][0];
    let arguments = container["args"].as_array().unwrap().iter();
    let here = |argument: &str| match argument {
        "--listen=0.0.0.0:9090" => format!("--listen={listen}"),
        other => other.to_owned(),
    };
    arguments
        .map(|argument| here(argument.as_str().unwrap()))
        .chain([format!("--kubeconfig={}", kubeconfig.display())])
        .collect()
}

const DEPLOYMENT: &str = "apiVersion: albacore.dev/v1alpha1\nkind: InferenceDeployment\n\
    metadata: {name: fraud, namespace: metrics}\n\
    spec: {replicas: 1, models: [{name: fraud, uri: 'file:///models/fraud.ubj'}]}\n";

/// Lets the controller work as the chart's account; its metrics.
fn controller_metrics() -> String {
    crate::rights::set_up(&[]);
    namespace("metrics");
    let account = plane().kubeconfig_of_account("albacore-system", "albacore-controller", None);
    let listen = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let listen = listen.to_string();
    let child = Command::new(program("albacore-controller"))
        .args(controller_arguments(&account.unwrap(), &listen))
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _running = Running(child);
    let deployment = file(DEPLOYMENT);
    kubectl(&["apply", "-f", deployment.path().to_str().unwrap()]);
    let mine = ["-n", "metrics", "-o", "name"];
    for kind in [
        "deployment/fraud",
        "service/fraud",
        "configmap/fraud",
        "serviceaccount/fraud",
        "networkpolicy/fraud",
        "poddisruptionbudget/fraud",
    ] {
        let arguments = [&["get", kind], &mine[..]].concat();
        wait(kind, || run("kubectl", &arguments).is_ok());
    }
    wait("a status", || {
        let status = [
            "get",
            "infd/fraud",
            "-n",
            "metrics",
            "-o",
            "jsonpath={.status.observedGeneration}",
        ];
        kubectl(&status) == "1"
    });
    let object = kubectl(&["get", "infd/fraud", "-n", "metrics", "-o", "json"]);
    let (health, message) = crate::health::health(&serde_json::from_str(&object).unwrap());
    assert_eq!(
        health, "Progressing",
        "no kubelet, no pod that serves: {message}"
    );
    wait("readiness", || {
        call(&listen, "GET /readyz", "").is_ok_and(|reply| reply.starts_with("HTTP/1.1 200"))
    });
    kubectl(&["delete", "infd", "fraud", "-n", "metrics"]);
    call(&listen, "GET /metrics", "").unwrap()
}

#[test]
fn every_metric_that_is_named_exists_and_the_charts_account_is_enough_for_the_controller() {
    let named = all_named();
    assert!(named.len() > 25, "{named:?}");
    let (server, controller) = (server_metrics(), controller_metrics());
    let missing: Vec<&String> = named
        .iter()
        .filter(|name| {
            let has = |text: &str| {
                text.contains(&format!("\n{name}{{")) || text.contains(&format!("\n{name} "))
            };
            !has(&server) && !has(&controller)
        })
        .collect();
    assert!(
        missing.is_empty(),
        "no program has {missing:?}\n{server}\n{controller}"
    );
    let refused: Vec<&str> = controller
        .lines()
        .filter(|line| line.contains("code=\"401\"") || line.contains("code=\"403\""))
        .collect();
    assert!(refused.is_empty(), "rights are missing: {refused:?}");
}
