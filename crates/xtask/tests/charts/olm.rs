//! The bundle for the Operator Lifecycle Manager: contains exactly the objects rendered by the
//! chart, packed in the format of OLM, and accepted by a real API server in the form in which OLM
//! applies them.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;

use albacore_xtask::crds;
use albacore_xtask::images::Source;
use albacore_xtask::manifests::helm;
use albacore_xtask::release::{self, olm};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::dry_run;
use crate::plane::{apply, file};
use crate::rendered::{of_kind, render};
use crate::root;

/// Namespace of OLM in these tests, which differs from the chart's.
const NAMESPACE: &str = "olm-operators";

/// JSON pointers of fields that OLM, OperatorHub and the console read.
const REQUIRED: [&str; 24] = [
    "/metadata/annotations/alm-examples",
    "/metadata/annotations/capabilities",
    "/metadata/annotations/categories",
    "/metadata/annotations/containerImage",
    "/metadata/annotations/createdAt",
    "/metadata/annotations/description",
    "/metadata/annotations/olm.skipRange",
    "/metadata/annotations/operatorframework.io~1suggested-namespace",
    "/metadata/annotations/repository",
    "/metadata/annotations/support",
    "/metadata/labels/operatorframework.io~1arch.amd64",
    "/metadata/labels/operatorframework.io~1arch.arm64",
    "/metadata/name",
    "/spec/description",
    "/spec/displayName",
    "/spec/icon/0/base64data",
    "/spec/icon/0/mediatype",
    "/spec/keywords/0",
    "/spec/links/0/url",
    "/spec/maturity",
    "/spec/minKubeVersion",
    "/spec/provider/name",
    "/spec/provider/url",
    "/spec/version",
];

type Files = BTreeMap<String, String>;

fn files(values: &[&str]) -> Files {
    let source = Source::read(root()).unwrap();
    let values: Vec<String> = values.iter().map(|&value| value.to_owned()).collect();
    let files = olm::files(root(), &source, &values).unwrap();
    files.into_iter().collect()
}

fn read(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn version_of(files: &Files) -> Value {
    read(&files["manifests/albacore.clusterserviceversion.yaml"])
}

fn named<'a>(objects: &'a [Value], kind: &str, name: &str) -> &'a Value {
    let mut of_kind = objects.iter().filter(|object| object["kind"] == kind);
    of_kind.find(|o| o["metadata"]["name"] == name).unwrap()
}

fn is_agents(object: &Value) -> bool {
    object["metadata"]["labels"]["app.kubernetes.io/component"] == "agent"
}

/// The objects of the bundle other than its ClusterServiceVersion.
fn included_objects(files: &Files) -> Vec<Value> {
    let manifests = files
        .iter()
        .filter(|(path, _)| path.starts_with("manifests/"));
    let objects = manifests.map(|(_, text)| read(text));
    objects
        .filter(|o| o["kind"] != "ClusterServiceVersion")
        .collect()
}

#[test]
fn every_field_that_olm_and_operatorhub_show_is_there() {
    let version = version_of(&files(&[]));
    for pointer in REQUIRED {
        let value = version.pointer(pointer).and_then(Value::as_str);
        assert!(value.is_some_and(|text| !text.is_empty()), "{pointer}");
    }
    assert_eq!(version["spec"]["version"], env!("CARGO_PKG_VERSION"));
    let supported = |mode: &&Value| mode["supported"] == true;
    let modes = version["spec"]["installModes"].as_array().unwrap();
    let modes: Vec<&Value> = modes.iter().filter(supported).collect();
    assert_eq!(
        modes,
        [&json!({"type": "AllNamespaces", "supported": true})]
    );
    let examples = version["metadata"]["annotations"]["alm-examples"].as_str();
    let examples: Vec<Value> = serde_json::from_str(examples.unwrap()).unwrap();
    for example in examples {
        serde_json::from_value::<albacore_api::InferenceDeployment>(example).unwrap();
    }
    let description = version["spec"]["description"].as_str().unwrap();
    assert!(description.contains("/agent.yaml\n"), "{description}");
}

#[test]
fn every_served_version_is_owned_and_the_definitions_are_those_of_the_folder() {
    let files = files(&[]);
    let mut served = BTreeSet::new();
    for (path, text) in crds::generate() {
        let Ok(name) = path.strip_prefix("crds") else {
            continue;
        };
        assert_eq!(files[&format!("manifests/{}", name.display())], text);
        let definition = read(&text);
        for version in definition["spec"]["versions"].as_array().unwrap() {
            if version["served"] == true {
                let name = definition["metadata"]["name"].to_string();
                served.insert((name, version["name"].to_string()));
            }
        }
    }
    let owned = version_of(&files)["spec"]["customresourcedefinitions"]["owned"].take();
    let pair = |owned: &Value| (owned["name"].to_string(), owned["version"].to_string());
    let owned: BTreeSet<_> = owned.as_array().unwrap().iter().map(pair).collect();
    assert_eq!(owned, served);
}

#[test]
fn the_rights_and_the_controller_are_those_of_the_chart() {
    let rendered = render(&[]);
    let version = version_of(&files(&[]));
    let install = &version["spec"]["install"]["spec"];
    let account = "albacore-controller";
    let everywhere = &named(&rendered, "ClusterRole", account)["rules"];
    let at_home = &named(&rendered, "Role", "albacore-controller-lease")["rules"];
    let rights = |rules: &Value| json!([{"serviceAccountName": account, "rules": rules}]);
    assert_eq!(install["clusterPermissions"], rights(everywhere));
    assert_eq!(install["permissions"], rights(at_home));
    // No other binding grants permissions to the account.
    let is_of_account = |o: &&Value| o["subjects"][0]["name"] == account;
    assert_eq!(rendered.iter().filter(is_of_account).count(), 2);

    let [deployment] = &install["deployments"].as_array().unwrap()[..] else {
        panic!("one Deployment: {install}")
    };
    let mut wanted = of_kind(&rendered, "Deployment")[0]["spec"].clone();
    let pod = &mut wanted["template"]["spec"];
    let arguments = pod["containers"][0]["args"].as_array_mut().unwrap();
    arguments.retain(|argument| argument != "--lease-namespace=albacore-system");
    for security in ["/securityContext", "/containers/0/securityContext"] {
        let security = pod.pointer_mut(security).unwrap().as_object_mut().unwrap();
        assert_eq!(security.remove("runAsUser"), Some(json!(65532)));
        assert_eq!(security.remove("runAsGroup"), Some(json!(65532)));
        assert_eq!(security["runAsNonRoot"], true);
    }
    assert_eq!(deployment["spec"], wanted);
    assert_eq!(deployment["name"], account);
}

#[test]
fn every_image_that_the_chart_starts_is_related_and_may_be_pinned() {
    let digest = format!("sha256:{}", "0123".repeat(16));
    let pin = format!("--set=server.image.digest={digest}");
    let version = version_of(&files(&[&pin]));
    let related = version["spec"]["relatedImages"].as_array().unwrap();
    let related: BTreeSet<&str> = related
        .iter()
        .map(|i| i["image"].as_str().unwrap())
        .collect();
    let text = serde_json::to_string(&render(&[&pin])).unwrap();
    let images = text.match_indices("registry.albacore.dev/").map(|(at, _)| {
        let rest = &text[at..];
        rest.split('"').next().unwrap()
    });
    assert_eq!(related, images.collect());
    assert_eq!(related.len(), 4);
    assert!(
        related
            .iter()
            .any(|image| image.ends_with(&format!("albacore-server@{digest}")))
    );
}

/// The bundle and `agent.yaml` together contain the objects that the chart installs.
#[test]
fn what_is_not_in_the_bundle_is_in_the_manifest_of_the_agent() {
    let bundle = included_objects(&files(&[]));
    let agent = std::fs::read_to_string(root().join("manifests/agent.yaml")).unwrap();
    let agent = helm::objects(&agent).unwrap();
    let name = |o: &Value| format!("{} {}", o["kind"], o["metadata"]["name"]).replace('"', "");
    let names = |objects: &[Value]| -> BTreeSet<String> { objects.iter().map(name).collect() };
    let mut left = names(&render(&[]));
    for taken in names(&bundle).union(&names(&agent)) {
        assert!(left.remove(taken), "{taken} is not of the chart");
    }
    let is_agents = agent.iter().all(is_agents);
    assert!(is_agents && names(&agent).contains("DaemonSet albacore-agent"));
    let of_olm = [
        "ClusterRole albacore-controller",
        "ClusterRoleBinding albacore-controller",
        "Deployment albacore-controller",
        "NetworkPolicy albacore-controller",
        "Pod albacore-check",
        "Role albacore-controller-lease",
        "RoleBinding albacore-controller-lease",
        "ServiceAccount albacore-controller",
    ];
    assert_eq!(left, of_olm.map(str::to_owned).into());
    // OLM sets the namespace into which it installs.
    assert!(
        bundle
            .iter()
            .all(|object| object["metadata"]["namespace"].is_null())
    );
}

/// The files in a tar, by path.
fn unpacked(tar: impl std::io::Read) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in tar::Archive::new(tar).entries().unwrap() {
        let mut entry = entry.unwrap();
        let path = entry.path().unwrap().display().to_string();
        let mut bytes = Vec::new();
        entry.read_to_end(&mut bytes).unwrap();
        if entry.header().entry_type().is_file() {
            files.insert(path, bytes);
        }
    }
    files
}

#[test]
fn the_image_holds_the_files_and_says_so_in_its_labels() {
    let folder = tempfile::tempdir().unwrap();
    release::bundle(root(), folder.path(), "registry.example.org/albacore").unwrap();
    let open = |name: &str| std::fs::File::open(folder.path().join(name)).unwrap();
    let image = unpacked(open("albacore-olm-bundle.tar"));
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().unwrap();
        let bytes = &image[&format!("blobs/{}", digest.replace(':', "/"))];
        let sum = Sha256::digest(bytes);
        let sum: String = sum.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, format!("sha256:{sum}"));
        bytes.clone()
    };
    let json = |bytes: &[u8]| serde_json::from_slice::<Value>(bytes).unwrap();
    let index = json(&image["index.json"]);
    let named = &index["manifests"][0];
    let reference = named["annotations"]["io.containerd.image.name"].as_str();
    let tag = env!("CARGO_PKG_VERSION");
    let wanted = format!("registry.example.org/albacore/albacore-olm-bundle:{tag}");
    assert_eq!(reference, Some(wanted.as_str()));
    let wanted: BTreeMap<String, Vec<u8>> =
        files(&["--set=image.registry=registry.example.org/albacore"])
            .into_iter()
            .map(|(path, text)| (path, text.into_bytes()))
            .collect();
    let annotations = read(std::str::from_utf8(&wanted["metadata/annotations.yaml"]).unwrap());
    let architectures = json(&blob(named))["manifests"].take();
    assert_eq!(architectures.as_array().unwrap().len(), 2);
    for architecture in architectures.as_array().unwrap() {
        let manifest = json(&blob(architecture));
        let labels = &json(&blob(&manifest["config"]))["config"]["Labels"];
        for (key, value) in annotations["annotations"].as_object().unwrap() {
            assert_eq!(&labels[key], value, "{key}");
        }
        let layer = blob(&manifest["layers"][0]);
        assert_eq!(unpacked(flate2::read::GzDecoder::new(&layer[..])), wanted);
    }
    let archive = open(&format!("albacore-{tag}-olm-bundle.tar.gz"));
    assert_eq!(unpacked(flate2::read::GzDecoder::new(archive)), wanted);
}

/// A role with these rules and its binding to the account.
fn granted(name: &str, permission: &Value) -> [Value; 2] {
    let account = &permission["serviceAccountName"];
    let api = "rbac.authorization.k8s.io";
    let version = format!("{api}/v1");
    [
        json!({
            "apiVersion": version, "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": permission["rules"],
        }),
        json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAMESPACE}],
        }),
    ]
}

/// The objects that OLM creates from a ClusterServiceVersion with an OperatorGroup for all
/// namespaces.
fn created_by_olm(version: &Value) -> Vec<Value> {
    let install = &version["spec"]["install"]["spec"];
    let mut objects = Vec::new();
    for (index, list) in ["clusterPermissions", "permissions"].iter().enumerate() {
        let permission = &install[list][0];
        objects.extend(granted(&format!("albacore.v0-{index}"), permission));
        objects.push(json!({
            "apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": permission["serviceAccountName"], "namespace": NAMESPACE},
        }));
    }
    let deployment = &install["deployments"][0];
    let mut spec = deployment["spec"].clone();
    let annotations = spec["template"]["metadata"]["annotations"].as_object_mut();
    let of_version = version["metadata"]["annotations"].as_object().unwrap();
    annotations.unwrap().extend(of_version.clone());
    let (name, labels) = (&deployment["name"], &deployment["label"]);
    objects.push(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "spec": spec,
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": labels},
    }));
    objects
}

#[test]
fn the_api_server_takes_what_olm_makes_of_the_bundle() {
    let restricted = file(&format!(
        "apiVersion: v1\nkind: Namespace\nmetadata:\n  name: {NAMESPACE}\n  labels:\n    \
         pod-security.kubernetes.io/enforce: restricted\n    pod-security.kubernetes.io/warn: restricted\n"
    ));
    apply(&restricted);
    let files = files(&[]);
    let mut objects = included_objects(&files);
    for object in &mut objects {
        let is_namespaced = !["ClusterRole", "CustomResourceDefinition"]
            .map(Value::from)
            .contains(&object["kind"]);
        if is_namespaced {
            object["metadata"]["namespace"] = NAMESPACE.into();
        }
    }
    objects.extend(created_by_olm(&version_of(&files)));
    assert!(objects.len() > 10, "{} objects", objects.len());
    dry_run("the bundle", &objects);
}
