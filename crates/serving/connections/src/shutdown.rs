//! How far a server is with its end.

use tokio::sync::watch;

/// The stages of a server, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownStage {
    #[default]
    Serving,
    /// It answers as before and accepts connections, because routers still send requests here. Each
    /// HTTP/1.1 connection that is older than this stage ends with its next reply.
    ///
    /// HTTP/2 connections stay: clients answer GOAWAY by asking once, and often not again for half a
    /// minute, where else they could go, which is too early before the answer has changed.
    Announced,
    /// It closes its ports, and each connection after its current request.
    Closing,
    /// The same, while another process serves the same ports: routers are told nothing.
    Replaced,
}

impl ShutdownStage {
    /// Whether ports and connections are to be closed.
    #[must_use]
    pub fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Replaced)
    }
}

/// Waits for the next stage. A dropped sender is a shutdown, too.
pub async fn next_stage(stage: &mut watch::Receiver<ShutdownStage>) -> ShutdownStage {
    match stage.changed().await {
        Ok(()) => *stage.borrow_and_update(),
        Err(_) => ShutdownStage::Closing,
    }
}
