//! An nginx with static replies.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use albacore_command::Failure;

use super::generators::not_started;

/// Startup timeout.
const START_DEADLINE: Duration = Duration::from_secs(5);

/// Sizes of the bodies.
#[derive(Clone, Copy, Debug)]
pub(super) struct StaticReplies {
    pub(super) http_bytes: usize,
    pub(super) grpc_bytes: usize,
}

/// A running nginx, stopped on drop.
pub(super) struct Nginx {
    child: Child,
    /// Address for HTTP/1.1.
    pub(super) http: SocketAddr,
    /// Address for HTTP/2 without TLS.
    pub(super) grpc: SocketAddr,
}

impl Drop for Nginx {
    fn drop(&mut self) {
        // Killing the main process would leave its workers running; SIGTERM also stops these.
        let _ = Command::new("kill")
            .arg(self.child.id().to_string())
            .status();
        let _ = self.child.wait();
    }
}

impl Nginx {
    /// Starts nginx with one worker per cpu, its default; all of its files are in `folder`.
    ///
    /// # Errors
    /// It is not installed, or does not listen.
    pub(super) fn start(folder: &Path, replies: StaticReplies) -> Result<Self, Failure> {
        let (http, grpc) = (free_address()?, free_address()?);
        let file = folder.join("nginx.conf");
        let text = configuration(folder, (http, grpc), replies);
        std::fs::write(&file, text).map_err(|e| Failure::file(&file, &e))?;
        let child = Command::new("nginx")
            .arg("-e")
            .arg(folder.join("nginx.log"))
            .arg("-c")
            .arg(&file)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| not_started("nginx", &e))?;
        let mut nginx = Self { child, http, grpc };
        let start = Instant::now();
        // bound: START_DEADLINE.
        while TcpStream::connect(grpc).is_err() {
            let has_ended = !matches!(nginx.child.try_wait(), Ok(None));
            if has_ended || start.elapsed() > START_DEADLINE {
                let log = std::fs::read_to_string(folder.join("nginx.log")).unwrap_or_default();
                return Err(Failure::Failed(format!("nginx does not listen: {log}")));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(nginx)
    }
}

/// A free address of this machine.
fn free_address() -> Result<SocketAddr, Failure> {
    let address = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    address.map_err(|e| Failure::Failed(format!("no free port: {e}")))
}

fn configuration(
    folder: &Path,
    (http, grpc): (SocketAddr, SocketAddr),
    replies: StaticReplies,
) -> String {
    let folder = folder.display();
    let body = |bytes: usize| "x".repeat(bytes);
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {folder}/{kind};\n"))
        .concat();
    let (http_body, grpc_body) = (body(replies.http_bytes), body(replies.grpc_bytes));
    format!(
        "daemon off; worker_processes auto; pid {folder}/nginx.pid;\n\
         events {{ worker_connections 8192; }}\n\
         http {{ access_log off; keepalive_requests 1000000000;\n{temporary}\
         server {{ listen {http} reuseport; location / {{ default_type application/json; \
         return 200 '{http_body}'; }} }}\n\
         server {{ listen {grpc} http2 reuseport; location / {{ default_type application/grpc; \
         return 200 '{grpc_body}'; }} }} }}\n"
    )
}
