//! The stages of a server shutdown.

use tokio::sync::watch;

/// The stages of a server's lifetime, in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ShutdownStage {
    #[default]
    Serving,
    /// Shutdown is announced. The server still accepts connections and serves requests, because
    /// load balancers still route requests to it. Each HTTP/1.1 connection that was opened before
    /// this stage is closed after its next reply.
    ///
    /// HTTP/2 connections are kept: on GOAWAY a client resolves the name of the server again, and
    /// often not a second time within half a minute. At this stage the name may still resolve to
    /// the old addresses.
    Announced,
    /// Listening sockets are closed, and each connection after its current request.
    Closing,
    /// Like [`ShutdownStage::Closing`], but another process serves the same ports, so that no
    /// shutdown is announced.
    Replaced,
}

impl ShutdownStage {
    /// Whether ports and connections are being closed.
    #[must_use]
    pub fn is_closing(self) -> bool {
        matches!(self, Self::Closing | Self::Replaced)
    }
}

/// Waits for the next stage. A dropped sender means [`ShutdownStage::Closing`].
pub async fn next_stage(stage: &mut watch::Receiver<ShutdownStage>) -> ShutdownStage {
    match stage.changed().await {
        Ok(()) => *stage.borrow_and_update(),
        Err(_) => ShutdownStage::Closing,
    }
}
