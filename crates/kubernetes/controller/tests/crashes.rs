//! Tests that after a crash of the controller after any of its writes, the next controller repairs
//! everything: the objects end in the same state as without a crash.
#![allow(clippy::unwrap_used)] // tests fail by panicking

mod rig;

use serde_json::{Value, json};

use rig::{CHILDREN, Rig, deployment, wait, wait_or};

/// More writes than any change of one deployment causes, including events.
const WRITES_MAX: u32 = 40;

/// An object without the fields that differ from run to run.
fn plain(mut object: Value) -> Value {
    object["status"] = Value::Null;
    let spec = object["spec"].as_object_mut();
    spec.into_iter()
        .for_each(|spec| spec.retain(|name, _| !name.starts_with("clusterIP")));
    let metadata = object["metadata"].as_object_mut().unwrap();
    metadata.retain(|name, _| ["name", "labels", "ownerReferences"].contains(&name.as_str()));
    object["metadata"]["ownerReferences"][0]["uid"] = Value::Null;
    object
}

/// The children in a namespace, and the conditions without their times.
fn world(rig: &Rig, namespace: &str) -> Value {
    let arguments = [
        "-n",
        namespace,
        "get",
        CHILDREN,
        "-l",
        "albacore.dev/deployment",
        "-o",
        "json",
    ];
    let found: Value = serde_json::from_str(&rig.kubectl(&arguments)).unwrap();
    let objects = found["items"]
        .as_array()
        .unwrap()
        .iter()
        .cloned()
        .map(plain);
    let found = rig.try_kubectl(&["-n", namespace, "get", "infd", "fraud", "-o", "json"]);
    let found: Value = serde_json::from_str(&found.unwrap_or_default()).unwrap_or_default();
    let conditions = found["status"]["conditions"]
        .as_array()
        .into_iter()
        .flatten();
    // The reason of Progressing is copied from the Deployment and depends on timing.
    let reason = |c: &Value| {
        if c["type"] == "Progressing" {
            Value::Null
        } else {
            c["reason"].clone()
        }
    };
    let conditions = conditions.map(|c| json!([c["type"], c["status"], reason(c)]));
    json!({
        "objects": objects.collect::<Vec<_>>(),
        "conditions": conditions.collect::<Vec<_>>(),
        "is_newest": found["status"]["observedGeneration"] == found["metadata"]["generation"],
    })
}

struct Story<'a> {
    rig: &'a Rig,
    namespace: String,
}

impl<'a> Story<'a> {
    fn new(rig: &'a Rig, number: u32) -> Self {
        let namespace = format!("story-{number}");
        rig.kubectl(&["create", "namespace", &namespace]);
        Self { rig, namespace }
    }

    fn create(&self) {
        let mut object = deployment("fraud", &json!({"replicas": 1}));
        object["metadata"]["namespace"] = self.namespace.as_str().into();
        self.rig.apply(&[object]);
    }

    /// Changes three children and deletes one.
    fn change(&self) {
        let template = json!({"spec": {"serviceAccountName": "theirs", "containers": []}});
        let patch = json!({"spec": {"threads": 3, "replicas": 2, "batching": {"maxRows": 64},
            "template": template}});
        let patch = patch.to_string();
        self.rig.kubectl(&[
            "-n",
            &self.namespace,
            "patch",
            "infd",
            "fraud",
            "--type=merge",
            "-p",
            &patch,
        ]);
    }

    fn delete(&self) {
        self.rig.kubectl(&[
            "-n",
            &self.namespace,
            "delete",
            "infd",
            "fraud",
            "--wait=false",
        ]);
    }

    /// Performs `act` while a controller runs that crashes after `writes`, then runs one that does
    /// not crash until the objects equal `end`. Returns whether the first one crashed.
    fn through(&self, writes: u32, act: impl Fn(&Self), end: &Value) -> bool {
        let lease = format!("{}-{}", self.namespace, rand());
        let writes = writes.to_string();
        let scope = ["--watch-namespace", &self.namespace, "--lease-name"];
        let mut dying = self
            .rig
            .launch(&[&scope[..], &[&lease, "--crash-after-writes", &writes]].concat());
        act(self);
        wait("it dies, or everything is done", || {
            dying.has_exited()
                || (world(self.rig, &self.namespace) == *end && {
                    // A last event or status write may follow.
                    std::thread::sleep(std::time::Duration::from_secs(1));
                    true
                })
        });
        let has_died = dying.has_exited();
        drop(dying);
        let lease = format!("{lease}-b");
        let controller = self.rig.launch(&[&scope[..], &[&lease]].concat());
        wait_or(
            || world(self.rig, &self.namespace) == *end,
            || {
                format!(
                    "after {writes} writes:\n{:#}\ninstead of\n{end:#}",
                    world(self.rig, &self.namespace)
                )
            },
        );
        drop(controller);
        has_died
    }
}

/// A number that differs between calls.
fn rand() -> u64 {
    use std::hash::{BuildHasher as _, RandomState};
    RandomState::new().hash_one(0_u8) % 1_000_000
}

/// The objects after they stopped changing.
fn settled(rig: &Rig, namespace: &str, is_begun: impl Fn(&Value) -> bool) -> Value {
    let mut before = Value::Null;
    let mut same = 0;
    wait("the world is settled", || {
        let now = world(rig, namespace);
        same = if now == before && is_begun(&now) {
            same + 1
        } else {
            0
        };
        before = now;
        same >= 15
    });
    before
}

#[test]
fn a_crash_after_any_write_ends_in_the_same_objects() {
    let rig = Rig::start(true);
    let clean = Story::new(&rig, 0);
    let controller = rig.controller(&["--watch-namespace", "story-0", "--lease-name", "clean"]);
    let has = |count: usize| {
        move |world: &Value| {
            world["objects"].as_array().unwrap().len() == count && world["is_newest"] == true
        }
    };
    clean.create();
    let created = settled(&rig, "story-0", has(7));
    clean.change();
    let changed = settled(&rig, "story-0", has(6));
    clean.delete();
    let deleted = settled(&rig, "story-0", |world| {
        world["objects"].as_array().unwrap().is_empty()
    });
    drop(controller);

    let mut crashes = 0;
    for writes in 1..WRITES_MAX {
        let story = Story::new(&rig, writes);
        let died = [
            story.through(writes, Story::create, &created),
            story.through(writes, Story::change, &changed),
            story.through(writes, Story::delete, &deleted),
        ];
        crashes += died.iter().filter(|died| **died).count();
        if !died.contains(&true) {
            println!("{crashes} crashes, all of them mended");
            assert!(crashes >= 12, "{crashes}");
            return;
        }
    }
    unreachable!("a change makes fewer than {WRITES_MAX} writes");
}
