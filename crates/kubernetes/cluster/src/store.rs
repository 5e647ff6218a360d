//! What a watch knows: the objects of a kind, and what changed.
//!
//! kube's own store does not tell what vanished while a watch was down: a list after a pause
//! replaces everything in silence, and whoever owns a child that was deleted meanwhile never hears
//! of it. Here a list is compared with what was known, so every difference is a change, and what is
//! the same is none.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube_client::core::Resource;

use crate::Key;
use crate::watch::Malformed;

/// A difference between what was known and what is.
#[derive(Clone, Debug)]
pub enum Change<K> {
    /// The object is there, new or changed.
    Applied {
        /// As it was; `None` if it was not known.
        old: Option<Arc<K>>,
        new: Arc<K>,
    },
    /// The object is gone; as it was when last seen.
    Gone(Arc<K>),
    /// The object is there and cannot be read: it does not fit its type. Told once for each version
    /// of it.
    Malformed(Malformed),
}

/// The objects of a watch.
#[derive(Debug)]
pub(crate) struct Store<K> {
    known: RwLock<Known<K>>,
}

#[derive(Debug)]
struct Known<K> {
    objects: HashMap<Key, Arc<K>>,
    /// Uid and resource version of objects that cannot be read.
    malformed: HashMap<Key, (String, String)>,
}

/// Uid and resource version: which object, in which state.
fn identity(object: &impl Resource) -> (Option<&str>, Option<&str>) {
    let meta = object.meta();
    (meta.uid.as_deref(), meta.resource_version.as_deref())
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        let known = Known {
            objects: HashMap::new(),
            malformed: HashMap::new(),
        };
        Self {
            known: RwLock::new(known),
        }
    }
}

impl<K: Resource> Store<K> {
    /// Runs `read` on what is known.
    fn read<T>(&self, read: impl FnOnce(&Known<K>) -> T) -> T {
        read(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Runs `write` on what is known. No change of it can panic half way.
    fn write<T>(&self, write: impl FnOnce(&mut Known<K>) -> T) -> T {
        write(&mut self.known.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get(&self, key: &Key) -> Option<Arc<K>> {
        self.read(|known| known.objects.get(key).cloned())
    }

    pub(crate) fn select(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read(|known| {
            let objects = known.objects.values();
            objects
                .filter(|object| is_wanted(object))
                .cloned()
                .collect()
        })
    }

    /// Objects and malformed objects.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.read(|known| (known.objects.len(), known.malformed.len()))
    }

    /// The object is there.
    pub(crate) fn apply(&self, key: Key, object: K) -> Vec<Change<K>> {
        self.write(|known| {
            known.malformed.remove(&key);
            let old = known.objects.get(&key).cloned();
            if old
                .as_ref()
                .is_some_and(|old| identity(&**old) == identity(&object))
            {
                return Vec::new();
            }
            let new = Arc::new(object);
            known.objects.insert(key, new.clone());
            match old {
                // Deleted and created anew while nobody looked.
                Some(old) if identity(&*old).0 != identity(&*new).0 => {
                    vec![Change::Gone(old), Change::Applied { old: None, new }]
                }
                old => vec![Change::Applied { old, new }],
            }
        })
    }

    /// The object is there and cannot be read. What was known of it is forgotten: it is not so any
    /// more.
    pub(crate) fn hold_malformed(&self, key: Key, malformed: Malformed) -> Option<Change<K>> {
        let version = (malformed.uid().to_owned(), malformed.version().to_owned());
        self.write(|known| {
            known.objects.remove(&key);
            let before = known.malformed.insert(key, version.clone());
            (before != Some(version)).then_some(Change::Malformed(malformed))
        })
    }

    /// The object is gone.
    pub(crate) fn remove(&self, key: &Key) -> Option<Change<K>> {
        self.write(|known| {
            known.malformed.remove(key);
            known.objects.remove(key).map(Change::Gone)
        })
    }

    /// A list of `namespace` (all of them without one) had these keys and no others.
    pub(crate) fn keep(&self, namespace: Option<&str>, listed: &HashSet<Key>) -> Vec<Change<K>> {
        let is_gone = |key: &Key| {
            namespace.is_none_or(|namespace| key.namespace == namespace) && !listed.contains(key)
        };
        self.write(|known| {
            known.malformed.retain(|key, _| !is_gone(key));
            let gone = known.objects.extract_if(|key, _| is_gone(key));
            gone.map(|(_, object)| Change::Gone(object)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
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

    fn told(changes: &[Change<ConfigMap>]) -> Vec<String> {
        let version = |map: &ConfigMap| map.metadata.resource_version.clone().unwrap();
        let tell = |change: &Change<ConfigMap>| match change {
            Change::Applied { old, new } => {
                let old = old.as_ref().map_or("none".to_owned(), |old| version(old));
                format!("{old} -> {}", version(new))
            }
            Change::Gone(old) => format!("{} gone", version(old)),
            Change::Malformed(malformed) => format!("{} malformed", malformed.version()),
        };
        changes.iter().map(tell).collect()
    }

    #[test]
    fn only_differences_are_changes() {
        let store = Store::default();
        let key = Key::new("a", "x");
        let apply = |uid, version| told(&store.apply(key.clone(), map("x", uid, version)));
        assert_eq!(apply("u", "1"), ["none -> 1"]);
        assert_eq!(apply("u", "1"), [""; 0]);
        assert_eq!(apply("u", "2"), ["1 -> 2"]);
        assert_eq!(apply("v", "3"), ["2 gone", "none -> 3"]);
        store.apply(Key::new("b", "y"), map("y", "w", "4"));
        assert_eq!(told(&store.keep(Some("b"), &HashSet::new())), ["4 gone"]);
        let listed = HashSet::from([key.clone()]);
        assert_eq!(told(&store.keep(None, &listed)), [""; 0]);
        assert_eq!(told(&store.keep(None, &HashSet::new())), ["3 gone"]);
        assert!(store.remove(&key).is_none());
    }

    #[test]
    fn a_malformed_object_is_told_once_a_version_and_is_not_known() {
        let store = Store::<ConfigMap>::default();
        let key = Key::new("a", "x");
        store.apply(key.clone(), map("x", "u", "1"));
        let malformed = |version: &str| {
            let regarding = ObjectReference {
                uid: Some("u".to_owned()),
                resource_version: Some(version.to_owned()),
                ..ObjectReference::default()
            };
            let error = "no".to_owned();
            store.hold_malformed(key.clone(), Malformed { regarding, error })
        };
        assert!(malformed("2").is_some());
        assert!(malformed("2").is_none());
        assert!(malformed("3").is_some());
        assert!(store.get(&key).is_none());
        assert_eq!(store.counts(), (0, 1));
        assert_eq!(
            told(&store.apply(key.clone(), map("x", "u", "4"))),
            ["none -> 4"]
        );
        assert_eq!(store.counts(), (1, 0));
    }
}
