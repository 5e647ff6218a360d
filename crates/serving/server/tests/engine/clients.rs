//! Closed-loop clients that check every result.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// Eight clients, each with its own rows.
pub(crate) struct Clients {
    is_over: Arc<AtomicBool>,
    tasks: Vec<tokio::task::JoinHandle<u64>>,
}

impl Clients {
    pub(crate) fn start(started: &Arc<Started>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let task = |client: u64| {
            let (started, is_over) = (Arc::clone(started), Arc::clone(&is_over));
            tokio::spawn(async move {
                let rows = started.rows(0, 1 + client as usize * 20, client);
                let expected = started.expected(0, Kind::Value, &rows);
                let mut answers = 0_u64;
                while !is_over.load(Ordering::Relaxed) {
                    let reply = started.submit(0, value(), &rows).await.unwrap();
                    assert_eq!(reply.output(Kind::Value), Some(&expected[..]));
                    answers += 1;
                }
                answers
            })
        };
        let tasks = (0..8).map(task).collect();
        Self { is_over, tasks }
    }

    /// Stops the clients; returns their total number of replies.
    pub(crate) async fn end(self) -> u64 {
        self.is_over.store(true, Ordering::Relaxed);
        let mut answers = 0;
        for task in self.tasks {
            answers += task.await.unwrap();
        }
        answers
    }
}
