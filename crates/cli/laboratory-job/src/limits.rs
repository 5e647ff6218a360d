//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Longest name of a Job, in bytes: it is also a label of its pod.
pub(crate) const JOB_NAME_BYTES_MAX: usize = 63;

/// Time limit of a Job beyond that of its experiment: for pulling the image (10 min), for the files
/// (30 min) and for results that wait to be fetched (12 h), as limited by `albacore-lab`.
pub(crate) const EXPERIMENT_JOB_TIME_MORE: Duration = Duration::from_secs(13 * 3_600);

/// How long a finished Job is kept, for `kubectl logs`.
pub(crate) const EXPERIMENT_JOB_KEPT: Duration = Duration::from_secs(86_400);

/// Polling interval of Job and pod, and pause before a broken connection is reestablished.
pub(crate) const EXPERIMENT_POLL: Duration = Duration::from_secs(1);

/// Time limit for the start of a Job's pod: the image has some tens of MiB.
pub(crate) const POD_START_TIME_MAX: Duration = Duration::from_secs(600);

/// How long the pod may be blocked by a condition that only a user can change, such as no free CPU
/// on the node or an unavailable registry.
pub(crate) const POD_BLOCKED_TIME_MAX: Duration = Duration::from_secs(60);

/// How long after the exit of a program the node may take to report that its pod has ended.
pub(crate) const POD_END_TIME_MAX: Duration = Duration::from_secs(10);

/// Time limit for the removal of a deleted Job.
pub(crate) const JOB_DELETE_TIME_MAX: Duration = Duration::from_secs(60);

/// Events of a Job that are read: one of them explains why it has no pod.
pub(crate) const JOB_EVENTS_MAX: u32 = 20;

/// Bytes of a file sent per request: fits the timeout of one `exec` even at 100 KiB per second.
pub(crate) const EXPERIMENT_PART_BYTES: u64 = 4 << 20;

/// Silence after which a connection to the pod is considered lost: it sends a keepalive every 10 s.
pub(crate) const EXPERIMENT_SILENCE_MAX: Duration = Duration::from_secs(45);

/// How long the API server may be unreachable while values are applied: a restart takes less, and
/// values that are worse have to be reverted.
pub(crate) const API_SERVER_TIME_MAX: Duration = Duration::from_secs(60);

/// Conflicts with other writes, such as the status update every 30 s, after which a change of the
/// spec is abandoned.
pub(crate) const CONFLICTS_MAX: u32 = 10;

/// Most pods of a deployment that are measured: each window queries them one after another.
pub(crate) const WATCHED_PODS_MAX: usize = 32;

/// Time limit for the rollout of new values to all pods: hundreds of them are replaced in batches.
pub(crate) const TAKE_UP_TIME_MAX: Duration = Duration::from_secs(3_600);

/// How long new values have to be in force before they are judged: pods first learn the cost of
/// batches with them, and the controller may report late that some pods lack them.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(5);

/// How long a lost connection is retried: an upgrade of a control plane takes less.
pub(crate) const EXPERIMENT_LOST_TIME_MAX: Duration = Duration::from_secs(600);
