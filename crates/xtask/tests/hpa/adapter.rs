//! A metrics adapter: serves the `/metrics` of pods as `custom.metrics.k8s.io/v1beta2`.
//!
//! It does the same as an adapter for Prometheus with the rule "newest sample of each pod", but
//! without Prometheus: it lists the pods of the HPA's selector, reads `/metrics` of each and
//! answers. TLS with a client certificate, which must be the aggregator's; the API server has
//! authenticated and authorized the client.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use albacore_load::get;
use albacore_testbed::Node;
use k8s_openapi::jiff::Timestamp;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

/// The only metric served.
const METRIC: &str = "albacore_load_factor";

/// Root path of the API group, below which pods are queried.
const ROOT: &str = "/apis/custom.metrics.k8s.io/v1beta2";

/// Longest request head.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Pause between two checks for a connection or for the end of the test.
const ACCEPT_PERIOD: Duration = Duration::from_millis(5);

/// Report of a pod for the last minute.
#[derive(Clone, Debug)]
pub(crate) struct PodLoad {
    pub(crate) pod: String,
    pub(crate) factor: f64,
    pub(crate) idle_share: f64,
    pub(crate) requests: u64,
    /// Requests that were late, shed or failed.
    pub(crate) bad: u64,
}

/// An answer to the HPA.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) at: Instant,
    pub(crate) pods: Vec<PodLoad>,
}

/// The adapter, which answers while [`Adapter::run`] runs.
pub(crate) struct Adapter<'a> {
    node: &'a Node,
    listener: TcpListener,
    config: Arc<ServerConfig>,
    answers: Mutex<Vec<Answer>>,
}

impl<'a> Adapter<'a> {
    /// Listens in the node's network as the Service `host`.
    pub(crate) fn listen(node: &'a Node, host: &str) -> Self {
        let address = SocketAddr::from((node.address(), 0));
        let listener = node.within(|| TcpListener::bind(address)).unwrap().unwrap();
        listener.set_nonblocking(true).unwrap();
        let authority = node.plane().authority();
        let own = authority.server("metrics-adapter", &[host]).unwrap();
        let mut roots = RootCertStore::empty();
        let root = CertificateDer::from_pem_slice(authority.certificate().as_bytes()).unwrap();
        roots.add(root).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let clients =
            WebPkiClientVerifier::builder_with_provider(roots.into(), Arc::clone(&provider));
        let clients = clients.build().unwrap();
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_client_cert_verifier(clients)
            .with_single_cert(
                vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()],
                PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap(),
            )
            .unwrap();
        Self {
            node,
            listener,
            config: config.into(),
            answers: Mutex::default(),
        }
    }

    pub(crate) fn port(&self) -> u16 {
        self.listener.local_addr().unwrap().port()
    }

    /// The answers so far.
    pub(crate) fn answers(&self) -> Vec<Answer> {
        let answers = self.answers.lock();
        answers.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Answers requests until `is_over`.
    pub(crate) fn run(&self, is_over: &AtomicBool) {
        std::thread::scope(|scope| {
            while !is_over.load(Ordering::Relaxed) {
                match self.listener.accept() {
                    Ok((stream, _)) => {
                        scope.spawn(move || self.serve(stream));
                    }
                    Err(_) => std::thread::sleep(ACCEPT_PERIOD),
                }
            }
        });
    }

    /// Serves one request; clients that do not speak HTTP or are not the aggregator get no answer.
    fn serve(&self, stream: TcpStream) {
        stream.set_nonblocking(false).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let session = ServerConnection::new(Arc::clone(&self.config)).unwrap();
        let mut stream = StreamOwned::new(session, stream);
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && head.len() < HEAD_BYTES_MAX {
            let mut byte = [0];
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let target = head.split(' ').nth(1).unwrap_or_default();
        let (status, body) = match self.answer(target) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", json!({"kind": "Status", "code": 404})),
        };
        let body = body.to_string();
        let answer = format!(
            "HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        // A client that has closed its connection needs no answer.
        let _ = stream.write_all(answer.as_bytes());
        stream.conn.send_close_notify();
        let _ = stream.flush();
    }

    /// The answer to a GET, if the path exists.
    fn answer(&self, target: &str) -> Option<Value> {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let path = path.strip_prefix(ROOT)?;
        if path.is_empty() {
            let resource = json!({
                "name": format!("pods/{METRIC}"), "singularName": "", "namespaced": true,
                "kind": "MetricValueList", "verbs": ["get"],
            });
            return Some(json!({
                "kind": "APIResourceList", "apiVersion": "v1",
                "groupVersion": "custom.metrics.k8s.io/v1beta2", "resources": [resource],
            }));
        }
        let (namespace, rest) = path.strip_prefix("/namespaces/")?.split_once('/')?;
        let is_ours = [format!("pods/*/{METRIC}"), format!("pods/%2A/{METRIC}")];
        if !is_ours.iter().any(|ours| ours == rest) {
            return None;
        }
        let selector = query
            .split('&')
            .find_map(|pair| pair.strip_prefix("labelSelector="));
        let pods = read_pods(self.node, namespace, selector?);
        let items: Vec<Value> = pods.iter().map(|pod| item(namespace, pod)).collect();
        let at = Instant::now();
        let answers = self.answers.lock();
        answers
            .unwrap_or_else(PoisonError::into_inner)
            .push(Answer { at, pods });
        Some(json!({
            "kind": "MetricValueList", "apiVersion": "custom.metrics.k8s.io/v1beta2",
            "metadata": {}, "items": items,
        }))
    }
}

fn item(namespace: &str, pod: &PodLoad) -> Value {
    json!({
        "describedObject": {
            "apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": pod.pod,
        },
        "metric": {"name": METRIC},
        "timestamp": Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string(),
        // A Kubernetes quantity.
        "value": format!("{}m", (pod.factor * 1e3).round()),
    })
}

/// The reports of the pods that match a selector (percent-encoded, as received), run and answer.
pub(crate) fn read_pods(node: &Node, namespace: &str, selector: &str) -> Vec<PodLoad> {
    let path = format!("/api/v1/namespaces/{namespace}/pods?labelSelector={selector}");
    let listed = node.plane().kubectl(&["get", "--raw", &path]).unwrap();
    let listed: Value = serde_json::from_slice(&listed.stdout).unwrap_or_default();
    let pods = listed["items"].as_array().into_iter().flatten();
    let running = pods.filter(|pod| pod["metadata"]["deletionTimestamp"].is_null());
    let read = |pod: &Value| {
        let ip = pod["status"]["podIP"].as_str()?.parse().ok()?;
        let name = pod["metadata"]["name"].as_str()?;
        node.within(|| read_pod(name, SocketAddr::new(ip, 8080)))
            .unwrap()
    };
    running.filter_map(read).collect()
}

/// The report of a server for the last minute; `None` if it does not answer.
fn read_pod(pod: &str, address: SocketAddr) -> Option<PodLoad> {
    let ask = |path: &str| match get(address, path) {
        Ok((200, body)) => String::from_utf8(body).ok(),
        _ => None,
    };
    let metrics = ask("/metrics")?;
    let metric = |name: &str| {
        let mut lines = metrics.lines();
        let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        value?.parse().ok()
    };
    // The counts behind the shares, only for the output of the test.
    let state: Value = serde_json::from_str(&ask("/albacore/v1/state")?).ok()?;
    let count = |outcome: &str| state["requests"][outcome].as_u64().unwrap_or_default();
    let bad = count("late") + count("shed") + count("failed");
    Some(PodLoad {
        pod: pod.to_owned(),
        factor: metric(METRIC)?,
        idle_share: metric("albacore_idle_share")?,
        requests: count("good") + bad,
        bad,
    })
}
