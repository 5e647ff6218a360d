//! The bundle for the Operator Lifecycle Manager (OLM) in the format `registry+v1`: definitions, a
//! ClusterServiceVersion and further objects, all taken from the rendered chart.
//!
//! OLM creates the controller's Deployment, ServiceAccount and permissions from the
//! ClusterServiceVersion. A bundle can contain neither the agent's DaemonSet nor its Namespace,
//! which are in `agent.yaml`.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use super::downloads;
use crate::images::{self, Architecture, Contents, Layer, REGISTRY, Source, gzip, tar};
use crate::manifests::{self, NAMESPACE, helm};
use crate::{crds, yaml};

/// Name of the package that users subscribe to.
const PACKAGE: &str = "albacore";

/// Name of the image and of its archive.
const IMAGE: &str = "albacore-olm-bundle";

/// Kinds that OLM creates from the ClusterServiceVersion, along with the bound roles.
const KINDS_CREATED_BY_OLM: [&str; 4] = [
    "ClusterRoleBinding",
    "Deployment",
    "RoleBinding",
    "ServiceAccount",
];

/// OLM supports it only from 0.32 (OpenShift 4.20); older versions reject the whole bundle.
const UNSUPPORTED_KINDS: [&str; 1] = ["NetworkPolicy"];

/// Kinds that are included in the bundle unchanged.
const INCLUDED_KINDS: [&str; 3] = ["ClusterRole", "PodDisruptionBudget", "Service"];

/// Example object offered by the OpenShift console.
const EXAMPLE: &str = "manifests/examples/autoscaling/deployment.yaml";

/// Description shown by OperatorHub. `AGENT` is replaced.
const DESCRIPTION: &str = "\
Albacore serves XGBoost, LightGBM and scikit-learn tree models on cpus. An `InferenceDeployment` says how many \
workers and threads serve them and within which latency; each thread is placed on a cpu of its own, and read \
back there.

## The node agent is a second step

An agent on each node places the threads. It is a DaemonSet, which OLM does not install; an administrator \
applies it, and the same file of the new version after each update of the operator:

    kubectl apply --server-side -f AGENT

It makes the namespace `albacore-agent`, in which pods may be privileged: the agent is root with the capability \
SYS_NICE alone, in the node's pid namespace. Until it runs, models are served and the kernel alone places \
threads; the condition `Placed` of an `InferenceDeployment` has the reason `NoReport`.

## Removal

Deleting the definitions deletes every `InferenceDeployment` and its pods. They stay when a Subscription and its \
ClusterServiceVersion are deleted; to delete a ClusterExtension of OLM 1 is to delete them. `kubectl delete -f` \
with the file above removes the agent.
";

/// Name of the archive of the bundle's files.
pub(super) fn name(version: &str) -> String {
    format!("albacore-{version}-olm-bundle.tar.gz")
}

/// Writes the bundle's image and the archive of its files to `folder`, and returns the image's
/// reference and digest. The image is built for every architecture, because OLM unpacks it by
/// running it as a container. The bundle refers to images in `registry`, by [`pins`] or by tags.
///
/// # Errors
/// Same as [`files`], or a file cannot be written.
pub(super) fn write(
    root: &Path,
    folder: &Path,
    source: &Source,
    registry: &str,
    pins: &[String],
) -> Result<(String, String)> {
    let mut values = vec![format!("--set=image.registry={registry}")];
    values.extend_from_slice(pins);
    let files = files(root, source, &values)?;
    let mut entries: Vec<(&str, u32, &[u8])> =
        vec![("manifests/", 0o755, b""), ("metadata/", 0o755, b"")];
    entries.extend(files.iter().map(|(p, t)| (p.as_str(), 0o444, t.as_bytes())));
    let tar = tar(&entries, source.epoch)?;
    let gzip = gzip(&tar);
    super::write(folder, &name(&source.version), &gzip)?;

    let about = "What the Operator Lifecycle Manager installs Albacore from";
    let mut labels = images::labels(IMAGE, about, source);
    for (key, value) in annotations(&source.version)
        .as_object()
        .into_iter()
        .flatten()
    {
        labels[key] = value.clone();
    }
    let layer = |architecture| {
        let (tar, gzip) = (tar.clone(), gzip.clone());
        (architecture, Layer { tar, gzip })
    };
    let reference = format!("{registry}/{IMAGE}:{}", source.version);
    let contents = Contents {
        reference: &reference,
        labels,
        run: json!({}),
        layers: Architecture::ALL.map(layer).into(),
    };
    let written = images::pack(&contents, source)?;
    super::write(folder, &format!("{IMAGE}.tar"), &written.bytes)?;
    println!("wrote {reference}@{}", written.digest);
    Ok((reference, written.digest))
}

/// Arguments of helm that make the rendered pods refer to images by these `digests` instead of
/// tags.
pub(super) fn pins(digests: &[(String, String)]) -> Vec<String> {
    let of = |component: &str| {
        let prefix = format!("{REGISTRY}/albacore-{component}:");
        let (_, digest) = digests.iter().find(|(r, _)| r.starts_with(&prefix))?;
        Some(format!("--set={component}.image.digest={digest}"))
    };
    let components = ["agent", "controller", "params", "server"];
    components.into_iter().filter_map(of).collect()
}

/// Path and text of each file in the bundle.
///
/// # Errors
/// Helm is not available, or the chart renders an object that a bundle does not support.
pub fn files(root: &Path, source: &Source, values: &[String]) -> Result<Vec<(String, String)>> {
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let mut objects = manifests::rendered(root, &values)?;
    let version = cluster_service_version(root, source, &objects)?;
    // Roles that are bound are permissions of the controller's account.
    let bound: Vec<Value> = objects.iter().map(|o| o["roleRef"].clone()).collect();
    let is_bound = |object: &Value| {
        let name = &object["metadata"]["name"];
        let mut bound = bound.iter();
        bound.any(|role| role["kind"] == object["kind"] && role["name"] == *name)
    };
    objects.retain(|object| {
        let is_left_out = KINDS_CREATED_BY_OLM
            .iter()
            .chain(&UNSUPPORTED_KINDS)
            .any(|kind| object["kind"] == *kind);
        !is_left_out && !manifests::is_agents(object) && !is_bound(object)
    });
    let metadata = json!({"annotations": annotations(&source.version)});
    let mut files = vec![
        (
            "metadata/annotations.yaml".to_owned(),
            yaml::document(&metadata),
        ),
        (
            format!("manifests/{PACKAGE}.clusterserviceversion.yaml"),
            yaml::document(&version),
        ),
    ];
    for (path, text) in crds::generate() {
        if let Ok(file) = path.strip_prefix("crds") {
            files.push((format!("manifests/{}", file.display()), text));
        }
    }
    for mut object in objects {
        let (kind, name) = (text(&object["kind"]), text(&object["metadata"]["name"]));
        if !INCLUDED_KINDS.contains(&kind.as_str()) {
            bail!(
                "the chart renders the {kind} {name}: say in release/olm.rs where OLM's users get it"
            );
        }
        manifests::strip(&mut object, "olm");
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.shift_remove("namespace");
        }
        let path = format!("manifests/{name}.{}.yaml", kind.to_lowercase());
        files.push((path, yaml::document(&object)));
    }
    files.sort();
    Ok(files)
}

/// Metadata that describes the bundle, readable without unpacking it.
fn annotations(version: &str) -> Value {
    let key = |name: &str| format!("operators.operatorframework.io.bundle.{name}.v1");
    let channel = channel(version);
    let values = [
        ("mediatype", "registry+v1"),
        ("manifests", "manifests/"),
        ("metadata", "metadata/"),
        ("package", PACKAGE),
        ("channels", &channel),
        ("channel.default", &channel),
    ];
    values
        .into_iter()
        .map(|(name, value)| (key(name), json!(value)))
        .collect()
}

/// One channel per major version; within a channel, every version is an update of the previous
/// ones.
fn channel(version: &str) -> String {
    let kind = if version.contains('-') {
        "candidate"
    } else {
        "stable"
    };
    format!("{kind}-v{}", version.split('.').next().unwrap_or_default())
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn read(root: &Path, file: &str) -> Result<Value> {
    let text = std::fs::read_to_string(root.join(file)).with_context(|| file.to_owned())?;
    serde_saphyr::from_str(&text).with_context(|| file.to_owned())
}

fn cluster_service_version(root: &Path, source: &Source, objects: &[Value]) -> Result<Value> {
    let chart = read(root, &format!("{}/Chart.yaml", helm::CHART))?;
    let images = images_of(objects);
    let mut spec = about(&chart, &source.version)?;
    let owned = owned(&chart)?;
    spec["maturity"] = maturity(&owned).into();
    spec["customresourcedefinitions"] = json!({"owned": owned});
    let controller = objects.iter().find(|object| object["kind"] == "Deployment");
    spec["install"] = json!({"strategy": "deployment", "spec": {
        "clusterPermissions": rights(objects, "ClusterRole")?,
        "permissions": rights(objects, "Role")?,
        "deployments": [portable(controller.context("the chart renders no Deployment")?)],
    }});
    let related = |(name, image)| json!({"name": name, "image": image});
    spec["relatedImages"] = images.iter().map(related).collect();
    Ok(json!({
        "apiVersion": "operators.coreos.com/v1alpha1",
        "kind": "ClusterServiceVersion",
        "metadata": {
            "name": format!("{PACKAGE}.v{}", source.version),
            "labels": platforms(),
            "annotations": {
                "alm-examples": json!([read(root, EXAMPLE)?]).to_string(),
                "capabilities": chart["annotations"]["artifacthub.io/operatorCapabilities"],
                "categories": "AI/Machine Learning",
                "containerImage": images.get("albacore-controller"),
                "createdAt": source.created(),
                "description": chart["description"],
                "olm.skipRange": format!("<{}", source.version),
                "operatorframework.io/suggested-namespace": NAMESPACE,
                // Only agents write them.
                "operators.operatorframework.io/internal-objects": r#"["nodeplacements.albacore.dev"]"#,
                "repository": env!("CARGO_PKG_REPOSITORY"),
                "support": chart["maintainers"][0]["name"],
            },
        },
        "spec": spec,
    }))
}

/// The fields shown by OperatorHub.
fn about(chart: &Value, version: &str) -> Result<Value> {
    let icon = text(&chart["icon"]);
    let icon = icon.strip_prefix("data:");
    let icon = icon.and_then(|icon| icon.split_once(";base64,"));
    let (mediatype, icon) = icon.context("the icon of the chart is not a data URL")?;
    let kubernetes = text(&chart["kubeVersion"]);
    let agent = format!("{}/agent.yaml", downloads(version));
    let provider = &chart["maintainers"][0];
    let modes = [
        "OwnNamespace",
        "SingleNamespace",
        "MultiNamespace",
        "AllNamespaces",
    ];
    let mode = |kind: &str| json!({"type": kind, "supported": kind == "AllNamespaces"});
    Ok(json!({
        "displayName": "Albacore",
        "description": DESCRIPTION.replace("AGENT", &agent),
        "version": version,
        "minKubeVersion": kubernetes.trim_start_matches(">=").trim_end_matches("-0"),
        "icon": [{"mediatype": mediatype, "base64data": icon}],
        "keywords": chart["keywords"],
        "links": [
            {"name": "Albacore", "url": chart["home"]},
            {"name": "The node agent of this version", "url": agent},
        ],
        "provider": {"name": provider["name"], "url": provider["url"]},
        "installModes": modes.map(mode),
    }))
}

/// Every served version of every definition. The descriptions are those of the chart.
fn owned(chart: &Value) -> Result<Vec<Value>> {
    let shown = text(&chart["annotations"]["artifacthub.io/crds"]);
    let shown: Vec<Value> = serde_saphyr::from_str(&shown).context("artifacthub.io/crds")?;
    let mut owned = Vec::new();
    for (_, definition) in crds::generate()
        .iter()
        .filter(|(path, _)| path.starts_with("crds"))
    {
        let definition: Value = serde_saphyr::from_str(definition)?;
        let spec = &definition["spec"];
        let kind = &spec["names"]["kind"];
        let shown = shown.iter().find(|shown| shown["kind"] == *kind);
        let shown =
            shown.with_context(|| format!("artifacthub.io/crds of the chart lacks {kind}"))?;
        let versions = spec["versions"].as_array().into_iter().flatten();
        for version in versions.filter(|version| version["served"] == true) {
            owned.push(json!({
                "name": definition["metadata"]["name"],
                "version": version["name"],
                "kind": kind,
                "displayName": shown["displayName"],
                "description": version["schema"]["openAPIV3Schema"]["description"],
            }));
        }
    }
    Ok(owned)
}

/// Maturity of the most mature served version.
fn maturity(owned: &[Value]) -> &'static str {
    let has = |word: &str| owned.iter().any(|o| text(&o["version"]).contains(word));
    match (has("beta"), has("alpha")) {
        (true, _) => "beta",
        (false, true) => "alpha",
        (false, false) => "stable",
    }
}

/// The permissions granted by bindings of roles of `kind`, by account.
fn rights(objects: &[Value], kind: &str) -> Result<Vec<Value>> {
    let binding = format!("{kind}Binding");
    let is_binding = |o: &&Value| o["kind"] == *binding && !manifests::is_agents(o);
    let right = |bound: &Value| {
        let name = &bound["roleRef"]["name"];
        let is_role = |o: &&Value| o["kind"] == kind && o["metadata"]["name"] == *name;
        let role = objects.iter().find(is_role);
        let rules = &role.with_context(|| format!("no {kind} {name}"))?["rules"];
        Ok(json!({"serviceAccountName": bound["subjects"][0]["name"], "rules": rules}))
    };
    objects.iter().filter(is_binding).map(right).collect()
}

/// The controller for any namespace and any user. Without the argument, its lease is in the
/// namespace in which it runs. The user is left to OpenShift, whose pods may not request one; on
/// other clusters it is set by the image.
fn portable(controller: &Value) -> Value {
    let mut controller = controller.clone();
    manifests::strip(&mut controller, "olm");
    let pod = &mut controller["spec"]["template"]["spec"];
    let containers = pod["containers"].as_array_mut().into_iter().flatten();
    for container in containers {
        if let Some(arguments) = container["args"].as_array_mut() {
            arguments.retain(|argument| !text(argument).starts_with("--lease-namespace="));
        }
        leave_user_open(container);
    }
    leave_user_open(pod);
    let metadata = &controller["metadata"];
    json!({"name": metadata["name"], "label": metadata["labels"], "spec": controller["spec"]})
}

fn leave_user_open(part: &mut Value) {
    if let Some(security) = part["securityContext"].as_object_mut() {
        security.retain(|field, _| field != "runAsUser" && field != "runAsGroup");
    }
}

/// Images of all pods and of the server, by name; users who mirror images also need the agent's
/// image.
fn images_of(objects: &[Value]) -> BTreeMap<String, String> {
    let pods = objects
        .iter()
        .map(|object| &object["spec"]["template"]["spec"]);
    let containers = pods.flat_map(|pod| pod["containers"].as_array().into_iter().flatten());
    let images = containers.flat_map(|container| {
        let arguments = container["args"].as_array().into_iter().flatten();
        let servers = arguments.filter_map(|a| a.as_str()?.strip_prefix("--server-image="));
        container["image"].as_str().into_iter().chain(servers)
    });
    let name = |image: &str| {
        let name = image.rsplit('/').next().unwrap_or_default();
        name.split([':', '@']).next().unwrap_or_default().to_owned()
    };
    images
        .map(|image| (name(image), image.to_owned()))
        .collect()
}

/// Labels by which OperatorHub hides operators that do not run on a cluster's nodes.
fn platforms() -> Value {
    let of = |a: Architecture| format!("operatorframework.io/arch.{}", a.oci());
    let mut keys: Vec<String> = Architecture::ALL.map(of).into();
    keys.push("operatorframework.io/os.linux".to_owned());
    keys.into_iter()
        .map(|key| (key, json!("supported")))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_are_pinned_by_the_digests_that_were_built() {
        let built = ["agent", "cli", "controller", "params", "server"];
        let digest = |name: &str| {
            let reference = format!("{REGISTRY}/albacore-{name}:1.2.3");
            (reference, format!("sha256:{name}"))
        };
        let wanted = ["agent", "controller", "params", "server"];
        let pin = |name: &str| format!("--set={name}.image.digest=sha256:{name}");
        assert_eq!(pins(&built.map(digest)), wanted.map(pin));
    }

    #[test]
    fn the_channel_is_that_of_the_major_version() {
        assert_eq!(channel("1.22.3"), "stable-v1");
        assert_eq!(channel("0.2.0-rc.1"), "candidate-v0");
    }
}
