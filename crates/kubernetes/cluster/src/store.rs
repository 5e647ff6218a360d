//! The cache of a watch: the objects of a kind, and their changes.
//!
//! kube's own store does not report deletions that happened while a watch was interrupted: a relist
//! silently replaces its content, so the owner of a child that was deleted meanwhile is never
//! reconciled. Here each list is compared with the cache, and every difference is reported as a
//! change.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, PoisonError, RwLock};

use kube_client::core::Resource;

use crate::ObjectKey;
use crate::watch::Malformed;

/// A difference between the cache and the API server.
#[derive(Clone, Debug)]
pub enum ObjectChange<K> {
    /// The object was created or changed.
    Applied {
        /// The previous object; `None` if it was not cached.
        old: Option<Arc<K>>,
        new: Arc<K>,
    },
    /// The object was deleted; contains its last cached version.
    Deleted(Arc<K>),
    /// The object does not match its type. Reported once for each version of it.
    Malformed(Malformed),
}

#[derive(Debug)]
pub(crate) struct Store<K> {
    cache: RwLock<CachedObjects<K>>,
    /// Computes the index keys of an object.
    index_keys_of: fn(&K) -> Vec<ObjectKey>,
}

#[derive(Debug)]
struct CachedObjects<K> {
    objects: HashMap<ObjectKey, Arc<K>>,
    /// The objects by index key; contains no empty lists.
    index: HashMap<ObjectKey, Vec<Arc<K>>>,
    /// Uid and resource version of objects that do not match their type.
    malformed: HashMap<ObjectKey, (String, String)>,
}

/// Uid and resource version, which identify a version of an object.
fn identity(object: &impl Resource) -> (Option<&str>, Option<&str>) {
    let meta = object.meta();
    (meta.uid.as_deref(), meta.resource_version.as_deref())
}

impl<K> Default for Store<K> {
    fn default() -> Self {
        Self::indexed_by(|_| Vec::new())
    }
}

impl<K> Store<K> {
    /// Creates an empty store that indexes objects by these keys.
    pub(crate) fn indexed_by(index_keys_of: fn(&K) -> Vec<ObjectKey>) -> Self {
        let cache = CachedObjects {
            objects: HashMap::new(),
            index: HashMap::new(),
            malformed: HashMap::new(),
        };
        Self {
            cache: RwLock::new(cache),
            index_keys_of,
        }
    }
}

impl<K> CachedObjects<K> {
    fn remove_from_index(&mut self, object: &Arc<K>, index_keys: Vec<ObjectKey>) {
        for index_key in index_keys {
            if let Some(members) = self.index.get_mut(&index_key) {
                members.retain(|member| !Arc::ptr_eq(member, object));
                if members.is_empty() {
                    self.index.remove(&index_key);
                }
            }
        }
    }
}

impl<K: Resource> Store<K> {
    /// Calls `read` with the cache.
    fn read<T>(&self, read: impl FnOnce(&CachedObjects<K>) -> T) -> T {
        read(&self.cache.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Calls `write` with the cache. No change can panic halfway.
    fn write<T>(&self, write: impl FnOnce(&mut CachedObjects<K>) -> T) -> T {
        write(&mut self.cache.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.read(|cache| cache.objects.get(key).cloned())
    }

    /// The objects with this index key, in arbitrary order.
    pub(crate) fn by_index(&self, index_key: &ObjectKey) -> Vec<Arc<K>> {
        self.read(|cache| cache.index.get(index_key).cloned().unwrap_or_default())
    }

    pub(crate) fn select(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.read(|cache| {
            let objects = cache.objects.values();
            objects
                .filter(|object| is_wanted(object))
                .cloned()
                .collect()
        })
    }

    /// The numbers of valid and of malformed objects.
    pub(crate) fn counts(&self) -> (usize, usize) {
        self.read(|cache| (cache.objects.len(), cache.malformed.len()))
    }

    /// Caches an object.
    pub(crate) fn apply(&self, key: ObjectKey, object: K) -> Vec<ObjectChange<K>> {
        self.write(|cache| {
            cache.malformed.remove(&key);
            let old = cache.objects.get(&key).cloned();
            if old
                .as_ref()
                .is_some_and(|old| identity(&**old) == identity(&object))
            {
                return Vec::new();
            }
            let new = Arc::new(object);
            cache.objects.insert(key, new.clone());
            if let Some(old) = &old {
                cache.remove_from_index(old, (self.index_keys_of)(old));
            }
            for index_key in (self.index_keys_of)(&new) {
                cache.index.entry(index_key).or_default().push(new.clone());
            }
            match old {
                // Deleted and created again while the watch was interrupted.
                Some(old) if identity(&*old).0 != identity(&*new).0 => {
                    vec![
                        ObjectChange::Deleted(old),
                        ObjectChange::Applied { old: None, new },
                    ]
                }
                old => vec![ObjectChange::Applied { old, new }],
            }
        })
    }

    /// Records an object that does not match its type. Removes the cached version, which is
    /// outdated.
    pub(crate) fn apply_malformed(
        &self,
        key: ObjectKey,
        malformed: Malformed,
    ) -> Option<ObjectChange<K>> {
        let version = (malformed.uid().to_owned(), malformed.version().to_owned());
        self.write(|cache| {
            if let Some(old) = cache.objects.remove(&key) {
                cache.remove_from_index(&old, (self.index_keys_of)(&old));
            }
            let before = cache.malformed.insert(key, version.clone());
            (before != Some(version)).then_some(ObjectChange::Malformed(malformed))
        })
    }

    /// Removes an object that was deleted.
    pub(crate) fn remove(&self, key: &ObjectKey) -> Option<ObjectChange<K>> {
        self.write(|cache| {
            cache.malformed.remove(key);
            let old = cache.objects.remove(key)?;
            cache.remove_from_index(&old, (self.index_keys_of)(&old));
            Some(ObjectChange::Deleted(old))
        })
    }

    /// Removes the objects of `namespace` (of all namespaces if `None`) that are not in `listed`.
    pub(crate) fn retain_listed(
        &self,
        namespace: Option<&str>,
        listed: &HashSet<ObjectKey>,
    ) -> Vec<ObjectChange<K>> {
        let is_gone = |key: &ObjectKey| {
            namespace.is_none_or(|namespace| key.namespace == namespace) && !listed.contains(key)
        };
        self.write(|cache| {
            cache.malformed.retain(|key, _| !is_gone(key));
            let gone = cache.objects.extract_if(|key, _| is_gone(key));
            let gone: Vec<Arc<K>> = gone.map(|(_, object)| object).collect();
            for object in &gone {
                cache.remove_from_index(object, (self.index_keys_of)(object));
            }
            gone.into_iter().map(ObjectChange::Deleted).collect()
        })
    }
}

#[cfg(test)]
mod tests;
