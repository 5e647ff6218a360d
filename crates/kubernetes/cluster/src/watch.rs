//! Watches: caches of the objects of a kind, kept up to date by list and watch.
//!
//! A malformed object does not affect the others: it is reported as [`ObjectChange::Malformed`]. An
//! interrupted watch is resumed; if its resource version has expired, the objects are listed again.
//! Managed fields and kubectl's last-applied annotation are not cached, because they take most of
//! the memory and are never read.

use std::collections::HashSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube_client::Api;
use kube_client::core::{ApiResource, Resource};
use kube_runtime::watcher::{self, Event};
use serde::de::DeserializeOwned;

use crate::error::with_causes;
use crate::jitter::backoff;
use crate::limits::{PAGE_OBJECTS, WATCH_PAUSE_MAX, WATCH_PAUSE_MIN, WATCH_SECONDS};
use crate::metrics::{ClusterMetrics, NameLabel};
use crate::parsed_object::ParsedObject;
use crate::store::{ObjectChange, Store};
use crate::{Cluster, ObjectKey, ReadinessGate, ReadinessGates, Shutdown};

/// The annotation in which kubectl stores the applied object of a client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The namespaces that a program watches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    #[default]
    All,
    /// These namespaces, with one watch each.
    Namespaces(Vec<String>),
}

#[derive(Clone, Debug)]
pub struct WatchOptions<K> {
    /// Name in metrics, logs and gates, e.g. `pods`.
    pub name: &'static str,
    /// The kind; `ApiResource::erase::<K>(&())` for a kind with a type.
    pub kind: ApiResource,
    pub scope: Scope,
    /// Label selector; empty for all objects.
    pub labels: String,
    /// Field selector, e.g. `spec.nodeName=a`; empty for all objects.
    pub fields: String,
    /// Removes fields that are never read, before an object is cached.
    pub trim: fn(&mut K),
    /// The index keys of an object, used by [`Watch::by_index`]; called after `trim`.
    pub index_keys: fn(&K) -> Vec<ObjectKey>,
}

impl<K> WatchOptions<K> {
    /// Watches all objects of a kind, with all fields.
    pub fn new(name: &'static str, kind: ApiResource) -> Self {
        Self {
            name,
            kind,
            scope: Scope::All,
            labels: String::new(),
            fields: String::new(),
            trim: |_| {},
            index_keys: |_| Vec::new(),
        }
    }
}

/// An object that does not match its type.
#[derive(Clone, Debug)]
pub struct Malformed {
    /// Reference to the object, for an event.
    pub regarding: ObjectReference,
    /// The invalid field and its error.
    pub error: String,
}

impl Malformed {
    fn of(kind: &ApiResource, metadata: ObjectMeta, error: String) -> Self {
        let regarding = ObjectReference {
            api_version: Some(kind.api_version.clone()),
            kind: Some(kind.kind.clone()),
            namespace: metadata.namespace,
            name: metadata.name,
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            field_path: None,
        };
        Self { regarding, error }
    }

    pub(crate) fn uid(&self) -> &str {
        self.regarding.uid.as_deref().unwrap_or_default()
    }

    pub(crate) fn version(&self) -> &str {
        self.regarding
            .resource_version
            .as_deref()
            .unwrap_or_default()
    }
}

/// The cached objects of a kind. Clones share the cache.
#[derive(Debug)]
pub struct Watch<K> {
    store: Arc<Store<K>>,
    /// Number of namespaces that have not been listed yet.
    unlisted: tokio::sync::watch::Receiver<usize>,
}

impl<K> Clone for Watch<K> {
    fn clone(&self) -> Self {
        Self {
            store: self.store.clone(),
            unlisted: self.unlisted.clone(),
        }
    }
}

impl<K: Resource> Watch<K> {
    /// The object, if it exists and matches its type.
    pub fn get(&self, key: &ObjectKey) -> Option<Arc<K>> {
        self.store.get(key)
    }

    /// The number of objects that exist and match their type.
    pub fn count(&self) -> usize {
        self.store.counts().0
    }

    /// The objects with an index key (see [`WatchOptions::index_keys`]), in arbitrary order. The
    /// run time depends only on their number.
    pub fn by_index(&self, key: &ObjectKey) -> Vec<Arc<K>> {
        self.store.by_index(key)
    }

    /// The objects that `is_wanted` accepts, in arbitrary order. Iterates over all objects.
    pub fn select(&self, is_wanted: impl Fn(&K) -> bool) -> Vec<Arc<K>> {
        self.store.select(is_wanted)
    }

    /// Whether every namespace was listed once; before that, a missing object may exist.
    pub fn is_synced(&self) -> bool {
        *self.unlisted.borrow() == 0
    }

    /// Waits until [`Watch::is_synced`]; forever if the program stops before, so select on
    /// [`Shutdown::triggered`] as well.
    pub async fn synced(&self) {
        let mut unlisted = self.unlisted.clone();
        if unlisted.wait_for(|left| *left == 0).await.is_err() {
            // The watch ended at shutdown and will never be synced.
            std::future::pending::<()>().await;
        }
    }
}

impl Cluster {
    /// Watches a kind until shutdown. `on_change` is called for each change, one at a time per
    /// namespace; it must not block (usually it adds a key to a [`crate::WorkQueue`]). A gate of
    /// `gates` waits for the first list.
    pub fn watch<K>(
        &self,
        options: WatchOptions<K>,
        gates: &ReadinessGates,
        shutdown: &Shutdown,
        on_change: impl Fn(ObjectChange<K>) + Send + Sync + 'static,
    ) -> Watch<K>
    where
        K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
    {
        let namespaces: Vec<Option<String>> = match &options.scope {
            Scope::All => vec![None],
            Scope::Namespaces(names) => names.iter().cloned().map(Some).collect(),
        };
        let (listed, unlisted) = tokio::sync::watch::channel(namespaces.len());
        let listed = Arc::new(listed);
        let gate = gates.add(format!("watch {}", options.name), "the first list");
        if namespaces.is_empty() {
            gate.pass();
        }
        let store = Arc::new(Store::indexed_by(options.index_keys));
        let on_change: Arc<dyn Fn(ObjectChange<K>) + Send + Sync> = Arc::new(on_change);
        for namespace in namespaces {
            let (passed, listed) = (gate.clone(), listed.clone());
            let watcher = Watcher {
                cluster: self.clone(),
                options: options.clone(),
                namespace,
                store: store.clone(),
                gate: gate.clone(),
                on_change: on_change.clone(),
                on_listed: Box::new(move || {
                    // The gate passes first, because a task that waits for the list may check
                    // readiness immediately.
                    listed.send_modify(|left| {
                        *left = left.saturating_sub(1);
                        if *left == 0 {
                            passed.pass();
                        }
                    });
                }),
            };
            shutdown.spawn(options.name, watcher.run());
        }
        Watch { store, unlisted }
    }
}

struct Watcher<K> {
    cluster: Cluster,
    options: WatchOptions<K>,
    namespace: Option<String>,
    store: Arc<Store<K>>,
    gate: ReadinessGate,
    on_change: Arc<dyn Fn(ObjectChange<K>) + Send + Sync>,
    /// Called after the first list.
    on_listed: Box<dyn Fn() + Send + Sync>,
}

impl<K> Watcher<K>
where
    K: Resource + Clone + Debug + DeserializeOwned + Send + Sync + 'static,
{
    async fn run(self) {
        let mut failures = 0;
        let mut was_listed = false;
        // bound: until the program stops; WATCH_PAUSE_MIN and more between two turns.
        loop {
            self.list_and_watch(&mut failures, &mut was_listed).await;
            tokio::time::sleep(pause(failures)).await;
        }
    }

    /// Lists and watches until the watch has to be restarted.
    async fn list_and_watch(&self, failures: &mut u32, was_listed: &mut bool) {
        let client = self.cluster.client.clone();
        let api: Api<ParsedObject<K>> = match &self.namespace {
            Some(namespace) => Api::namespaced_with(client, namespace, &self.options.kind),
            None => Api::all_with(client, &self.options.kind),
        };
        let mut config = watcher::Config::default()
            .timeout(WATCH_SECONDS)
            .page_size(PAGE_OBJECTS);
        config.label_selector =
            Some(self.options.labels.clone()).filter(|labels| !labels.is_empty());
        config.field_selector =
            Some(self.options.fields.clone()).filter(|fields| !fields.is_empty());
        let mut events = std::pin::pin!(watcher::watcher(api, config));
        let mut listing = HashSet::new();
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // `Init` announces a list before it is known whether the list is permitted.
                    if !matches!(event, Event::Init) {
                        *failures = 0;
                    }
                    if self.handle_event(event, &mut listing) && !*was_listed {
                        *was_listed = true;
                        (self.on_listed)();
                    }
                }
                Err(error) => {
                    *failures = failures.saturating_add(1);
                    self.report_failure(&error, *failures, *was_listed);
                    if is_too_old(&error) {
                        return;
                    }
                    tokio::time::sleep(pause(*failures)).await;
                }
            }
        }
    }

    /// Applies an event to the store; returns true if it completes a list.
    fn handle_event(
        &self,
        event: Event<ParsedObject<K>>,
        listing: &mut HashSet<ObjectKey>,
    ) -> bool {
        let is_end = matches!(event, Event::InitDone);
        let changes = match event {
            Event::Init => {
                listing.clear();
                Vec::new()
            }
            Event::InitApply(object) => {
                listing.insert(key_of(object.meta()));
                self.apply(object)
            }
            Event::InitDone => {
                let listed = std::mem::take(listing);
                self.store.retain_listed(self.namespace.as_deref(), &listed)
            }
            Event::Apply(object) => self.apply(object),
            Event::Delete(object) => {
                let gone = self.store.remove(&key_of(object.meta()));
                gone.into_iter().collect()
            }
        };
        for change in changes {
            (self.on_change)(change);
        }
        let (objects, malformed) = self.store.counts();
        let (metrics, name) = self.metrics();
        let gauge = |n: usize| i64::try_from(n).unwrap_or(i64::MAX);
        metrics.watched.get_or_create(&name).set(gauge(objects));
        metrics.malformed.get_or_create(&name).set(gauge(malformed));
        is_end
    }

    fn apply(&self, object: ParsedObject<K>) -> Vec<ObjectChange<K>> {
        let key = key_of(object.meta());
        match object {
            ParsedObject::Valid(mut object) => {
                let meta = object.meta_mut();
                meta.managed_fields = None;
                if let Some(annotations) = &mut meta.annotations {
                    annotations.remove(LAST_APPLIED);
                }
                (self.options.trim)(&mut object);
                self.store.apply(key, object)
            }
            ParsedObject::Malformed { metadata, error } => {
                let malformed = Malformed::of(&self.options.kind, *metadata, error);
                let change = self.store.apply_malformed(key, malformed);
                change.into_iter().collect()
            }
        }
    }

    fn metrics(&self) -> (&ClusterMetrics, NameLabel) {
        let name = self.options.name;
        (self.cluster.control.metrics().own(), NameLabel { name })
    }

    fn report_failure(&self, error: &watcher::Error, failures: u32, was_listed: bool) {
        let (metrics, name) = self.metrics();
        metrics.watch_failures.get_or_create(&name).inc();
        let watch = self.options.name;
        let error = match is_kind_unknown(error) {
            true => self.not_installed(),
            false => with_causes(error),
        };
        if !was_listed {
            self.gate.close(&format!("the first list ({error})"));
        }
        // A persistent failure is logged with decreasing frequency.
        match failures.is_power_of_two() {
            true => tracing::warn!(watch, error, failures, "a watch failed; it is resumed"),
            false => tracing::debug!(watch, error, failures, "a watch failed again"),
        }
    }

    fn not_installed(&self) -> String {
        let ApiResource {
            plural,
            group,
            version,
            ..
        } = &self.options.kind;
        format!(
            "the API server has no {plural}.{group}/{version}: install the custom resource \
             definition"
        )
    }
}

/// Whether the API server does not know the kind: its definition was not installed, or was removed.
fn is_kind_unknown(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube_client::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

fn pause(failures: u32) -> Duration {
    backoff(WATCH_PAUSE_MIN, WATCH_PAUSE_MAX, failures.saturating_sub(1))
}

fn key_of(meta: &ObjectMeta) -> ObjectKey {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    ObjectKey::new(text(&meta.namespace), text(&meta.name))
}

/// Whether the resource version from which to resume has expired. kube relists by itself if the
/// watch reports that, but not if the request that starts the watch fails with it.
fn is_too_old(error: &watcher::Error) -> bool {
    let watcher::Error::WatchStartFailed(kube_client::Error::Api(status)) = error else {
        return false;
    };
    status.code == 410
}
