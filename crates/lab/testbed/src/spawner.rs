//! The thread that starts all programs. The kernel kills a program when the thread that started it
//! exits (parent-death signal), and a test's thread exits long before a control plane that several
//! tests share.

use std::process::Child;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use albacore_os::{CommandSpec, OsError};

type Started = Result<Child, OsError>;
type SpawnRequest = (CommandSpec, SyncSender<Started>);

/// Runs until this process exits.
static SPAWNER: LazyLock<SyncSender<SpawnRequest>> = LazyLock::new(|| {
    let (sender, requests): (SyncSender<SpawnRequest>, Receiver<SpawnRequest>) = sync_channel(1);
    std::thread::spawn(move || {
        for (spec, reply) in requests {
            // The requester waits for the reply.
            drop(reply.send(spec.start()));
        }
    });
    sender
});

/// Starts a program that runs until it is stopped or this process exits.
pub(crate) fn start(spec: CommandSpec) -> Started {
    let (reply, started) = sync_channel(1);
    // infallible: the thread never ends, and replies to every request.
    #[allow(clippy::expect_used)]
    SPAWNER.send((spec, reply)).expect("the spawner runs");
    #[allow(clippy::expect_used)]
    started.recv().expect("the spawner replies")
}
