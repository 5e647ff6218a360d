//! Simulated clients that act while the controller runs: the controller of Deployments, the agents,
//! and a watcher that detects when all deployments are settled.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use albacore_api::InferenceDeployment;
use albacore_cluster::{
    ApiResource, Cluster, ConnectOptions, DynamicObject, MetricsRegistry, ObjectChange, ObjectKey,
    ReadinessGates, Shutdown, WatchOptions, WorkOutcome, WorkQueue, Writes,
};
use k8s_openapi::api::apps::v1;
use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use super::{Etcd, Fleet};

/// Concurrent status writes of Deployments.
const WRITERS: usize = 4;

/// Interval at which agents renew their reports.
const RENEWAL: Duration = Duration::from_secs(35);

/// The simulated clients; they stop on drop.
pub(crate) struct Roles {
    fleet: Fleet,
    settled: Arc<Mutex<HashSet<ObjectKey>>>,
    /// The missing parts of the deployments that are not settled, by key.
    missing: Arc<Mutex<BTreeMap<ObjectKey, &'static str>>>,
    shutdown: Shutdown,
    /// Renews the reports of the agents.
    renewal: Option<JoinHandle<()>>,
    // Its tasks end with it.
    _runtime: tokio::runtime::Runtime,
}

impl Roles {
    /// `kubeconfig` is that of a separate user. Without pods, neither nodes nor the status of
    /// Deployments are simulated.
    pub(crate) fn start(fleet: Fleet, kubeconfig: &Path, etcd: Etcd) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = { runtime }.worker_threads(1).enable_all().build().unwrap();
        let metrics = MetricsRegistry::new();
        let options = ConnectOptions {
            kubeconfig: Some(kubeconfig.to_owned()),
            manager: "fleet",
            writes: Writes::Always,
            crash_after_writes: None,
        };
        let cluster = runtime.block_on(Cluster::connect(&options, &metrics));
        let cluster = cluster.unwrap();
        cluster.limit_requests_per_second(10_000.try_into().unwrap());
        let mut roles = Self {
            fleet,
            settled: Arc::default(),
            missing: Arc::default(),
            shutdown: Shutdown::new(),
            renewal: None,
            _runtime: runtime,
        };
        let _entered = roles._runtime.enter();
        roles.watch(&cluster);
        if fleet.pods > 0 {
            roles.simulate_workloads(&cluster, &metrics);
            let shutdown = roles.shutdown.clone();
            let renewal = std::thread::spawn(move || renew(fleet, &etcd, &shutdown));
            roles.renewal = Some(renewal);
        }
        roles
    }

    /// The number of settled deployments, and what the others lack.
    pub(crate) fn settled(&self) -> (usize, String) {
        let mut counts = BTreeMap::<&str, usize>::new();
        for what in self.missing.lock().unwrap().values() {
            *counts.entry(what).or_default() += 1;
        }
        (self.settled.lock().unwrap().len(), format!("{counts:?}"))
    }

    fn watch(&self, cluster: &Cluster) {
        let kind = ApiResource::erase::<InferenceDeployment>(&());
        let (fleet, settled, missing) = (self.fleet, self.settled.clone(), self.missing.clone());
        let options = WatchOptions::<InferenceDeployment>::new("deployments", kind);
        let gates = ReadinessGates::default();
        let watch = cluster.watch(options, &gates, &self.shutdown, move |change| {
            if let ObjectChange::Applied { new, .. } = change {
                let key = ObjectKey::of(&*new);
                let lacks = lacks(&new, fleet);
                match lacks {
                    None => settled.lock().unwrap().insert(key.clone()),
                    Some(_) => settled.lock().unwrap().remove(&key),
                };
                let mut missing = missing.lock().unwrap();
                match lacks {
                    None => missing.remove(&key),
                    Some(what) => missing.insert(key, what),
                };
            }
        });
        drop(watch);
    }

    /// Reports the pods of every Deployment as available, like kube-controller-manager.
    fn simulate_workloads(&self, cluster: &Cluster, metrics: &MetricsRegistry) {
        let kind = ApiResource::erase::<v1::Deployment>(&());
        let queue = WorkQueue::new("workloads", metrics);
        let mut options = WatchOptions::<DynamicObject>::new("workloads", kind.clone());
        options.trim = |object| object.data = object.data["status"].take();
        let added = queue.clone();
        let gates = ReadinessGates::default();
        let _ = cluster.watch(options, &gates, &self.shutdown, move |change| {
            if let ObjectChange::Applied { new, .. } = change
                && new.data["observedGeneration"].as_i64() < new.metadata.generation
            {
                added.add(ObjectKey::of(&*new));
            }
        });
        let (cluster, shutdown) = (cluster.clone(), self.shutdown.clone());
        let status = Arc::new(workload_status(self.fleet.replicas()));
        tokio::spawn(async move {
            let work = |key: ObjectKey| {
                let (cluster, kind, status) = (cluster.clone(), kind.clone(), status.clone());
                async move {
                    match cluster.merge_status(&kind, &key, &status).await {
                        Ok(()) => WorkOutcome::Done,
                        Err(error) => WorkOutcome::Failed(error.class()),
                    }
                }
            };
            queue.run(WRITERS, &shutdown, work).await;
        });
    }
}

impl Drop for Roles {
    fn drop(&mut self) {
        self.shutdown.trigger();
        // It writes to etcd, which ends next.
        let renewal = self.renewal.take();
        let ended = renewal.is_none_or(|renewal| renewal.join().is_ok());
        assert!(ended || std::thread::panicking());
    }
}

/// The part that is missing in a deployment's status.
fn lacks(deployment: &InferenceDeployment, fleet: Fleet) -> Option<&'static str> {
    let Some(status) = &deployment.status else {
        return Some("status");
    };
    let all = |pods: usize| Some(format!("{pods}/{pods}"));
    let replicas = match fleet.pods {
        0 => return None,
        _ => fleet.replicas(),
    };
    if status.ready != all(replicas) {
        return Some("ready");
    }
    if status.pinned != all(4 * replicas) {
        return Some("pinned");
    }
    let is_loaded = status
        .models
        .iter()
        .all(|m| Some(&m.loaded) == all(replicas).as_ref());
    let is_true = |kind: &str| {
        let mut conditions = status.conditions.iter();
        conditions.any(|c| c.type_ == kind && c.status == "True")
    };
    match (is_loaded, is_true("Ready") && is_true("Placed")) {
        (false, _) => Some("loaded"),
        (_, false) => Some("conditions"),
        _ => None,
    }
}

fn workload_status(replicas: usize) -> Value {
    let now = Timestamp::now().to_string();
    let condition = |kind: &str, reason: &str| {
        json!({"type": kind, "status": "True", "reason": reason, "message": "simulated",
            "lastTransitionTime": now, "lastUpdateTime": now})
    };
    json!({"observedGeneration": 1, "replicas": replicas, "updatedReplicas": replicas,
        "readyReplicas": replicas, "availableReplicas": replicas,
        "conditions": [condition("Available", "MinimumReplicasAvailable"),
            condition("Progressing", "NewReplicaSetAvailable")]})
}

/// Renews the reports of all nodes in turn until shutdown.
fn renew(fleet: Fleet, etcd: &Etcd, shutdown: &Shutdown) {
    let start = Instant::now();
    let mut renewed = 0;
    while !shutdown.is_triggered() {
        std::thread::sleep(Duration::from_millis(500));
        let share = start.elapsed().as_secs_f64() / RENEWAL.as_secs_f64();
        let due = (share * fleet.nodes as f64) as usize;
        let now = Timestamp::now().to_string();
        etcd.put((renewed..due).map(|node| fleet.report(node % fleet.nodes, &now)));
        renewed = due;
    }
}
