//! Tests of reported changes, the index, and malformed objects.

use k8s_openapi::api::core::v1::{ConfigMap, ObjectReference};

use super::*;

fn map(name: &str, uid: &str, version: &str) -> ConfigMap {
    let mut map = ConfigMap::default();
    map.metadata.name = Some(name.to_owned());
    map.metadata.namespace = Some("a".to_owned());
    map.metadata.uid = Some(uid.to_owned());
    map.metadata.resource_version = Some(version.to_owned());
    map
}

fn changes(changes: &[ObjectChange<ConfigMap>]) -> Vec<String> {
    let version = |map: &ConfigMap| map.metadata.resource_version.clone().unwrap();
    let tell = |change: &ObjectChange<ConfigMap>| match change {
        ObjectChange::Applied { old, new } => {
            let old = old.as_ref().map_or("none".to_owned(), |old| version(old));
            format!("{old} -> {}", version(new))
        }
        ObjectChange::Deleted(old) => format!("{} gone", version(old)),
        ObjectChange::Malformed(malformed) => format!("{} malformed", malformed.version()),
    };
    changes.iter().map(tell).collect()
}

#[test]
fn only_differences_are_changes() {
    let store = Store::default();
    let key = ObjectKey::new("a", "x");
    let apply = |uid, version| changes(&store.apply(key.clone(), map("x", uid, version)));
    assert_eq!(apply("u", "1"), ["none -> 1"]);
    assert_eq!(apply("u", "1"), [""; 0]);
    assert_eq!(apply("u", "2"), ["1 -> 2"]);
    assert_eq!(apply("v", "3"), ["2 gone", "none -> 3"]);
    store.apply(ObjectKey::new("b", "y"), map("y", "w", "4"));
    assert_eq!(
        changes(&store.retain_listed(Some("b"), &HashSet::new())),
        ["4 gone"]
    );
    let listed = HashSet::from([key.clone()]);
    assert_eq!(changes(&store.retain_listed(None, &listed)), [""; 0]);
    assert_eq!(
        changes(&store.retain_listed(None, &HashSet::new())),
        ["3 gone"]
    );
    assert!(store.remove(&key).is_none());
}

#[test]
fn objects_are_found_by_their_current_index_keys() {
    let store = Store::<ConfigMap>::indexed_by(|map| {
        let index_keys = map.metadata.labels.iter().flat_map(|labels| labels.keys());
        index_keys
            .map(|index_key| ObjectKey::new("", index_key))
            .collect()
    });
    let key = |name: &str| ObjectKey::new("a", name);
    let apply = |name: &str, version: &str, index_keys: &[&str]| {
        let mut map = map(name, "u", version);
        let labels = index_keys.iter().map(|g| ((*g).to_owned(), String::new()));
        map.metadata.labels = Some(labels.collect());
        store.apply(key(name), map);
    };
    let members = |index_key: &str| {
        let found = store.by_index(&ObjectKey::new("", index_key)).into_iter();
        let mut names: Vec<_> = found.map(|map| ObjectKey::of(&*map).name).collect();
        names.sort();
        names.join(" ")
    };
    apply("x", "1", &["red", "old"]);
    apply("y", "2", &["red"]);
    assert_eq!((members("red"), members("old")), ("x y".into(), "x".into()));
    apply("x", "3", &["red", "new"]);
    assert_eq!(
        [members("red"), members("old"), members("new")],
        ["x y", "", "x"]
    );
    let regarding = ObjectReference::default();
    let error = "no".to_owned();
    store.apply_malformed(key("y"), Malformed { regarding, error });
    assert_eq!(members("red"), "x");
    apply("y", "4", &["red"]);
    store.remove(&key("x"));
    assert_eq!([members("red"), members("new")], ["y", ""]);
    store.retain_listed(None, &HashSet::new());
    assert_eq!(members("red"), "");
    assert!(store.read(|cache| cache.index.is_empty()));
}

#[test]
fn a_malformed_object_is_reported_once_per_version_and_not_cached() {
    let store = Store::<ConfigMap>::default();
    let key = ObjectKey::new("a", "x");
    store.apply(key.clone(), map("x", "u", "1"));
    let malformed = |version: &str| {
        let regarding = ObjectReference {
            uid: Some("u".to_owned()),
            resource_version: Some(version.to_owned()),
            ..ObjectReference::default()
        };
        let error = "no".to_owned();
        store.apply_malformed(key.clone(), Malformed { regarding, error })
    };
    assert!(malformed("2").is_some());
    assert!(malformed("2").is_none());
    assert!(malformed("3").is_some());
    assert!(store.get(&key).is_none());
    assert_eq!(store.counts(), (0, 1));
    assert_eq!(
        changes(&store.apply(key.clone(), map("x", "u", "4"))),
        ["none -> 4"]
    );
    assert_eq!(store.counts(), (1, 0));
}
