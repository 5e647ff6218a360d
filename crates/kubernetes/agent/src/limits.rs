//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// Longest time between two iterations of the loop. Detects changes without a notification
/// (processes of a container that were missing before, throttled CPU time).
pub(crate) const ITERATION_PERIOD: Duration = Duration::from_secs(1);

/// Debounce time: changes within it are handled in one iteration, because a rollout changes several
/// pods at once.
pub(crate) const DEBOUNCE: Duration = Duration::from_millis(20);

/// First backoff before a container whose processes were not found is looked up again.
pub(crate) const LOOKUP_PAUSE_MIN: Duration = Duration::from_millis(200);

/// Longest backoff of lookups: a pod in a crash loop costs a walk over the cgroups every 10 s.
pub(crate) const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(10);

/// Time limit for a reply of the placer, which may solve for 30 ms and write some thousand masks
/// before it replies.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Commands sent to the placer before their replies are awaited. The queue of the placer holds 64.
pub(crate) const COMMANDS_MAX: usize = 32;

/// Interval between reads of the slot table while the placer reports nothing.
pub(crate) const TABLE_PERIOD: Duration = Duration::from_secs(5);

/// Pause before the slot table is read again after a report: writing masks takes milliseconds, and
/// reports arrive in bursts.
pub(crate) const TABLE_PAUSE: Duration = Duration::from_millis(250);

/// Interval between reads of the throttling and isolation of containers.
pub(crate) const THROTTLING_PERIOD: Duration = Duration::from_secs(10);

/// Shortest pause between two writes of the status, before jitter: 5,000 nodes that change at once
/// are 1,000 to 2,000 writes a second for some seconds, which API servers of such clusters sustain.
pub(crate) const STATUS_PAUSE: Duration = Duration::from_secs(3);

/// Largest random addition to that pause.
pub(crate) const STATUS_JITTER: Duration = Duration::from_secs(2);

/// Shortest pause between two writes if only counters differ: no reader needs them more often.
pub(crate) const COUNTERS_PAUSE: Duration = Duration::from_secs(30);

/// Interval after which the time of the last verification is renewed if nothing else changed. Half
/// of the 60 s after which the controller considers a node silent: 5,000 nodes write 150 times a
/// second, a third of the load of their kubelets' leases.
pub(crate) const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// Largest random addition to that interval, which desynchronizes nodes that started together.
pub(crate) const RENEWAL_JITTER: Duration = Duration::from_secs(5);

/// First backoff after the status could not be written.
pub(crate) const WRITE_RETRY_MIN: Duration = Duration::from_secs(1);

/// Longest backoff while the API server is unreachable, because the last report becomes stale
/// meanwhile.
pub(crate) const WRITE_RETRY_MAX: Duration = Duration::from_secs(15);

/// Pause after the API server rejected the write.
pub(crate) const WRITE_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// Time limit for writing the last status and events; the kubelet sends SIGKILL after 30 s.
pub(crate) const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of a status per 20 pods, as JSON: bounds the load of a fleet of 5,000 nodes on etcd and on
/// each watcher.
pub(crate) const STATUS_BYTES_PER_20_PODS: usize = 4096;

/// Bytes of the mappings per 20 pods, in addition: 150 for each pod, enough for 4 workers of 6
/// threads on CPUs without a regular pattern. With the text of the topology, a report of 20 pods
/// may be twice as large; most nodes have few pods, which need 70 more bytes each.
pub(crate) const MAPPINGS_BYTES_PER_20_PODS: usize = 3072;

/// Pods in one report; providers that raise the kubelet's default limit of 110 pods stop at 500.
pub(crate) const PODS_MAX: usize = albacore_api::limits::NODE_PODS_MAX;

/// Longest reason of one pod, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 160;

/// Longest reason of one pod, in bytes, if the report would otherwise be too large.
pub(crate) const REASON_BYTES_TIGHT: usize = 40;

/// Longest pod name if the report would otherwise be too large: a uid and the beginning of the
/// name.
pub(crate) const NAME_BYTES_TIGHT: usize = 64;

/// Time for which workers may be missing before an event reports it: a respawn takes less, loading
/// a model often takes more.
pub(crate) const MISSING_TIME: Duration = Duration::from_secs(15);

/// Period of the heartbeat.
pub(crate) const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);

/// A heartbeat older than this means that the loop is stuck.
pub(crate) const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);

/// Longest interval between two snapshots for albacore-params.
pub(crate) const FEED_PERIOD: Duration = Duration::from_secs(10);

/// First backoff after a failed step of the placer, because the cause (such as too many open files)
/// usually persists.
pub(crate) const PLACER_PAUSE_MIN: Duration = Duration::from_millis(500);

/// Longest backoff of the placer: it delays a stop command.
pub(crate) const PLACER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// Time limit for reading the report of the previous agent, which RBAC may forbid.
pub(crate) const PREVIOUS_REPORT_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit of `dump` and `restore` for lists from the API server.
pub(crate) const LIST_TIME_MAX: Duration = Duration::from_secs(30);

/// Time for which `dump` lets the placer read threads before it prints the result.
pub(crate) const DUMP_TIME_MAX: Duration = Duration::from_secs(5);

/// Share of throttled time from which a condition reports it: threads are stalled for whole CFS
/// periods.
pub(crate) const THROTTLED_SHARE: f64 = 0.05;

/// Passes of `restore`; each finds threads that inherited a mask during the previous pass.
pub(crate) const RESTORE_PASSES_MAX: usize = 16;

/// Errors that `restore` prints; further ones are only counted.
pub(crate) const RESTORE_ERRORS_SHOWN_MAX: usize = 8;

/// Pause before a write to the pipe to albacore-params is retried while it has no reader.
pub(crate) const FEED_POLL: Duration = Duration::from_secs(1);

/// Pause before a partly written line is continued: albacore-params promises to deliver changes
/// within a second.
pub(crate) const FEED_RETRY: Duration = Duration::from_millis(100);

/// Lifetime of the throw-away child process of the kernel probe if it is not ended before.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(60);

/// Interval between reads of the pipe of latency reports while a sample waits for one.
pub(crate) const REPORT_POLL: Duration = Duration::from_millis(100);

/// Bytes of reports read in one iteration of the loop. 110 pods on trial write half of that in a
/// second; parsing them takes milliseconds, regardless of their content.
pub(crate) const REPORTS_BYTES_MAX: usize = 128 << 10;

/// Time for which the worker and thread counts of a pod must be stable before they come into force:
/// a server forks its workers within seconds.
pub(crate) const COUNTS_SETTLING_TIME: Duration = Duration::from_secs(10);

/// Time for which counts must be stable to replace others: longer than a worker takes to be
/// replaced and to load its model.
pub(crate) const COUNTS_CHANGE_TIME: Duration = Duration::from_secs(60);
