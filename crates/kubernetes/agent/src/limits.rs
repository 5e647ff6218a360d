//! Bounds of this crate, each with its reason.

use std::time::Duration;

/// The longest time between two turns of the loop: notices what nobody announces (a container's
/// processes that were not there yet, cpu time that is throttled).
pub(crate) const TURN_PERIOD: Duration = Duration::from_secs(1);

/// Changes that come within this time are answered together: a rollout changes several pods at
/// once.
pub(crate) const GATHER: Duration = Duration::from_millis(20);

/// First pause before a container whose processes were not found is looked for again ...
pub(crate) const LOOK_PAUSE_MIN: Duration = Duration::from_millis(200);

/// ... and the longest: a pod that crashes again and again costs a walk over the cgroups every 10
/// s.
pub(crate) const LOOK_PAUSE_MAX: Duration = Duration::from_secs(10);

/// How long the placer may take to answer: it may solve for 50 ms and write some thousand masks
/// meanwhile.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// Orders to the placer that are sent before their answers are awaited. The placer takes 64.
pub(crate) const ORDERS_MAX: usize = 32;

/// How often all slots are asked for while nothing is told.
pub(crate) const TABLE_PERIOD: Duration = Duration::from_secs(5);

/// How soon after news all slots are asked for again: writing masks takes milliseconds, reports
/// come in bursts.
pub(crate) const TABLE_PAUSE: Duration = Duration::from_millis(250);

/// Period in which throttling and isolation of containers are read.
pub(crate) const STRAIN_PERIOD: Duration = Duration::from_secs(10);

/// Shortest pause between two writes of the status, before jitter: 5,000 nodes that change at once
/// are 1,000 to 2,000 writes a second for some seconds, which API servers of such clusters take.
pub(crate) const STATUS_PAUSE: Duration = Duration::from_secs(3);

/// Up to this much is added to the pause by chance.
pub(crate) const STATUS_JITTER: Duration = Duration::from_secs(2);

/// The same where only counters differ: nobody reads them faster.
pub(crate) const FIGURES_PAUSE: Duration = Duration::from_secs(30);

/// Pause before the time of the last verification is renewed where nothing else changed. Half of
/// the 60 s after which a controller calls the node silent: 5,000 nodes write 150 times a second, a
/// third of what their kubelets' leases cost.
pub(crate) const RENEWAL_PAUSE: Duration = Duration::from_secs(30);

/// Up to this much is added to it by chance, so that nodes that began together do not go on
/// together.
pub(crate) const RENEWAL_JITTER: Duration = Duration::from_secs(5);

/// First pause after the status could not be written ...
pub(crate) const WRITE_RETRY_MIN: Duration = Duration::from_secs(1);

/// ... the longest where the API server may be back at any moment: what it last knew grows old
/// meanwhile ...
pub(crate) const WRITE_RETRY_MAX: Duration = Duration::from_secs(15);

/// ... and the one after a refusal.
pub(crate) const WRITE_REFUSED_PAUSE: Duration = Duration::from_secs(60);

/// The last status and events are written within this time; the kubelet kills after 30 s.
pub(crate) const FAREWELL_TIME_MAX: Duration = Duration::from_secs(5);

/// Bytes of a status for each 20 pods, as JSON: what a fleet of 5,000 nodes may cost etcd and every
/// watcher.
pub(crate) const STATUS_BYTES_PER_20_PODS: usize = 4096;

/// Pods in one report; providers that raise the kubelet's own bound of 110 stop at 500.
pub(crate) const PODS_MAX: usize = albacore_api::limits::NODE_PODS_MAX;

/// Longest reason of one pod, in bytes.
pub(crate) const REASON_BYTES_MAX: usize = 160;

/// The same where the report is too large otherwise.
pub(crate) const REASON_BYTES_TIGHT: usize = 40;

/// Longest name of a pod where the report is too large otherwise: a uid and the beginning of the
/// name.
pub(crate) const NAME_BYTES_TIGHT: usize = 64;

/// How long workers may be missing before an event says so: a respawn takes less, loading a model
/// often more.
pub(crate) const MISSING_TIME: Duration = Duration::from_secs(15);

/// Period of the heartbeat.
pub(crate) const HEARTBEAT_PERIOD: Duration = Duration::from_secs(5);

/// A heartbeat older than this means that the loop is stuck.
pub(crate) const HEARTBEAT_AGE_MAX: Duration = Duration::from_secs(60);

/// A snapshot goes to params at least this often.
pub(crate) const FEED_PERIOD: Duration = Duration::from_secs(10);

/// First pause after the placer failed; the cause (too many open files, say) usually lasts ...
pub(crate) const PLACER_PAUSE_MIN: Duration = Duration::from_millis(500);

/// ... and the longest: an order to stop waits for it.
pub(crate) const PLACER_PAUSE_MAX: Duration = Duration::from_secs(2);

/// How long an agent waits for the report of its former life: it may be forbidden to read it.
pub(crate) const FORMER_TIME_MAX: Duration = Duration::from_secs(10);

/// How long `dump` and `restore` wait for lists of the API server.
pub(crate) const LIST_TIME_MAX: Duration = Duration::from_secs(30);

/// How long `dump` lets the placer look at threads before it prints what it found.
pub(crate) const DUMP_TIME_MAX: Duration = Duration::from_secs(5);

/// Share of the time in which a container is held back by its quota that is worth telling: stalls
/// of whole periods.
pub(crate) const THROTTLED_SHARE: f64 = 0.05;

/// Looks of `restore`; each finds threads that were born with a mask meanwhile.
pub(crate) const RESTORE_LOOKS_MAX: usize = 16;

/// Errors of `restore` that are told; the rest is only counted.
pub(crate) const RESTORE_TOLD_MAX: usize = 8;

/// Pause before it is looked again whether somebody reads the feed.
pub(crate) const FEED_LOOK: Duration = Duration::from_secs(1);

/// Pause before a line that its reader takes slowly goes on: params promises a change within a
/// second.
pub(crate) const FEED_RETRY: Duration = Duration::from_millis(100);

/// The life of the throw-away child with which the kernel is tried, should nobody end it.
pub(crate) const IDLE_TIME: Duration = Duration::from_secs(60);

/// A window of a trial begins this part of its length after the masks were ordered: caches are warm
/// again.
pub(crate) const TRIAL_SETTLE_SHARE: u32 = 10;

/// Fewest requests of a window that is judged: the p99 of fewer is one request.
pub(crate) const TRIAL_REQUESTS_MIN: u64 = 200;

/// How often the server of a pod on trial reports its latency: both ends of a window are moved by
/// so much at most.
pub(crate) const REPORT_PERIOD: Duration = Duration::from_millis(500);

/// How often the pipe of reports is read while a reading waits for one.
pub(crate) const REPORT_LOOK: Duration = Duration::from_millis(100);

/// How long a reading waits for a report: a server whose connection to params was lost is back
/// sooner.
pub(crate) const REPORT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Bytes of reports that are read in one turn of the loop. 110 pods on trial write half of that in
/// a second; checking so much takes milliseconds, whatever it is.
pub(crate) const REPORTS_BYTES_MAX: usize = 128 << 10;
