//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// The longest time between two turns of the loop: finds changes that nothing announces (processes
/// of a container that were missing before, throttled CPU time).
pub(crate) const TURN_PERIOD: Duration = Duration::from_secs(1);

/// Changes within this time are handled in one turn: a rollout changes several pods at once.
pub(crate) const GATHER: Duration = Duration::from_millis(20);

/// First pause before a container whose processes were not found is looked up again ...
pub(crate) const LOOKUP_PAUSE_MIN: Duration = Duration::from_millis(200);

/// ... and the longest: a pod in a crash loop costs a walk over the cgroups every 10 s.
pub(crate) const LOOKUP_PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the placer may take to answer: it may solve for 30 ms and write some thousand masks
/// meanwhile.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Commands that are sent to the placer before their answers are awaited. Its queue holds 64.
pub(crate) const ORDERS_MAX: usize = 32;

/// Period in which the table of slots is read while the placer reports nothing.
pub(crate) const TABLE_PERIOD: Duration = Duration::from_secs(5);

/// Pause before the table of slots is read again after a report: writing masks takes milliseconds,
/// reports come in bursts.
pub(crate) const TABLE_PAUSE: Duration = Duration::from_millis(250);

/// Period in which throttling and isolation of containers are read.
pub(crate) const THROTTLING_PERIOD: Duration = Duration::from_secs(10);

/// Shortest pause between two writes of the status, before jitter: 5,000 nodes that change at once
/// are 1,000 to 2,000 writes a second for some seconds, which API servers of such clusters sustain.
pub(crate) const STATUS_PAUSE: Duration = Duration::from_secs(3);

/// Largest random addition to that pause.
pub(crate) const STATUS_JITTER: Duration = Duration::from_secs(2);

/// The same if only counters differ: nothing reads them more often.
pub(crate) const COUNTERS_PAUSE: Duration = Duration::from_secs(30);

/// Pause before the time of the last verification is renewed if nothing else changed. Half of the
/// 60 s after which the controller considers a node silent: 5,000 nodes write 150 times a second, a
/// third of the load of their kubelets' leases.
pub(crate) const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// Largest random addition to that pause: nodes that started together drift apart.
pub(crate) const RENEWAL_JITTER: Duration = Duration::from_secs(5);

/// First pause after the status could not be written ...
pub(crate) const WRITE_RETRY_MIN: Duration = Duration::from_secs(1);

/// ... the longest while the API server may come back at any moment: its last report becomes stale
/// meanwhile ...
pub(crate) const WRITE_RETRY_MAX: Duration = Duration::from_secs(15);

/// ... and the pause after it refused the write.
pub(crate) const WRITE_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// The last status and events are written within this time; the kubelet kills after 30 s.
pub(crate) const SHUTDOWN_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of a status per 20 pods, as JSON: bounds what a fleet of 5,000 nodes costs etcd and each
/// watcher.
pub(crate) const STATUS_BYTES_PER_20_PODS: usize = 4096;

/// Bytes of the mappings per 20 pods beside that: 150 for each, which 4 workers of 6 threads take
/// on cpus without a pattern. Together with the text of the topology a report of 20 pods may be
/// twice as large; most nodes have few pods, and 70 bytes more for each.
pub(crate) const MAPPINGS_BYTES_PER_20_PODS: usize = 3072;

/// Pods in one report; providers that raise the kubelet's own bound of 110 stop at 500.
pub(crate) const PODS_MAX: usize = albacore_api::limits::NODE_PODS_MAX;

/// Longest reason of one pod, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 160;

/// The same if the report is too large otherwise.
pub(crate) const REASON_BYTES_TIGHT: usize = 40;

/// Longest name of a pod if the report is too large otherwise: a uid and the beginning of the name.
pub(crate) const NAME_BYTES_TIGHT: usize = 64;

/// How long workers may be missing before an event reports it: a respawn takes less, loading a
/// model often more.
pub(crate) const MISSING_TIME: Duration = Duration::from_secs(15);

/// Period of the heartbeat.
pub(crate) const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);

/// A heartbeat older than this means that the loop is stuck.
pub(crate) const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);

/// Longest time between two snapshots for params.
pub(crate) const FEED_PERIOD: Duration = Duration::from_secs(10);

/// First pause after a failed turn of the placer; the cause (too many open files, say) usually
/// lasts ...
pub(crate) const PLACER_PAUSE_MIN: Duration = Duration::from_millis(500);

/// ... and the longest: a command to stop waits for it.
pub(crate) const PLACER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long an agent waits for the report of the agent before it: it may have no right to read it.
pub(crate) const PREVIOUS_REPORT_TIME_MAX: Duration = Duration::from_secs(10);

/// How long `dump` and `restore` wait for lists of the API server.
pub(crate) const LIST_TIME_MAX: Duration = Duration::from_secs(30);

/// How long `dump` lets the placer read threads before it prints what was found.
pub(crate) const DUMP_TIME_MAX: Duration = Duration::from_secs(5);

/// Share of time in which its quota stops a container that is worth a condition: stalls of whole
/// periods.
pub(crate) const THROTTLED_SHARE: f64 = 0.05;

/// Passes of `restore`; each finds threads that inherited a mask during the one before.
pub(crate) const RESTORE_PASSES_MAX: usize = 16;

/// Errors that `restore` prints; further ones are only counted.
pub(crate) const RESTORE_ERRORS_SHOWN_MAX: usize = 8;

/// Pause before the pipe to params is tried again without a reader.
pub(crate) const FEED_POLL: Duration = Duration::from_secs(1);

/// Pause before a partly written line is continued: params promises changes within a second.
pub(crate) const FEED_RETRY: Duration = Duration::from_millis(100);

/// How long the throw-away child of the kernel probe lives if nothing ends it.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(60);

/// How often the pipe of latency reports is read while a sample waits for one.
pub(crate) const REPORT_POLL: Duration = Duration::from_millis(100);

/// Bytes of reports that are read in one turn of the loop. 110 pods on trial write half of that in
/// a second; parsing them takes milliseconds, whatever they contain.
pub(crate) const REPORTS_BYTES_MAX: usize = 128 << 10;

/// Time for which the workers and threads of a pod must be the same before they are taken over: a
/// server forks its workers within seconds.
pub(crate) const COUNTS_SETTLING_TIME: Duration = Duration::from_secs(10);

/// The same for numbers that replace others: longer than a worker takes to be replaced and to load
/// its model.
pub(crate) const COUNTS_CHANGE_TIME: Duration = Duration::from_secs(60);
