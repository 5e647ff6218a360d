//! The applied manifests: the examples of `manifests/examples/autoscaling`, and the registration of
//! the adapter.

use albacore_xtask::manifests::helm;
use k8s_openapi::ByteString;
use serde_json::{Value, json};

use crate::rig::{Rig, root};

/// The most pods that fit on the machine in addition to the load.
pub(crate) const PODS_MAX: i64 = 4;

/// Stabilization window of the HPA for scaling down; 300 s in the example.
const SHRINK_WINDOW_SECONDS: u64 = 30;

/// Host name that the aggregator uses for the adapter.
pub(crate) const ADAPTER_HOST: &str = "metrics-adapter.default.svc";

fn example(name: &str) -> Value {
    let path = root().join("manifests/examples/autoscaling").join(name);
    let mut objects = helm::objects(&std::fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(objects.len(), 1, "{name}");
    objects.remove(0)
}

fn apply(rig: &Rig, name: &str, objects: &[Value]) {
    let texts: Vec<String> = objects.iter().map(Value::to_string).collect();
    rig.apply(name, &texts.join("\n---\n"));
}

/// Deploys the example with a model in a ConfigMap and pods of a fifth of a CPU; waits until it
/// serves.
pub(crate) fn deploy(rig: &mut Rig) {
    let model = root().join("examples/fraud.ubj");
    let from = format!("--from-file=fraud.ubj={}", model.display());
    rig.kubectl(&["create", "configmap", "fraud-model", &from]);
    let mut deployment = example("deployment.yaml");
    assert!(deployment["spec"]["replicas"].is_null(), "{deployment}");
    deployment["spec"]["workers"] = json!(1);
    deployment["spec"]["threads"] = json!(1);
    deployment["spec"]["models"] = json!([{
        "name": "fraud", "uri": "configmap://fraud-model/fraud.ubj",
        // With a fifth of a CPU, the CFS quota lets a pod run 20 of every 100 ms.
        "slo": {"latency": "1s", "percentile": 99},
    }]);
    deployment["spec"]["resources"] = json!({
        "requests": {"cpu": "200m"}, "limits": {"cpu": "200m"},
    });
    apply(rig, "deployment", &[deployment]);
    rig.kubectl(&[
        "wait",
        "infd/fraud",
        "--for=condition=Ready",
        "--timeout=180s",
    ]);
}

/// Number of pods and selector, from the scale subresource.
pub(crate) fn scale(rig: &Rig) -> (i64, String) {
    let path = "/apis/albacore.dev/v1beta1/namespaces/default/inferencedeployments/fraud/scale";
    let scale: Value = serde_json::from_str(&rig.kubectl(&["get", "--raw", path])).unwrap();
    let selector = scale["status"]["selector"].as_str().unwrap();
    (
        scale["spec"]["replicas"].as_i64().unwrap(),
        selector.to_owned(),
    )
}

/// Registers the adapter as an `APIService` with the aggregator; waits until it is available.
pub(crate) fn register(rig: &Rig, port: u16) {
    let authority = rig.node.plane().authority().certificate();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "metrics-adapter"},
        "spec": {"ports": [{"port": 443, "targetPort": port}]},
    });
    // No pod, because the adapter is a thread of this test.
    let slice = json!({
        "apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
        "metadata": {
            "name": "metrics-adapter",
            "labels": {"kubernetes.io/service-name": "metrics-adapter"},
        },
        "ports": [{"name": "", "port": port}],
        "endpoints": [{
            "addresses": [rig.node.address().to_string()], "conditions": {"ready": true},
        }],
    });
    let registration = json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta2.custom.metrics.k8s.io"},
        "spec": {
            "group": "custom.metrics.k8s.io", "version": "v1beta2",
            "groupPriorityMinimum": 100, "versionPriority": 100,
            "service": {"namespace": "default", "name": "metrics-adapter", "port": 443},
            "caBundle": ByteString(authority.into_bytes()),
        },
    });
    apply(rig, "adapter", &[service, slice, registration]);
    let available = ["--for=condition=Available", "--timeout=120s"];
    let wait = ["wait", "apiservice/v1beta2.custom.metrics.k8s.io"];
    rig.kubectl(&[&wait[..], &available].concat());
}

/// Applies the example's HPA with other limits and a shorter window; waits until it has read the
/// metric.
pub(crate) fn autoscale(rig: &Rig) {
    let mut hpa = example("hpa-load-factor.yaml");
    hpa["spec"]["minReplicas"] = json!(1);
    hpa["spec"]["maxReplicas"] = json!(PODS_MAX);
    let window = &mut hpa["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"];
    assert!(window.is_u64(), "the example has a window");
    *window = json!(SHRINK_WINDOW_SECONDS);
    apply(rig, "hpa", &[hpa]);
    rig.kubectl(&[
        "wait",
        "hpa/fraud",
        "--for=condition=ScalingActive",
        "--timeout=120s",
    ]);
}
