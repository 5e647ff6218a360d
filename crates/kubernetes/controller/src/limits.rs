//! Bounds of the controller, each with its reason.

use std::time::Duration;

use k8s_openapi::jiff::SignedDuration;

/// Seconds that a server goes on between the removal of its pod from the Services and the end of
/// its ports: endpoints and proxies need a moment to follow.
pub(crate) const DRAIN_DELAY_SECONDS: i64 = 5;

/// Seconds that a pod may take to terminate: that delay, draining (30 s at most, the
/// server's own bound) and some more to exit.
pub(crate) const GRACE_SECONDS: i64 = 45;

/// Seconds between two probes of a server that serves.
pub(crate) const PROBE_SECONDS: i64 = 5;

/// Probes that a starting server may fail, one a second: it is live before its models are loaded.
pub(crate) const STARTUP_PROBES_MAX: i64 = 60;

/// Failed probes until a server is restarted: 30 s, because restarts make a shortage of memory or
/// CPU on the machine worse.
pub(crate) const LIVENESS_MISSES_MAX: i64 = 6;

/// Seconds between two scrapes of a pod by Prometheus.
pub(crate) const METRICS_SECONDS: i64 = 15;

/// Longest message of a condition or error of a model, in characters; the API server takes 32 Ki,
/// which nobody reads.
pub(crate) const MESSAGE_CHARS_MAX: usize = 1024;

/// Deployments that are reconciled at once. A write takes 5 ms at a quiet API server and 200 ms at
/// a busy one; 200 requests a second have to be possible at both.
pub(crate) const WORKERS: usize = 32;

/// How long a change of a child or a pod waits for further ones of its deployment: changes come in
/// bursts, one from each watch.
pub(crate) const GATHER: Duration = Duration::from_millis(50);

/// How long a watch may take to report a child that was just created, before the child is
/// considered deleted.
pub(crate) const CREATION_REPORTED_TIME_MAX: Duration = Duration::from_secs(5);

/// Pause before a name that another owner has is tried again: nothing announces that it is free.
pub(crate) const NAME_TAKEN_PAUSE: Duration = Duration::from_secs(30);

/// How long a child that is not needed is left out after its name was taken, so that a deployment
/// without it costs few requests.
pub(crate) const SKIPPED_PAUSE: Duration = Duration::from_secs(300);

/// Pause before children of a former deployment are checked again; their watch usually reports
/// sooner.
pub(crate) const COLLECTING_PAUSE: Duration = Duration::from_secs(2);

/// Shortest time between two writes of a status that differ in the progress of a roll-out only: a
/// new Deployment of two pods changes four times or more within a second.
pub(crate) const PROGRESS_PAUSE: Duration = Duration::from_secs(1);

/// Shortest time between two writes of a status that differ in measurements only ...
pub(crate) const MEASUREMENTS_PAUSE: Duration = Duration::from_secs(30);

/// ... and this for each deployment: 50 such writes a second, however many deployments there are.
pub(crate) const MEASUREMENTS_TURN: Duration = Duration::from_millis(20);

/// Time between two scrapes of a server's state.
pub(crate) const SCRAPE_PERIOD: Duration = Duration::from_secs(10);

/// The same for a server that has not answered yet, which may just be starting, and for one that
/// gets the requests of spare pods, too.
pub(crate) const SCRAPE_RETRY: Duration = Duration::from_secs(2);

/// The same for a server that has not the newest settings yet: the node's params hand them out
/// within half a second ...
pub(crate) const SCRAPE_PENDING: Duration = Duration::from_millis(500);

/// ... for this long; then at the usual rate, because the kubelet takes a minute to update the
/// file.
pub(crate) const SCRAPE_PENDING_TIME: Duration = Duration::from_secs(10);

/// How often the scraper looks for servers that are due, of which it then asks [`SCRAPES_MAX`] at
/// most: 512 a second. So 5,000 servers are asked every [`SCRAPE_PERIOD`] and 20,000 every 40 s,
/// for a tenth of a cpu.
pub(crate) const SCRAPE_TICK: Duration = Duration::from_millis(125);

/// A server that does not answer within this is silent: usually it answers in milliseconds.
pub(crate) const SCRAPE_TIME_MAX: Duration = Duration::from_secs(3);

/// Servers scraped at once: with 64 connections 1,000 silent pods take a minute.
pub(crate) const SCRAPES_MAX: usize = 64;

/// Bytes of a state: 32 models with five latency models and an error each are 32 KiB; the latencies
/// of a model's replies take 1 KiB for each kind of output, 4 KiB if they are spread widely.
pub(crate) const STATE_BYTES_MAX: usize = 1 << 20;

/// Bytes of an answer's head, and of one read: a server's head has 200.
pub(crate) const HEAD_BYTES_MAX: usize = 16 << 10;

/// Age at which a state is outdated ...
pub(crate) const STATE_AGE_MAX: Duration = Duration::from_secs(30);

/// ... if as many scrapes in a row failed: in a large fleet a single one can be that late.
pub(crate) const STATE_MISSES_MAX: u32 = 3;

/// After this time without a renewal the placement of a node is unknown. Agents renew every 30 to
/// 40 s, so one renewal may fail and be retried.
pub(crate) const SILENCE_TIME_MAX: Duration = Duration::from_secs(60);

/// Silent nodes that a message names; further ones are counted.
pub(crate) const SILENT_NODES_NAMED_MAX: usize = 8;

/// How long a pod may be unready before its events are read: starting takes seconds, and the
/// kubelet warns of transient problems (a ConfigMap that it has not read yet).
pub(crate) const STUCK_AGE: Duration = Duration::from_secs(10);

/// Shortest time between two reads of the events of a pod.
pub(crate) const POD_EVENTS_PERIOD: Duration = Duration::from_secs(15);

/// Shortest time between two lists of events by this program: five a second, of the 200 that it may
/// send.
pub(crate) const POD_EVENTS_PAUSE: Duration = Duration::from_millis(200);

/// Events of one pod that are read. The kubelet merges repetitions into one event.
pub(crate) const POD_EVENTS_MAX: u32 = 100;

/// Replaced worker processes are recent for this long ...
pub(crate) const RESPAWN_WINDOW: Duration = Duration::from_secs(600);

/// ... and this many of them are frequent: a server whose workers crash once an hour does not
/// count.
pub(crate) const RESPAWNS_FREQUENT: i64 = 5;

/// Shortest time between two events about replaced workers of one deployment.
pub(crate) const RESPAWN_EVENT_PAUSE: Duration = Duration::from_secs(60);

/// How often the API server is asked whether it serves ServiceMonitors by now.
pub(crate) const DISCOVERY_PERIOD: Duration = Duration::from_secs(120);

/// A roll-out without progress for this long gives up its slot: the time after which Kubernetes
/// itself considers a roll-out failed (`progressDeadlineSeconds`).
pub(crate) const ROLLOUT_STUCK_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// Longest pause before a deployment that waits for a slot is reconciled again. It is queued when a
/// slot is free; this covers roll-outs that stop making progress.
pub(crate) const ROLLOUT_PAUSE: Duration = Duration::from_secs(60);

/// Checks of an installation by `--check`, and the pause between two: a minute for a controller to
/// start.
pub(crate) const CHECK_TRIES: u32 = 30;
/// See [`CHECK_TRIES`].
pub(crate) const CHECK_PAUSE: Duration = Duration::from_secs(2);

/// How long fewer pods must have been enough before some get no more requests: servers report over
/// a minute, and a second one has to say the same.
pub(crate) const CONSOLIDATION_DELAY: Duration = Duration::from_secs(120);

/// So many pods get requests at least, unless `spec.autoscaling` allows a single one: the loss of
/// one is not the loss of all.
pub(crate) const SERVING_MIN: u32 = 2;

/// How long after its first look at a deployment the controller waits for reports of its servers.
pub(crate) const FIRST_REPORT_TIME_MAX: Duration = Duration::from_secs(30);

/// Roll-outs that a message names.
pub(crate) const ROLLOUTS_NAMED_MAX: usize = 5;
