//! Every bound of this crate, with its reason.

use k8s_openapi::jiff::SignedDuration;

/// A report of a node is unknown beyond this age: its agent renews it every 30 to 40 s.
pub(crate) const REPORT_AGE_MAX: SignedDuration = SignedDuration::from_secs(60);

/// Most threads that plans of a node make room for: as many as it has threads in all pods at most.
pub(crate) const NODE_FIXED_THREADS_MAX: usize = 65_536;
