//! Bounds of the controller, each with its reason.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// Seconds for which a server keeps serving after its pod is removed from the Services and before
/// it closes its ports, because endpoints and proxies are updated with a delay.
pub(crate) const DRAIN_DELAY_SECONDS: i64 = 5;

/// Termination grace period of a pod: the drain delay, draining (at most 30 s, bounded by the
/// server) and some seconds to exit.
pub(crate) const GRACE_SECONDS: i64 = 45;

/// Period of the probes of a running server.
pub(crate) const PROBE_SECONDS: i64 = 5;

/// Failures of the startup probe that are tolerated, at one probe per second: the server is live
/// before its models are loaded.
pub(crate) const STARTUP_PROBES_MAX: i64 = 60;

/// Failed liveness probes before a server is restarted: 30 s, because restarts aggravate a shortage
/// of memory or CPU on the node.
pub(crate) const LIVENESS_MISSES_MAX: i64 = 6;

/// Seconds between two scrapes of a pod by Prometheus.
pub(crate) const METRICS_SECONDS: i64 = 15;

/// Longest message of a condition or error of a model, in characters. The API server accepts 32 Ki,
/// which is too long to read.
pub(crate) const MESSAGE_CHARS_MAX: usize = 1024;

/// Deployments that are reconciled concurrently. A write takes 5 ms on an idle API server and 200
/// ms on a busy one; both have to allow 200 requests per second.
pub(crate) const WORKERS: usize = 32;

/// Delay during which changes of children and pods of a deployment are coalesced: changes arrive in
/// bursts, one from each watch.
pub(crate) const COALESCE_DELAY: Duration = Duration::from_millis(50);

/// Time within which a watch must report a child that was just created, before the child is
/// considered deleted.
pub(crate) const CREATION_REPORTED_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause before the retry of a name that another owner uses; no watch reports when it is released.
pub(crate) const NAME_TAKEN_PAUSE: Duration = Duration::from_secs(30);

/// How long an optional child is skipped after its name was found taken, so that a deployment
/// without it costs few requests.
pub(crate) const SKIPPED_PAUSE: Duration = Duration::from_secs(300);

/// Pause before children of a former deployment are checked again; usually their watch reports the
/// deletion sooner.
pub(crate) const GARBAGE_COLLECTION_PAUSE: Duration = Duration::from_secs(2);

/// Shortest time between two status writes that differ in roll-out progress only: a new Deployment
/// of two pods changes four times or more within a second.
pub(crate) const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// Shortest time between two status writes that differ in measurements only; longer in a large
/// cluster, see [`MEASUREMENTS_PAUSE_PER_DEPLOYMENT`].
pub(crate) const MEASUREMENTS_PAUSE: Duration = Duration::from_secs(30);

/// In a large cluster, that time is this one times the number of deployments: at most 50 such
/// writes a second in total.
pub(crate) const MEASUREMENTS_PAUSE_PER_DEPLOYMENT: Duration = Duration::from_millis(20);

/// Time between two scrapes of a server's state.
pub(crate) const SCRAPE_PERIOD: Duration = Duration::from_secs(10);

/// The same for a server that has not responded yet, which may be starting, and for one that also
/// serves the requests of spare pods.
pub(crate) const SCRAPE_RETRY: Duration = Duration::from_secs(2);

/// The same for a server that does not have the newest settings yet, during
/// [`SCRAPE_PENDING_TIME`]: the params service of the node delivers them within half a second.
pub(crate) const SCRAPE_PENDING: Duration = Duration::from_millis(500);

/// How long servers are scraped every [`SCRAPE_PENDING`]; after that every [`SCRAPE_RETRY`],
/// because the kubelet takes a minute to update the mounted file.
pub(crate) const SCRAPE_PENDING_TIME: Duration = Duration::from_secs(10);

/// Interval at which the scraper selects servers that are due, at most [`SCRAPES_MAX`] at a time:
/// 512 a second. So 5,000 servers are scraped every [`SCRAPE_PERIOD`] and 20,000 every 40 s, at a
/// cost of a tenth of a CPU.
pub(crate) const SCRAPE_TICK: Duration = Duration::from_millis(125);

/// Timeout of a scrape; a server usually responds within milliseconds.
pub(crate) const SCRAPE_TIME_MAX: Duration = Duration::from_secs(3);

/// Concurrent scrapes: with 64 connections, 1,000 unresponsive pods take a minute.
pub(crate) const SCRAPES_MAX: usize = 64;

/// Size limit of a state: 32 models with five latency models and an error each take 32 KiB; the
/// reply latencies of a model take 1 KiB for each kind of output, 4 KiB if they are spread widely.
pub(crate) const STATE_BYTES_MAX: usize = 1 << 20;

/// Size limit of a response head, and of one read: a server's head has 200 bytes.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Age at which a state is stale, if [`STATE_MISSES_MAX`] scrapes failed since.
pub(crate) const STATE_AGE_MAX: Duration = Duration::from_secs(30);

/// Consecutive failed scrapes before a state is stale: in a large fleet, a single scrape may be
/// late by [`STATE_AGE_MAX`].
pub(crate) const STATE_MISSES_MAX: u32 = 3;

/// Time without a renewal after which the placement of a node is unknown. Agents renew every 30 to
/// 40 s, so one renewal may fail and be retried.
pub(crate) const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Silent nodes named in a message; further ones are counted.
pub(crate) const SILENT_NODES_NAMED_MAX: usize = 8;

/// How long a pod may be unready before its events are read: startup takes seconds, and the kubelet
/// warns of transient problems (such as a ConfigMap that it has not read yet).
pub(crate) const STUCK_AGE: Duration = Duration::from_secs(10);

/// Shortest time between two reads of the events of a pod.
pub(crate) const POD_EVENTS_PERIOD: Duration = Duration::from_secs(15);

/// Shortest time between two lists of events by this program: five a second, of the 200 requests
/// that it may send.
pub(crate) const POD_EVENTS_PAUSE: Duration = Duration::from_millis(200);

/// Events that are read of one pod. The kubelet merges repetitions into one event.
pub(crate) const POD_EVENTS_MAX: u32 = 100;

/// Time for which respawns of worker processes count as recent.
pub(crate) const RESPAWN_WINDOW: Duration = Duration::from_secs(600);

/// Recent respawns that count as frequent, so that a server whose workers crash once an hour is not
/// reported.
pub(crate) const RESPAWNS_FREQUENT: i64 = 5;

/// Shortest time between two events about respawned workers of one deployment.
pub(crate) const RESPAWN_EVENT_PAUSE: Duration = Duration::from_secs(60);

/// Period of the discovery of ServiceMonitors on the API server.
pub(crate) const DISCOVERY_PERIOD: Duration = Duration::from_secs(120);

/// A roll-out without progress for this long releases its slot. Kubernetes uses the same time as
/// the default of `progressDeadlineSeconds`.
pub(crate) const ROLLOUT_STUCK_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Longest pause before a deployment that waits for a slot is reconciled again. It is queued when a
/// slot is released; the pause covers roll-outs that stop making progress.
pub(crate) const ROLLOUT_PAUSE: Duration = Duration::from_secs(60);

/// Tries of `--check`, and the pause between two: a minute for a controller to start.
pub(crate) const CHECK_TRIES: u32 = 30;
/// See [`CHECK_TRIES`].
pub(crate) const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// How long fewer pods must have been sufficient before some become spare. Servers report over a
/// window of a minute, and a second report has to confirm the first.
pub(crate) const CONSOLIDATION_DELAY: Duration = Duration::from_secs(120);

/// Minimum number of pods that receive requests, unless `spec.autoscaling` allows a single one, so
/// that the loss of one pod is not an outage.
pub(crate) const SERVING_MIN: u32 = 2;

/// How long the controller waits for reports of the servers after it first observes a deployment.
pub(crate) const FIRST_REPORT_TIME_MAX: Duration = Duration::from_secs(30);

/// Roll-outs named in a message.
pub(crate) const ROLLOUTS_NAMED_MAX: usize = 5;
