//! The serving pods: whether the deployment's values are in force in them, and their served
//! requests.

use std::collections::BTreeMap;
use std::time::Instant;

use albacore_api::SERVER_CONTAINER;
use albacore_cluster::{ApiResource, DynamicObject, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use albacore_statistics::{RegressionCheck, RequestCounters, RequestWindow};
use k8s_openapi::api::core::v1::Pod;

use super::Apply;
use crate::job::typed;
use crate::limits::{EXPERIMENT_POLL, SETTLE_TIME, TAKE_UP_TIME_MAX, WATCHED_PODS_MAX};

/// Label of the serving pods.
const DEPLOYMENT: &str = "albacore.dev/deployment";

/// Name of the container port that serves OIP and `/metrics`.
const HTTP: &str = "http";

/// Rollout state of a deployment's values.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum ValuesRollout {
    /// In force in all pods.
    InForce,
    /// Being rolled out.
    Pending(String),
    /// Rejected.
    Rejected(String),
}

/// The rollout state according to the controller's status.
pub(super) fn rollout_state(object: &DynamicObject) -> ValuesRollout {
    let status = &object.data["status"];
    if status["observedGeneration"].as_i64() < object.metadata.generation {
        return ValuesRollout::Pending("the controller has not seen the last edit yet".to_owned());
    }
    let condition = |kind: &str| {
        let mut all = status["conditions"].as_array().into_iter().flatten();
        all.find(|condition| condition["type"] == kind)
    };
    let is_true = |kind: &str| condition(kind).filter(|of| of["status"] == "True");
    let text = |of: &serde_json::Value| {
        let [reason, message] = ["reason", "message"].map(|field| of[field].as_str());
        format!(
            "{}: {}",
            reason.unwrap_or_default(),
            message.unwrap_or_default()
        )
    };
    if let Some(stalled) = is_true("Stalled") {
        return ValuesRollout::Rejected(text(stalled));
    }
    match (is_true("Reconciling"), condition("Ready")) {
        (Some(of), _) if of["reason"] == "SettingsRefused" => ValuesRollout::Rejected(text(of)),
        (Some(of), _) => ValuesRollout::Pending(text(of)),
        (None, Some(ready)) if ready["status"] == "True" => ValuesRollout::InForce,
        (None, Some(ready)) => ValuesRollout::Pending(text(ready)),
        (None, None) => ValuesRollout::Pending("it is scaled to zero".to_owned()),
    }
}

impl Apply {
    /// Waits until the values are in force in all pods, and until the pods have learned the cost of
    /// batches with them.
    pub(super) async fn wait_until_in_force(&self) -> Result<(), Failure> {
        let (begin, mut last, mut since) = (Instant::now(), String::new(), None);
        // bound: TAKE_UP_TIME_MAX; the controller reports earlier if the pods make no progress.
        while begin.elapsed() < TAKE_UP_TIME_MAX {
            match rollout_state(&self.read_current().await?) {
                ValuesRollout::InForce => {
                    if since.get_or_insert_with(Instant::now).elapsed() >= SETTLE_TIME {
                        return Ok(());
                    }
                }
                ValuesRollout::Pending(why) => {
                    since = None;
                    if why != last {
                        eprintln!("{}: {why}", self.key);
                        last = why;
                    }
                }
                ValuesRollout::Rejected(why) => return Err(Failure::Failed(why)),
            }
            tokio::time::sleep(EXPERIMENT_POLL).await;
        }
        let minutes = TAKE_UP_TIME_MAX.as_secs() / 60;
        Err(Failure::Failed(format!(
            "its pods did not apply the values within {minutes} minutes: {last}"
        )))
    }

    /// Measures the requests served in `count` windows.
    pub(super) async fn measure(&self, count: u32) -> Result<Vec<RequestWindow>, Failure> {
        let length = self.time / RegressionCheck::WINDOWS;
        let mut before = self.request_counters().await?;
        let mut windows = Vec::new();
        for _ in 0..count {
            tokio::time::sleep(length).await;
            let after = self.request_counters().await?;
            // an autoscaler adds and removes pods: only pods present in the whole window count
            let grown = after.iter();
            let grown = grown.filter_map(|(pod, counters)| counters.since(before.get(pod)?));
            let window = RequestWindow::of(grown);
            let requests = window.map_or(0.0, |window| window.requests);
            let least = RegressionCheck::REQUESTS_MIN;
            let window = window.filter(|window| window.requests >= least);
            windows.push(window.ok_or_else(|| {
                let seconds = length.as_secs_f64();
                Failure::Failed(format!(
                    "{}: its pods answered {requests:.0} requests in {seconds:.1} s, and {least} \
                     are needed to detect a change: give a longer --watch-time, or leave --apply \
                     out and apply the file",
                    self.key
                ))
            })?);
            before = after;
        }
        Ok(windows)
    }

    /// The counters of the ready pods, by uid.
    async fn request_counters(&self) -> Result<BTreeMap<String, RequestCounters>, Failure> {
        let kind = ApiResource::erase::<Pod>(&());
        let label = format!("{DEPLOYMENT}={}", self.key.name);
        let namespace = Some(self.key.namespace.as_str());
        let pods = self.job.cluster.list(&kind, namespace, &label).await;
        let pods = pods.map_err(|error| self.job.failed(&error))?;
        let pods = pods.into_iter().filter_map(|pod| typed::<Pod>(pod).ok());
        let ready = pods.filter_map(|pod| Some((http_port(&pod)?, pod)));
        let mut found = BTreeMap::new();
        let mut silent = "no pod of it is ready".to_owned();
        for (port, pod) in ready.take(WATCHED_PODS_MAX) {
            let key = ObjectKey::of(&pod);
            let text = self.job.cluster.get_from_pod(&key, port, "/metrics").await;
            match text.as_deref().map(RequestCounters::parse) {
                Ok(Some(counters)) => {
                    found.insert(pod.metadata.uid.unwrap_or_default(), counters);
                }
                Ok(None) => {
                    silent = format!("pod {key}: /metrics has no request metrics of Albacore")
                }
                Err(error) if error.class() == ErrorClass::Forbidden => {
                    return Err(self.job.failed(error));
                }
                // the pod is terminating; its requests are not counted
                Err(error) => silent = sentence(error),
            }
        }
        match found.is_empty() {
            true => Err(Failure::Failed(format!("{}: {silent}", self.key))),
            false => Ok(found),
        }
    }
}

/// The HTTP port of a pod that is ready and not terminating.
fn http_port(pod: &Pod) -> Option<u16> {
    let is_leaving = pod.metadata.deletion_timestamp.is_some();
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let is_ready = conditions
        .iter()
        .any(|of| of.type_ == "Ready" && of.status == "True");
    let mut containers = pod.spec.as_ref()?.containers.iter();
    let server = containers.find(|of| of.name == SERVER_CONTAINER)?;
    let mut ports = server.ports.as_ref()?.iter();
    let port = ports.find(|port| port.name.as_deref() == Some(HTTP))?;
    let port = u16::try_from(port.container_port).ok()?;
    (is_ready && !is_leaving).then_some(port)
}
