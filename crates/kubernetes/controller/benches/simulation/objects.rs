//! The objects of a fleet in the form in which the API server stores them.

use k8s_openapi::jiff::Timestamp;
use serde_json::{Value, json};

use crate::rig::deployment;

/// Sizes of a fleet. Pod `i` belongs to deployment `i % deployments` and runs on node `i % nodes`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fleet {
    pub(crate) deployments: usize,
    pub(crate) nodes: usize,
    pub(crate) pods: usize,
}

/// A uid that is unique in the fleet.
fn uid(kind: u8, index: usize) -> String {
    format!("f1ee7000-0000-4000-8{kind:03x}-{index:012x}")
}

pub(crate) fn node_name(node: usize) -> String {
    format!("node-{node:05}.fleet.example.internal")
}

impl Fleet {
    /// Pods of each deployment.
    pub(crate) fn replicas(self) -> usize {
        self.pods / self.deployments
    }

    fn spec(self) -> Value {
        let mut object = deployment("", &json!({"replicas": self.replicas()}));
        object["spec"].take()
    }

    /// All objects with their keys in etcd.
    pub(crate) fn objects(self) -> impl Iterator<Item = (String, Value)> {
        let now = Timestamp::now().to_string();
        let (spec, at) = (self.spec(), now.clone());
        let deployments = (0..self.deployments).map(move |index| {
            let mut object = deployment(&format!("fleet-{index}"), &json!({}));
            object["spec"] = spec.clone();
            object["metadata"]["uid"] = uid(1, index).into();
            object["metadata"]["generation"] = 1.into();
            object["metadata"]["creationTimestamp"] = at.as_str().into();
            (
                format!("albacore.dev/inferencedeployments/default/fleet-{index}"),
                object,
            )
        });
        let at = now.clone();
        let pods = (0..self.pods).map(move |index| self.pod(index, &at));
        let reports = (0..self.nodes).map(move |node| self.report(node, &now));
        deployments.chain(pods).chain(reports)
    }

    fn pod_name(self, index: usize) -> String {
        let deployment = index % self.deployments;
        format!("fleet-{deployment}-5d8f7c9b6d-{:05x}", index)
    }

    fn pod(self, index: usize, now: &str) -> (String, Value) {
        let (name, deployment) = (self.pod_name(index), index % self.deployments);
        let address = super::servers::address(index % self.nodes);
        let owner = format!("fleet-{deployment}");
        let condition = |kind: &str| json!({"type": kind, "status": "True", "lastTransitionTime": now, "lastProbeTime": null});
        let kinds = [
            "PodReadyToStartContainers",
            "Initialized",
            "Ready",
            "ContainersReady",
            "PodScheduled",
        ];
        let volumes = json!([
            {"name": "albacore-settings", "configMap": {"name": owner, "defaultMode": 420}},
            {"name": "albacore-models-0", "persistentVolumeClaim": {"claimName": "models", "readOnly": true}}]);
        let object = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "generateName": format!("{owner}-5d8f7c9b6d-"), "namespace": "default",
                "uid": uid(2, index), "creationTimestamp": now, "generation": 1,
                "labels": {
                    "albacore.dev/deployment": owner, "app.kubernetes.io/component": "server",
                    "app.kubernetes.io/instance": owner, "app.kubernetes.io/managed-by": "albacore-controller",
                    "app.kubernetes.io/name": "albacore", "pod-template-hash": "5d8f7c9b6d"},
                "ownerReferences": [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": true,
                    "blockOwnerDeletion": true, "name": format!("{owner}-5d8f7c9b6d"), "uid": uid(3, deployment)}]},
            "spec": {
                "nodeName": node_name(index % self.nodes), "restartPolicy": "Always", "dnsPolicy": "ClusterFirst",
                "schedulerName": "default-scheduler", "serviceAccountName": owner, "serviceAccount": owner,
                "automountServiceAccountToken": false, "enableServiceLinks": false, "priority": 0,
                "terminationGracePeriodSeconds": 45, "preemptionPolicy": "PreemptLowerPriority",
                "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
                "tolerations": [
                    {"key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300},
                    {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}],
                "containers": [{"name": "server", "image": "albacore-server:test", "imagePullPolicy": "IfNotPresent",
                    "args": ["--settings", "/etc/albacore/settings.yaml"], "resources": {"requests": {"cpu": "4"}},
                    "env": [{"name": "ALBACORE_WORKERS", "value": "2"}, {"name": "ALBACORE_THREADS", "value": "2"}],
                    "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"},
                        {"name": "grpc", "containerPort": 8081, "protocol": "TCP"}],
                    "terminationMessagePath": "/dev/termination-log", "terminationMessagePolicy": "File",
                    "volumeMounts": [{"name": "albacore-settings", "mountPath": "/etc/albacore", "readOnly": true},
                        {"name": "albacore-models-0", "mountPath": "/models/pvc/models", "readOnly": true}]}],
                "volumes": volumes},
            "status": {
                "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": address, "qosClass": "Burstable",
                "hostIPs": [{"ip": address}], "startTime": now, "observedGeneration": 1,
                "conditions": kinds.map(condition),
                "containerStatuses": [{"name": "server", "image": "albacore-server:test", "ready": true, "started": true,
                    "imageID": "albacore-server@sha256:0f1e2d3c4b5a69788796a5b4c3d2e1f00f1e2d3c4b5a69788796a5b4c3d2e1f0",
                    "containerID": format!("containerd://{:064x}", index), "restartCount": 0, "lastState": {},
                    "state": {"running": {"startedAt": now}}}]}});
        (format!("pods/default/{name}"), object)
    }

    /// The report of a node's agent, renewed at `now`.
    pub(crate) fn report(self, node: usize, now: &str) -> (String, Value) {
        let name = node_name(node);
        let of_node = (node..self.pods).step_by(self.nodes);
        let pods: Vec<Value> = of_node
            .map(|index| {
                json!({"pod": format!("default/{}", self.pod_name(index)), "workers": 2,
                "workersVerified": 2, "planned": 4, "verified": 4, "cpuset": "0-127", "plan": "5d8f7c9b6d01",
                "isolation": "SharedPool", "respawns": 0, "drifts": 0})
            })
            .collect();
        let threads = 4 * pods.len();
        let object = json!({"apiVersion": "albacore.dev/v1alpha1", "kind": "NodePlacement",
            "metadata": {"name": name, "uid": uid(4, node), "generation": 1, "creationTimestamp": "2026-11-26T00:00:00Z"},
            "status": {"lastVerificationTime": now, "topology": "5d8f7c9b6d02", "drifts": 0,
                "cpuTopology": "cpus=0-127 core=0-63x2 l3=0-7*16 numa=0*128",
                "planned": threads, "verified": threads, "pods": pods}});
        (format!("albacore.dev/nodeplacements/{name}"), object)
    }
}
