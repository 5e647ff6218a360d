//! Every bound of the controller, with its reason.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// Seconds between the moment that a pod leaves its Service and the moment that its server is told
/// to stop: endpoints and proxies need a moment to hear of it.
pub(crate) const LEAVE_SECONDS: i64 = 5;

/// Seconds that a pod may take to end: leaving, draining (30 s at most, the server's own bound) and
/// some more to exit.
pub(crate) const GRACE_SECONDS: i64 = 45;

/// Seconds between two probes of a server that serves.
pub(crate) const PROBE_SECONDS: i64 = 5;

/// Probes that a starting server may miss, one a second: it is live before its models are.
pub(crate) const STARTUP_PROBES_MAX: i64 = 60;

/// Missed probes until a server is called dead: 30 s, because a machine that is out of memory or
/// cpu must not be made to start servers as well.
pub(crate) const LIVENESS_MISSES_MAX: i64 = 6;

/// Seconds between two looks of Prometheus at a pod.
pub(crate) const METRICS_SECONDS: i64 = 15;

/// Longest message of a condition or error of a model, in characters; the API server takes 32 Ki,
/// and nobody reads more.
pub(crate) const MESSAGE_CHARS_MAX: usize = 1024;

/// Deployments that are reconciled at once. A write takes 5 ms at a quiet API server and 200 ms at
/// a busy one; the budget of 200 a second is to be reached at both.
pub(crate) const WORKERS: usize = 32;

/// How long a change of a child or a pod may wait for others of the same deployment: changes come
/// in bursts, one from each watch.
pub(crate) const GATHER: Duration = Duration::from_millis(50);

/// How long a watch may take to tell of a child that was just created, before it is taken for gone.
pub(crate) const BIRTH_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause before a name that somebody else has is looked at again: nobody tells when it is free.
pub(crate) const TAKEN_PAUSE: Duration = Duration::from_secs(30);

/// Pause before children of a former deployment are looked at again; their watch tells sooner.
pub(crate) const COLLECTING_PAUSE: Duration = Duration::from_secs(2);

/// Least time between two writes of a status that differ in measured figures only.
pub(crate) const FIGURES_PAUSE: Duration = Duration::from_secs(30);

/// Time between two looks at the state of a server.
pub(crate) const SCRAPE_PERIOD: Duration = Duration::from_secs(10);

/// The same for a server that has not answered yet: it is about to start.
pub(crate) const SCRAPE_RETRY: Duration = Duration::from_secs(2);

/// The same for a server that has not the newest settings yet: the node's params hand them out
/// within half a second ...
pub(crate) const SCRAPE_PENDING: Duration = Duration::from_millis(500);

/// ... and after so long more slowly, for then the kubelet brings them, which takes a minute.
pub(crate) const SCRAPE_PENDING_TIME: Duration = Duration::from_secs(10);

/// How often it is looked for servers that are due.
pub(crate) const SCRAPE_TICK: Duration = Duration::from_millis(250);

/// A server that does not tell its state within this is silent: it answers in milliseconds.
pub(crate) const SCRAPE_TIME_MAX: Duration = Duration::from_secs(3);

/// Servers asked at once: with 64 connections 1,000 silent pods are tried in a minute.
pub(crate) const SCRAPES_MAX: usize = 64;

/// Bytes of a state: 32 models with five latency models and an error each are 32 KiB.
pub(crate) const STATE_BYTES_MAX: usize = 256 << 10;

/// Bytes of an answer's head, and of what is read at once: a server's head has 200.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Age at which a state says nothing any more: three looks failed.
pub(crate) const STATE_AGE_MAX: Duration = Duration::from_secs(30);

/// After so long without a renewal nobody knows where the threads of a node are. Agents renew every
/// 30 to 40 s, so one renewal may fail and be tried again.
pub(crate) const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Silent nodes that a message names; the others are counted.
pub(crate) const SILENT_NODES_TOLD_MAX: usize = 8;

/// How long a pod may be unready before its events are read: starting takes seconds, and the
/// kubelet warns of things that pass (a ConfigMap that it has not read yet).
pub(crate) const STUCK_AGE: Duration = Duration::from_secs(10);

/// Least time between two looks at the events of a pod.
pub(crate) const POD_EVENTS_PERIOD: Duration = Duration::from_secs(15);

/// Least time between two lists of events by this program: five a second, of 200 that it may send.
pub(crate) const POD_EVENTS_PAUSE: Duration = Duration::from_millis(200);

/// Events of one pod that are read. The kubelet counts repetitions in one event.
pub(crate) const POD_EVENTS_MAX: u32 = 100;

/// Worker processes that were replaced are recent for so long ...
pub(crate) const RESPAWN_WINDOW: Duration = Duration::from_secs(600);

/// ... and so many of them are frequent: a server whose workers crash once an hour is not meant.
pub(crate) const RESPAWNS_FREQUENT: i64 = 5;

/// Least time between two events about replaced workers of one deployment.
pub(crate) const RESPAWN_EVENT_PAUSE: Duration = Duration::from_secs(60);

/// How often it is looked whether the API server serves ServiceMonitors by now.
pub(crate) const DISCOVERY_PERIOD: Duration = Duration::from_secs(120);

/// A roll-out without progress for this long leaves its slot to others: the time after which
/// Kubernetes itself calls a roll-out failed (`progressDeadlineSeconds`).
pub(crate) const ROLLOUT_STUCK_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Longest pause before a deployment that waits for a slot asks again. It is woken when one is
/// free; this covers slots of roll-outs that no longer make progress.
pub(crate) const ROLLOUT_PAUSE: Duration = Duration::from_secs(60);

/// Looks of `--check` at an installation, and the pause between two: a minute for a controller to
/// start.
pub(crate) const CHECK_TRIES: u32 = 30;
/// See [`CHECK_TRIES`].
pub(crate) const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// Roll-outs that a message names.
pub(crate) const ROLLOUTS_NAMED_MAX: usize = 5;
