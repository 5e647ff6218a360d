//! Deployments that set every field that Albacore defines.

use serde_json::{Value, json};

/// A deployment that sets every field that Albacore defines to another value than its default.
pub(crate) fn sample() -> Value {
    json!({
        "apiVersion": "albacore.dev/v1beta1",
        "kind": "InferenceDeployment",
        "metadata": {"name": "fraud", "labels": {"team": "risk"}},
        "spec": {
            "replicas": 3,
            "workers": 4,
            "threads": 5,
            "mode": "Compact",
            "placement":
                {"policy": "RoundRobin", "enforcement": "Observe", "mainThread": "WorkerSet",
                "distances": {"l1": 5, "l2": 11, "l3": 60, "numa": 110, "package": 130,
                    "machine": 300},
                "trial": {"window": "20s", "windows": 9, "arms": ["Compact", "None"]}},
            "models": [{"name": "fraud", "uri": "file:///models/fraud.ubj",
                "iterations": {"begin": 1, "end": 20}, "outputs": ["margin"], "threads": 1,
                "weight": 300, "missing": "Nan",
                "classes": ["legit", "fraud"],
                "categories": {"color": ["blue", "red"]},
                "batching": {"policy": "Timeout", "maxRows": 64, "maxDelay": "1ms"},
                "slo": {"latency": "25ms", "percentile": 95,
                    "contribs": "80ms", "interactions": "2s"}}],
            "batching": {"policy": "Timeout", "maxRows": 512, "maxDelay": "2ms"},
            "queue": {"maxRows": 2048},
            "front": {"threads": 3, "loadReports": "Always", "envoyHealthHeader": true},
            "autoscaling": {"minReplicas": 2, "maxReplicas": 9},
            "resources": {"limits": {"cpu": "4", "memory": "1Gi"}},
            "template": {
                "metadata": {"annotations": {"note": "x"}},
                "spec": {
                    "nodeSelector": {"disk": "fast"},
                    "terminationGracePeriodSeconds": 40,
                    "containers": [{"name": "server", "image": "example.org/s:1",
                        "env": [{"name": "LOG", "value": "info"}]}]
                }
            }
        }
    })
}

/// The sample with the policy Auto, which has fields that Timeout does not accept.
pub(crate) fn sample_of_auto() -> Value {
    let mut sample = sample();
    let auto = json!({"policy": "Auto", "maxRows": 512, "prefer": "IdleWorkers", "window": "5ms"});
    sample["spec"]["models"][0]["batching"] = auto.clone();
    sample["spec"]["batching"] = auto;
    sample
}
