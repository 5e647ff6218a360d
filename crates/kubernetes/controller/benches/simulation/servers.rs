//! Servers of all pods: a few listeners that share the addresses of all pods.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

/// Number of listeners: several, so that closed connections do not exhaust the client ports.
const LISTENERS: usize = 32;

/// The address of the pods of a node; some nodes share an address.
pub(crate) fn address(node: usize) -> String {
    format!("127.88.0.{}", 1 + node % LISTENERS)
}

#[derive(Clone, Default)]
pub(crate) struct Servers {
    /// The response of the servers; until it is set they are not ready.
    pub(crate) state: Arc<OnceLock<String>>,
    pub(crate) answered: Arc<AtomicUsize>,
}

impl Servers {
    pub(crate) fn start() -> Self {
        let servers = Self::default();
        for index in 0..LISTENERS {
            let listener = TcpListener::bind((address(index), 8080)).unwrap();
            let servers = servers.clone();
            std::thread::spawn(move || servers.serve(&listener));
        }
        servers
    }

    fn serve(&self, listener: &TcpListener) {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 1024];
            // A disconnected client is not an error.
            let Ok(1..) = stream.read(&mut request) else {
                continue;
            };
            let answer = match self.state.get() {
                Some(state) => format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{state}",
                    state.len()
                ),
                None => "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\n\r\n".to_owned(),
            };
            let sent = stream.write_all(answer.as_bytes());
            if sent.is_ok() && self.state.get().is_some() {
                self.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
