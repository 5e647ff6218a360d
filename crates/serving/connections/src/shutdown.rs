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
    /// HTTP/2 connections stay: after GOAWAY a client asks once for other addresses, and often not
    /// again for half a minute, which is too early before the answer has changed.
    Announced,
    /// It closes its ports, and each connection after its current request.
    Closing,
    /// The same, while another process serves the same ports: nothing is announced.
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
