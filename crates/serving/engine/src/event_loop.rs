//! The event loops of the front, which submit requests and collect results.

use albacore_os::Tid;
use tokio::runtime::Handle;

#[derive(Clone, Debug)]
pub struct EventLoop {
    pub runtime: Handle,
    /// The thread that runs it, if known.
    pub thread: Option<Tid>,
}
