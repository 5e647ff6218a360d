//! The thread that starts all programs. The kernel ends a program with the thread that started it:
//! a test's own thread ends long before a control plane that several tests share.

use std::process::Child;
use std::sync::LazyLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use albacore_os::{OsError, Spawn};

type Started = Result<Child, OsError>;
type Order = (Spawn, SyncSender<Started>);

/// Lives as long as this process.
static KEEPER: LazyLock<SyncSender<Order>> = LazyLock::new(|| {
    let (sender, orders): (SyncSender<Order>, Receiver<Order>) = sync_channel(1);
    std::thread::spawn(move || {
        for (spawn, reply) in orders {
            // Whoever asked waits for it.
            drop(reply.send(spawn.start()));
        }
    });
    sender
});

/// Starts a program that lives until it is ended or this process ends.
pub(crate) fn start(spawn: Spawn) -> Started {
    let (reply, started) = sync_channel(1);
    // infallible: the keeper never ends, and answers every order.
    #[allow(clippy::expect_used)]
    KEEPER.send((spawn, reply)).expect("the keeper lives");
    #[allow(clippy::expect_used)]
    started.recv().expect("the keeper answers")
}
