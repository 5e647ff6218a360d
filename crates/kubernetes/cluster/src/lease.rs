//! Leader election among several replicas: the leader is the holder of a Lease.
//!
//! Implemented here because `kube-lease-manager` 0.13 determines expiry by comparing the wall
//! clocks of two machines, and acquires a lease without sending the resource version that it read,
//! so that two candidates can both assume that they hold it. Here, as in client-go:
//! - every write contains the resource version on which it is based, so one of two candidates gets
//!   a conflict;
//! - a lease is free if it did not change for its whole duration on the candidate's own monotonic
//!   clock;
//! - the holder measures from before it sent a renewal, and stops writing after two thirds of the
//!   duration ([`crate::Writes::WhileLeading`]), while other candidates wait for all of it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1 as coordination;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use k8s_openapi::jiff::Timestamp;
use kube_client::Api;
use kube_client::api::PostParams;
use tokio::sync::{Notify, watch};

use crate::jitter::with_jitter;
use crate::limits::{LEASE_POLL, LEASE_RENEWALS, LEASE_TIME};
use crate::{Cluster, ClusterError, ErrorClass};

/// The lease, and the identity of the candidate.
#[derive(Clone, Debug)]
pub struct LeaseOptions {
    pub namespace: String,
    pub name: String,
    /// Unique among all processes, see [`crate::unique`].
    pub identity: String,
    /// How long the lease is valid without a renewal; whole seconds.
    pub time: Duration,
}

impl LeaseOptions {
    /// A lease of the default duration.
    pub fn new(namespace: &str, name: &str, identity: String) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            identity,
            time: LEASE_TIME,
        }
    }
}

/// A candidate or leader. After a loss of the lease it is a candidate again.
#[derive(Debug)]
pub struct Lease {
    is_held: watch::Receiver<bool>,
    stop: Arc<Notify>,
}

impl Lease {
    pub fn start(cluster: &Cluster, options: LeaseOptions) -> Self {
        let (sender, is_held) = watch::channel(false);
        let stop = Arc::new(Notify::new());
        let candidate = LeaseCandidate {
            api: Api::namespaced(cluster.client.clone(), &options.namespace),
            cluster: cluster.clone(),
            options,
            observed: None,
            may_create_from: Instant::now(),
            is_held: sender,
            may_write_until: None,
        };
        tokio::spawn(candidate.run(stop.clone()));
        Self { is_held, stop }
    }

    pub fn is_held(&self) -> bool {
        *self.is_held.borrow()
    }

    /// Waits until this process leads.
    pub async fn wait_until_held(&self) {
        if self.is_held.clone().wait_for(|held| *held).await.is_err() {
            // The candidate's task has ended.
            std::future::pending::<()>().await;
        }
    }

    /// Waits until this process does not lead.
    pub async fn wait_until_lost(&self) {
        // An error means that the candidate's task has ended, so the lease is no longer renewed.
        let _ = self.is_held.clone().wait_for(|held| !*held).await;
    }

    /// Steps down: writes are rejected from now on, and another candidate may lead immediately.
    pub async fn release(&self) {
        self.stop.notify_one();
        // The sender is dropped when the lease is released, or when the candidate's task panicked.
        let mut is_held = self.is_held.clone();
        while is_held.changed().await.is_ok() {}
    }
}

/// The fields of a lease that change with every renewal.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    holder: String,
    renewed: Option<MicroTime>,
    transitions: i32,
}

/// The lease as last read.
#[derive(Clone, Debug)]
struct ObservedLease {
    lease: coordination::Lease,
    record: Record,
    /// When this record was first read.
    since: Instant,
}

impl ObservedLease {
    /// `before` is the previous observation; `now` is the time of this one.
    fn new(lease: coordination::Lease, before: Option<&Self>, now: Instant) -> Self {
        let spec = lease.spec.clone().unwrap_or_default();
        let record = Record {
            holder: spec.holder_identity.unwrap_or_default(),
            renewed: spec.renew_time,
            transitions: spec.lease_transitions.unwrap_or_default(),
        };
        let since = match before {
            Some(before) if before.record == record => before.since,
            _ => now,
        };
        Self {
            lease,
            record,
            since,
        }
    }

    /// When another candidate may acquire the lease.
    fn expires_at(&self) -> Instant {
        let spec = self.lease.spec.as_ref();
        let seconds = spec.and_then(|spec| spec.lease_duration_seconds);
        let seconds = u64::try_from(seconds.unwrap_or_default()).unwrap_or_default();
        match self.record.holder.is_empty() {
            true => self.since,
            false => self.since + Duration::from_secs(seconds),
        }
    }
}

struct LeaseCandidate {
    api: Api<coordination::Lease>,
    cluster: Cluster,
    options: LeaseOptions,
    observed: Option<ObservedLease>,
    /// When a lease that does not exist may be created. If it was deleted, its last holder may
    /// write until it detects that.
    may_create_from: Instant,
    is_held: watch::Sender<bool>,
    may_write_until: Option<Instant>,
}

impl LeaseCandidate {
    async fn run(mut self, stop: Arc<Notify>) {
        // bound: until the program releases the lease; LEASE_POLL or a fraction of the lease's
        // duration between two turns.
        loop {
            let wait = tokio::select! {
                wait = self.poll_once() => wait,
                () = stop.notified() => break,
            };
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.notified() => break,
            }
        }
        let was_held = *self.is_held.borrow();
        self.step_down();
        if was_held && let Err(error) = self.release_record().await {
            tracing::warn!(
                error = error.text(),
                "the lease could not be released; it expires"
            );
        }
    }

    /// Reads or renews the lease; returns the pause before the next poll.
    async fn poll_once(&mut self) -> Duration {
        let is_leading = *self.is_held.borrow();
        // The timeout of a renewal leaves time for another one.
        let time = self.options.time / 3;
        let result = match tokio::time::timeout(time, self.acquire_or_renew(is_leading)).await {
            Ok(result) => result,
            Err(_) => Err(ClusterError::TimedOut {
                action: format!("renew the lease {}", self.options.name),
                seconds: time.as_secs(),
            }),
        };
        if let Err(error) = &result {
            let lease = &self.options.name;
            tracing::warn!(
                lease,
                error = error.text(),
                "the lease could not be renewed or read"
            );
        }
        let now = Instant::now();
        if is_leading && self.may_write_until.is_none_or(|until| until <= now) {
            tracing::warn!(lease = self.options.name, "the lease is lost");
            self.step_down();
        }
        let poll = LEASE_POLL.min(self.options.time / LEASE_RENEWALS);
        match (*self.is_held.borrow(), &self.observed) {
            // After a failure, retry soon while the lease is valid.
            (true, _) if result.is_err() => with_jitter(self.options.time / LEASE_RENEWALS / 4),
            // After a conflict, read the new holder soon.
            (true, None) => with_jitter(LEASE_POLL / 8),
            (true, _) => self.options.time / LEASE_RENEWALS,
            (false, None) => with_jitter(poll),
            (false, Some(observed)) => {
                let expires_in = observed.expires_at().saturating_duration_since(now);
                let soon = Duration::from_millis(20);
                with_jitter(expires_in.clamp(soon, poll))
            }
        }
    }

    async fn acquire_or_renew(&mut self, is_leading: bool) -> Result<(), ClusterError> {
        if self.observed.is_none() || !is_leading {
            self.observe().await?;
        }
        let now = Instant::now();
        match &self.observed {
            None if self.may_create_from <= now => self.create().await,
            Some(observed)
                if observed.record.holder == self.options.identity
                    || observed.expires_at() <= now =>
            {
                self.renew_or_acquire().await
            }
            _ => {
                self.may_write_until = None;
                Ok(())
            }
        }
    }

    async fn observe(&mut self) -> Result<(), ClusterError> {
        let found = self.api.get_opt(&self.options.name).await;
        let found = found.map_err(|error| self.explain("get", error))?;
        let before = self.observed.take();
        let observed =
            found.map(|lease| ObservedLease::new(lease, before.as_ref(), Instant::now()));
        if let Some(observed) = &observed
            && observed.record.holder != self.options.identity
        {
            self.may_create_from = observed.expires_at();
        }
        self.observed = observed;
        Ok(())
    }

    async fn create(&mut self) -> Result<(), ClusterError> {
        let metadata = ObjectMeta {
            name: Some(self.options.name.clone()),
            ..ObjectMeta::default()
        };
        let spec = Some(self.spec(0, None));
        let lease = coordination::Lease { metadata, spec };
        let sent = Instant::now();
        let created = self.api.create(&PostParams::default(), &lease).await;
        self.handle_response(sent, created)
    }

    /// Renews the own lease or acquires a free one.
    async fn renew_or_acquire(&mut self) -> Result<(), ClusterError> {
        let Some(observed) = &self.observed else {
            return Ok(());
        };
        let is_holder = observed.record.holder == self.options.identity;
        let mut lease = observed.lease.clone();
        let acquired = lease
            .spec
            .as_ref()
            .and_then(|spec| spec.acquire_time.clone());
        let next = observed
            .record
            .transitions
            .saturating_add(i32::from(!is_holder));
        lease.spec = Some(self.spec(next, acquired.filter(|_| is_holder)));
        let sent = Instant::now();
        let params = PostParams::default();
        let replaced = self.api.replace(&self.options.name, &params, &lease).await;
        self.handle_response(sent, replaced)
    }

    /// Handles the response to a write that was sent at `sent`. After a conflict the next turn
    /// reads the lease again.
    fn handle_response(
        &mut self,
        sent: Instant,
        response: Result<coordination::Lease, kube_client::Error>,
    ) -> Result<(), ClusterError> {
        match response {
            Ok(lease) => {
                self.observed = Some(ObservedLease::new(lease, self.observed.as_ref(), sent));
                self.may_create_from = sent;
                let until = sent + self.options.time * 2 / 3;
                self.may_write_until = Some(until);
                self.cluster.control.fence().open_until(until);
                self.lead();
                Ok(())
            }
            Err(error) => {
                let error = self.explain("renew", error);
                match error.class() {
                    // Another candidate was faster, or the lease was deleted: the next turn reads
                    // it again.
                    ErrorClass::Conflict | ErrorClass::NotFound => {
                        self.observed = None;
                        let now = Instant::now();
                        if self.may_write_until.is_none_or(|until| until <= now) {
                            self.may_create_from = now + self.options.time;
                        }
                        Ok(())
                    }
                    _ => Err(error),
                }
            }
        }
    }

    fn lead(&self) {
        let is_new = self
            .is_held
            .send_if_modified(|held| !std::mem::replace(held, true));
        if is_new {
            let (lease, identity) = (&self.options.name, &self.options.identity);
            tracing::info!(lease, identity, "leading");
            self.cluster.control.metrics().own().is_leading.set(1);
        }
    }

    fn step_down(&mut self) {
        self.may_write_until = None;
        self.cluster.control.fence().close();
        self.cluster.control.metrics().own().is_leading.set(0);
        self.is_held.send_replace(false);
    }

    async fn release_record(&self) -> Result<(), ClusterError> {
        let Some(observed) = &self.observed else {
            return Ok(());
        };
        let mut lease = observed.lease.clone();
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.lease_duration_seconds = Some(1);
        spec.renew_time = Some(MicroTime(Timestamp::now()));
        let params = PostParams::default();
        let replaced = self.api.replace(&self.options.name, &params, &lease);
        match tokio::time::timeout(self.options.time / 3, replaced).await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(self.explain("release", error)),
            Err(_) => Err(ClusterError::TimedOut {
                action: format!("release the lease {}", self.options.name),
                seconds: (self.options.time / 3).as_secs(),
            }),
        }
    }

    fn spec(&self, transitions: i32, acquired: Option<MicroTime>) -> coordination::LeaseSpec {
        let now = MicroTime(Timestamp::now());
        let seconds = self.options.time.as_secs().max(1);
        coordination::LeaseSpec {
            holder_identity: Some(self.options.identity.clone()),
            lease_duration_seconds: Some(i32::try_from(seconds).unwrap_or(i32::MAX)),
            acquire_time: Some(acquired.unwrap_or_else(|| now.clone())),
            renew_time: Some(now),
            lease_transitions: Some(transitions),
            ..coordination::LeaseSpec::default()
        }
    }

    fn explain(&self, verb: &str, error: kube_client::Error) -> ClusterError {
        let action = format!("{verb} the lease {}", self.options.name);
        self.cluster.explain(&action, error)
    }
}
