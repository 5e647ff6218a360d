//! Every bound of this crate, with its reason.

use std::time::Duration;

/// Most characters of the name of a Job: it is a label of its pod.
pub(crate) const JOB_NAME_BYTES_MAX: usize = 63;

/// Time of a Job beyond that of its experiment: for pulling the image (10 min), for the files (30
/// min) and for results that wait to be fetched (12 h), as `albacore-lab` bounds them.
pub(crate) const EXPERIMENT_JOB_TIME_MORE: Duration = Duration::from_secs(13 * 3_600);

/// How long a Job that has ended is kept, for `kubectl logs`.
pub(crate) const EXPERIMENT_JOB_KEPT: Duration = Duration::from_secs(86_400);

/// Polling period of Job and pod, and the pause before a broken connection is made again.
pub(crate) const EXPERIMENT_POLL: Duration = Duration::from_secs(1);

/// How long the pod of a Job may take to start: the image has some tens of MiB.
pub(crate) const POD_START_TIME_MAX: Duration = Duration::from_secs(600);

/// How long it may wait for something that only somebody else can change, such as a free cpu of the
/// node or a registry that answers.
pub(crate) const POD_BLOCKED_TIME_MAX: Duration = Duration::from_secs(60);

/// How long after the end of a program the node may take to report that its pod has ended.
pub(crate) const POD_END_TIME_MAX: Duration = Duration::from_secs(10);

/// How long a Job that was deleted may be there.
pub(crate) const JOB_DELETE_TIME_MAX: Duration = Duration::from_secs(60);

/// Events of a Job that are read: one says why it has no pod.
pub(crate) const JOB_EVENTS_MAX: u32 = 20;

/// Bytes of a file that are sent at once: within the time of one `exec` also at 100 KiB a second.
pub(crate) const EXPERIMENT_PART_BYTES: u64 = 4 << 20;

/// Silence after which a connection to the pod counts as lost: it sends a sign of life every 10 s.
pub(crate) const EXPERIMENT_SILENCE_MAX: Duration = Duration::from_secs(45);

/// How long an API server may be away while values are applied: it is started again in less, and
/// values that are worse have to be taken back.
pub(crate) const API_SERVER_TIME_MAX: Duration = Duration::from_secs(60);

/// Writes of others, such as of the status every 30 s, after which a change of the spec is given
/// up.
pub(crate) const CONFLICTS_MAX: u32 = 10;

/// Pods of a deployment that are watched: each window asks each of them, one after the other.
pub(crate) const WATCHED_PODS_MAX: usize = 32;

/// How long all pods may take for new values: hundreds of them are replaced some at a time.
pub(crate) const TAKE_UP_TIME_MAX: Duration = Duration::from_secs(3_600);

/// How long new values have to be in force before they are judged: pods learn what batches cost
/// with them, and the controller may be late to say that some pods lack them.
pub(crate) const SETTLE_TIME: Duration = Duration::from_secs(5);

/// How long a lost connection is tried again: a control plane is upgraded in less.
pub(crate) const EXPERIMENT_LOST_TIME_MAX: Duration = Duration::from_secs(600);
