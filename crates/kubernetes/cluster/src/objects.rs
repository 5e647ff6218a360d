//! Reads and writes single objects.
//!
//! Writes are server-side applies of exactly the owned fields, with one field manager and strict
//! validation: an unknown field is rejected, never dropped. Objects that another client applied are
//! changed by merge patches.

use std::time::Duration;

use kube_client::Api;
use kube_client::api::{
    DeleteParams, ListParams, Patch, PatchParams, Preconditions, PropagationPolicy,
};
use kube_client::core::{ApiResource, DynamicObject, ObjectList, ObjectMeta};
use serde_json::{Value, json};

use crate::limits::{PAGE_OBJECTS, REQUEST_TIME_MAX, RETRY_AFTER_DEFAULT};
use crate::middleware::Aborted;
use crate::{Cluster, ClusterError, ObjectKey};

/// The part of an object that is applied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ApplyTarget {
    Object,
    Status,
}

impl Cluster {
    fn api(&self, kind: &ApiResource, namespace: &str) -> Api<DynamicObject> {
        match namespace {
            "" => Api::all_with(self.client.clone(), kind),
            namespace => Api::namespaced_with(self.client.clone(), namespace, kind),
        }
    }

    /// Returns the stored object; `None` if it does not exist.
    ///
    /// # Errors
    /// The request fails.
    pub async fn get(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
    ) -> Result<Option<DynamicObject>, ClusterError> {
        let found = self.api(kind, &key.namespace).get_opt(&key.name).await;
        found.map_err(|error| self.explain(&action("get", kind, key), error))
    }

    /// Returns all objects of a kind that match the label selector `labels` (empty for all), in
    /// `namespace` or in all namespaces. Reads page by page.
    ///
    /// # Errors
    /// A request fails.
    pub async fn list(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        labels: &str,
    ) -> Result<Vec<DynamicObject>, ClusterError> {
        let api = &self.api(kind, namespace.unwrap_or_default());
        let all = ListParams::default().labels(labels);
        self.pages(kind, all, |page| async move { api.list(&page).await })
            .await
    }

    /// Returns the items of all pages of a list.
    async fn pages<K, F>(
        &self,
        kind: &ApiResource,
        all: ListParams,
        read: impl Fn(ListParams) -> F,
    ) -> Result<Vec<K>, ClusterError>
    where
        K: Clone,
        F: Future<Output = Result<ObjectList<K>, kube_client::Error>>,
    {
        let mut page = all.limit(PAGE_OBJECTS);
        let mut items = Vec::new();
        // bound: one page each turn; the API server ends the list.
        loop {
            let list = read(page.clone()).await;
            let list =
                list.map_err(|error| self.explain(&format!("list {}", kind.plural), error))?;
            items.extend(list.items);
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(items),
            }
        }
    }

    /// Returns at most `most` objects of a kind in `namespace` that match a field selector (e.g.
    /// `regarding.uid=a`).
    ///
    /// # Errors
    /// The request fails.
    pub async fn list_limited(
        &self,
        kind: &ApiResource,
        namespace: &str,
        fields: &str,
        most: u32,
    ) -> Result<Vec<DynamicObject>, ClusterError> {
        let page = ListParams::default().fields(fields).limit(most);
        let list = self.api(kind, namespace).list(&page).await;
        let list = list.map_err(|error| self.explain(&format!("list {}", kind.plural), error))?;
        Ok(list.items)
    }

    /// Returns the objects of a kind that have an annotation and match a field selector, in
    /// `namespace` or in all namespaces. Reads metadata only, page by page, because the API server
    /// has no selector for annotations.
    ///
    /// # Errors
    /// A request fails.
    pub async fn annotated(
        &self,
        kind: &ApiResource,
        namespace: Option<&str>,
        fields: &str,
        annotation: &str,
    ) -> Result<Vec<ObjectKey>, ClusterError> {
        let api = &self.api(kind, namespace.unwrap_or_default());
        let all = ListParams::default().fields(fields);
        let read = |page| async move { api.list_metadata(&page).await };
        let objects = self.pages(kind, all, read).await?;
        let metadata = objects.into_iter().map(|object| object.metadata);
        let annotated = metadata.filter(|meta| {
            let annotations = meta.annotations.as_ref();
            annotations.is_some_and(|all| all.contains_key(annotation))
        });
        let key = |meta: ObjectMeta| {
            let namespace = meta.namespace.unwrap_or_default();
            ObjectKey::new(namespace, meta.name.unwrap_or_default())
        };
        Ok(annotated.map(key).collect())
    }

    /// Applies the owned fields of an object: creates it or changes the fields that differ. Fields
    /// of other managers are kept; fields that were applied before and are missing in `object` are
    /// removed. With `metadata.uid` in `object`, only the object with this uid is changed
    /// (otherwise: Conflict), and none is created.
    ///
    /// # Errors
    /// The API server rejects it, or does not respond; see [`ClusterError::class`].
    pub async fn apply(
        &self,
        kind: &ApiResource,
        object: &Value,
    ) -> Result<DynamicObject, ClusterError> {
        self.apply_target(kind, object, ApplyTarget::Object).await
    }

    /// Like [`Cluster::apply`], for the object's status.
    ///
    /// # Errors
    /// Same as [`Cluster::apply`]; NotFound if the object does not exist.
    pub async fn apply_status(
        &self,
        kind: &ApiResource,
        object: &Value,
    ) -> Result<DynamicObject, ClusterError> {
        self.apply_target(kind, object, ApplyTarget::Status).await
    }

    async fn apply_target(
        &self,
        kind: &ApiResource,
        object: &Value,
        target: ApplyTarget,
    ) -> Result<DynamicObject, ClusterError> {
        let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
        let key = ObjectKey::new(text("namespace"), text("name"));
        let action = match target {
            ApplyTarget::Object => action("apply", kind, &key),
            ApplyTarget::Status => action("apply status of", kind, &key),
        };
        if key.name.is_empty() {
            let what = "an object without metadata.name cannot be applied".to_owned();
            return Err(ClusterError::InvalidRequest { action, what });
        }
        let api = self.api(kind, &key.namespace);
        let params = PatchParams::apply(self.manager).force().validation_strict();
        let applied = match target {
            ApplyTarget::Object => api.patch(&key.name, &params, &Patch::Apply(object)).await,
            ApplyTarget::Status => {
                let patch = Patch::Apply(object);
                api.patch_status(&key.name, &params, &patch).await
            }
        };
        applied.map_err(|error| self.explain(&action, error))
    }

    /// Sets one annotation of an existing object; nothing else is changed.
    ///
    /// # Errors
    /// NotFound if it does not exist; or the API server rejects the request or does not respond.
    pub async fn annotate(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        name: &str,
        value: &str,
    ) -> Result<DynamicObject, ClusterError> {
        let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
        let api = self.api(kind, &key.namespace);
        let patched = api.patch(&key.name, &self.merging(), &patch).await;
        patched.map_err(|error| self.explain(&action("annotate", kind, key), error))
    }

    /// Changes labels and annotations of the object with this uid by a merge patch (RFC 7396: null
    /// removes an entry); nothing else is changed.
    ///
    /// # Errors
    /// NotFound if it does not exist, Conflict if another object has the name now; or the API
    /// server rejects the request or does not respond.
    pub async fn merge_metadata(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        uid: &str,
        labels: &Value,
        annotations: &Value,
    ) -> Result<DynamicObject, ClusterError> {
        let metadata = json!({"uid": uid, "labels": labels, "annotations": annotations});
        let patch = Patch::Merge(json!({ "metadata": metadata }));
        let api = self.api(kind, &key.namespace);
        let patched = api.patch(&key.name, &self.merging(), &patch).await;
        patched.map_err(|error| self.explain(&action("patch", kind, key), error))
    }

    /// Sets the fields of `status` in the status of an existing object; nothing else is changed.
    ///
    /// # Errors
    /// NotFound if it does not exist; or the API server rejects the request or does not respond.
    pub async fn merge_status(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        status: &Value,
    ) -> Result<(), ClusterError> {
        let patch = Patch::Merge(json!({ "status": status }));
        let api = self.api(kind, &key.namespace);
        let patched = api.patch_status(&key.name, &self.merging(), &patch).await;
        patched
            .map(drop)
            .map_err(|error| self.explain(&action("merge status of", kind, key), error))
    }

    /// Changes fields of `spec` by a merge patch (RFC 7396: null removes a field) if the object is
    /// unchanged since it was `read`; returns the stored object.
    ///
    /// # Errors
    /// Conflict if any part of it, including its status, was written meanwhile; or the API server
    /// rejects the request or does not respond.
    pub async fn merge_spec(
        &self,
        kind: &ApiResource,
        read: &DynamicObject,
        spec: &Value,
    ) -> Result<DynamicObject, ClusterError> {
        let version = json!({"resourceVersion": read.metadata.resource_version});
        let patch = Patch::Merge(json!({"metadata": version, "spec": spec}));
        let key = ObjectKey::of(read);
        let api = self.api(kind, &key.namespace);
        let params = self.merging().validation_strict();
        let patched = api.patch(&key.name, &params, &patch).await;
        patched.map_err(|error| self.explain(&action("patch", kind, &key), error))
    }

    /// Checks by a dry run whether permissions and admission would allow [`Cluster::merge_spec`] to
    /// change these fields of an existing object.
    ///
    /// # Errors
    /// Same as [`Cluster::merge_spec`], except for conflicts.
    pub async fn try_merge_spec(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        spec: &Value,
    ) -> Result<(), ClusterError> {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let params = self.merging().validation_strict().dry_run();
        let api = self.api(kind, &key.namespace);
        let patched = api.patch(&key.name, &params, &patch).await;
        patched
            .map(drop)
            .map_err(|error| self.explain(&action("patch", kind, key), error))
    }

    fn merging(&self) -> PatchParams {
        PatchParams {
            field_manager: Some(self.manager.to_owned()),
            ..PatchParams::default()
        }
    }

    /// Deletes the object with this uid, with background propagation to its dependents. Returns
    /// `false` if it did not exist.
    ///
    /// # Errors
    /// Conflict if another object has the name now; or the API server rejects the request or does
    /// not respond.
    pub async fn delete(
        &self,
        kind: &ApiResource,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<bool, ClusterError> {
        let preconditions = Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        };
        let params = DeleteParams {
            preconditions: Some(preconditions),
            propagation_policy: Some(PropagationPolicy::Background),
            ..DeleteParams::default()
        };
        match self
            .api(kind, &key.namespace)
            .delete(&key.name, &params)
            .await
        {
            Ok(_) => Ok(true),
            Err(kube_client::Error::Api(status)) if status.code == 404 => Ok(false),
            Err(error) => Err(self.explain(&action("delete", kind, key), error)),
        }
    }

    /// Discovers `kind` of `api_version` (e.g. `monitoring.coreos.com/v1`); `None` if the API
    /// server does not serve it.
    ///
    /// # Errors
    /// The request fails.
    pub async fn discover(
        &self,
        api_version: &str,
        kind: &str,
    ) -> Result<Option<ApiResource>, ClusterError> {
        let listed = match api_version.split_once('/') {
            Some(_) => self.client.list_api_group_resources(api_version).await,
            None => self.client.list_core_api_resources(api_version).await,
        };
        let list = match listed {
            Ok(list) => list,
            Err(kube_client::Error::Api(status)) if status.code == 404 => return Ok(None),
            Err(error) => {
                return Err(self.explain(&format!("discover {api_version} {kind}"), error));
            }
        };
        let found = list
            .resources
            .into_iter()
            .find(|resource| resource.kind == kind && !resource.name.contains('/'));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        Ok(found.map(|resource| ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version: api_version.to_owned(),
            kind: resource.kind,
            plural: resource.name,
        }))
    }

    /// Converts an error of the client.
    pub(crate) fn explain(&self, action: &str, error: kube_client::Error) -> ClusterError {
        explain(action, error, self.control.pause_left())
    }
}

fn action(verb: &str, kind: &ApiResource, key: &ObjectKey) -> String {
    format!("{verb} {} {key}", kind.plural)
}

fn explain(action: &str, error: kube_client::Error, pause: Duration) -> ClusterError {
    let action = action.to_owned();
    match error {
        kube_client::Error::Api(status) => {
            let seconds = status.details.as_ref().map_or(0, |d| d.retry_after_seconds);
            let retry_after = Duration::from_secs(seconds.into());
            let retry_after = retry_after.max(pause).max(RETRY_AFTER_DEFAULT);
            ClusterError::Rejected {
                action,
                status,
                retry_after,
            }
        }
        kube_client::Error::Service(source) => match source.downcast_ref() {
            Some(Aborted::NotLeading) => ClusterError::NotLeading { action },
            Some(Aborted::TimedOut | Aborted::OverBudget) => ClusterError::TimedOut {
                action,
                seconds: REQUEST_TIME_MAX.as_secs(),
            },
            Some(Aborted::LeaseEnded) | None => ClusterError::NoResponse {
                action,
                source: Box::new(kube_client::Error::Service(source)),
            },
        },
        kube_client::Error::SerdeError(_) | kube_client::Error::FromUtf8(_) => {
            ClusterError::MalformedResponse {
                action,
                source: Box::new(error),
            }
        }
        kube_client::Error::BuildRequest(error) => ClusterError::InvalidRequest {
            action,
            what: error.to_string(),
        },
        other => ClusterError::NoResponse {
            action,
            source: Box::new(other),
        },
    }
}
