//! Every bound of this crate, with its reason.

use k8s_openapi::jiff::SignedDuration;

/// Age above which a node's report is considered stale: its agent renews it every 30 to 40 s.
pub(crate) const REPORT_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Most fixed threads of a node: the most threads that a node has in all pods.
pub(crate) const NODE_FIXED_THREADS_MAX: usize = 65_536;
