//! Runs of load over connections that stay open from one run to the next.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::{Connection, Message};
use crate::drive::{Load, LoadError, Sample, Shape};
use crate::open;

/// A server that takes longer to accept a connection has a full backlog: the run then opens the
/// remaining connections on demand.
const CONNECT_TIME_MAX: Duration = Duration::from_secs(1);

/// Time for the server to accept a connection that the kernel has established.
const ACCEPT_TIME: Duration = Duration::from_micros(100);

/// Open files in addition to the connections: standard streams, event queues, files of the program.
const OTHER_FILES: u64 = 64;

/// A load generator.
///
/// If the server has kept connections of an earlier run open, all connections are opened before the
/// clock of a run starts, like those of clients with a pool: a momentarily slow server would
/// otherwise get hundreds of new connections at once, whose cost delays it further. Other servers
/// may serve one connection at a time, and an idle connection would block them.
#[derive(Debug)]
pub struct Generator {
    runtime: tokio::runtime::Runtime,
    descriptor_limit: u64,
    /// bound: the most that a run asked for.
    connections: Vec<Connection>,
}

impl Generator {
    /// Raises the limit of open files of this process as far as it can.
    ///
    /// # Errors
    /// The kernel provides no event queue, or refuses to raise the limit.
    pub fn new() -> Result<Self, LoadError> {
        let descriptor_limit = albacore_os::raise_descriptor_limit()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .thread_name("load")
            .build()
            .map_err(LoadError::Runtime)?;
        Ok(Self {
            runtime,
            descriptor_limit,
            connections: Vec::new(),
        })
    }

    /// Runs `load` and returns its samples, by intended time.
    ///
    /// # Errors
    /// [`LoadError`].
    pub fn run(&mut self, load: Load) -> Result<Vec<Sample>, LoadError> {
        if load.requests.is_empty() || load.connections == 0 {
            return Err(LoadError::Empty);
        }
        if load.connections as u64 > self.descriptor_limit.saturating_sub(OTHER_FILES) {
            return Err(LoadError::DescriptorLimit {
                connections: load.connections,
                limit: self.descriptor_limit,
            });
        }
        let messages = load.requests.into_iter().map(Message::new);
        let messages: Arc<[Message]> = messages.collect();
        let connections = self.connections(&messages, load.connections);
        let (mut samples, connections) = match load.shape {
            Shape::Open(times) => open::run(&self.runtime, &messages, &times, connections)?,
            Shape::Closed(length) => self.closed_loop(&messages, length, connections)?,
        };
        self.connections.extend(connections);
        samples.sort_by_key(|sample| sample.intended);
        Ok(samples)
    }

    /// Returns `count` connections, already open if the server keeps connections and accepts them.
    fn connections(&mut self, messages: &[Message], count: usize) -> Vec<Connection> {
        let kept = self.connections.len().saturating_sub(count);
        let mut connections = self.connections.split_off(kept);
        connections.resize_with(count, Connection::default);
        self.runtime.block_on(async {
            // lets the event queue report the connections that the server has closed meanwhile
            tokio::time::sleep(Duration::from_millis(1)).await;
            if !connections.iter().any(Connection::is_open) {
                return;
            }
            let mut new = 0;
            for (index, connection) in connections.iter_mut().enumerate() {
                let opening = connection.open(&messages[index % messages.len()]);
                match tokio::time::timeout(CONNECT_TIME_MAX, opening).await {
                    Ok(Ok(is_new)) => new += u32::from(is_new),
                    Ok(Err(_)) | Err(_) => break,
                }
            }
            tokio::time::sleep(ACCEPT_TIME * new).await;
        });
        connections
    }

    fn closed_loop(
        &self,
        messages: &Arc<[Message]>,
        length: Duration,
        connections: Vec<Connection>,
    ) -> Result<(Vec<Sample>, Vec<Connection>), LoadError> {
        let (start, count) = (Instant::now(), connections.len());
        self.runtime.block_on(async {
            let tasks: Vec<_> = connections
                .into_iter()
                .enumerate()
                .map(|(offset, mut connection)| {
                    let messages = Arc::clone(messages);
                    tokio::spawn(async move {
                        let (mut samples, mut index) = (Vec::new(), offset);
                        while start.elapsed() < length {
                            let intended = start.elapsed();
                            let request = index % messages.len();
                            let (status, stages) = connection.exchange(&messages[request]).await;
                            let latency = start.elapsed().saturating_sub(intended);
                            samples.push(Sample {
                                intended,
                                sent: intended,
                                latency,
                                status,
                                stages,
                                request,
                                lag: Duration::ZERO,
                            });
                            index += count;
                        }
                        (samples, connection)
                    })
                })
                .collect();
            let (mut samples, mut connections) = (Vec::new(), Vec::new());
            for task in tasks {
                let (of_task, connection) = task.await.map_err(|_| LoadError::Incomplete)?;
                samples.extend(of_task);
                connections.push(connection);
            }
            Ok((samples, connections))
        })
    }
}
