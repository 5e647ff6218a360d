//! Starts the servers that the scripts in `tests/stores` install.

#![allow(dead_code)] // each test program uses a part

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// Timeout of the start of a server, on a busy machine.
const START_MAX: Duration = Duration::from_secs(120);

/// A server process; killed on drop.
pub(crate) struct Server {
    child: Child,
    /// Its data folder.
    pub(crate) folder: TempDir,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have exited already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    /// Starts `program`; `arguments` receives its data folder and returns its arguments.
    pub(crate) fn start(program: &Path, arguments: impl Fn(&Path) -> Vec<String>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let child = Command::new(program)
            .args(arguments(folder.path()))
            .current_dir(&folder)
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.path().join("log")).unwrap())
            .spawn()
            .unwrap();
        Self { child, folder }
    }

    /// Polls `ready` until it returns true.
    pub(crate) fn wait_until(&mut self, mut ready: impl FnMut() -> bool) {
        let start = Instant::now();
        while !ready() {
            let ended = self.child.try_wait().unwrap();
            if ended.is_some() || start.elapsed() > START_MAX {
                let log = std::fs::read_to_string(self.folder.path().join("log"));
                panic!("no start, {ended:?}: {}", log.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

/// Returns the registry program, which is built on first use.
pub(crate) fn registry() -> &'static Path {
    static REGISTRY: OnceLock<Vec<PathBuf>> = OnceLock::new();
    &REGISTRY.get_or_init(|| installed("registry.sh"))[0]
}

/// Returns the programs of SeaweedFS and fake-gcs-server.
pub(crate) fn programs() -> &'static [PathBuf] {
    static PROGRAMS: OnceLock<Vec<PathBuf>> = OnceLock::new();
    PROGRAMS.get_or_init(|| installed("programs.sh"))
}

/// Runs a script of `tests/stores`, which installs programs and prints their paths.
fn installed(script: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/stores");
    let output = Command::new(folder.join(script))
        .stderr(Stdio::inherit())
        .output()
        .unwrap();
    assert!(output.status.success(), "{script}");
    let lines = String::from_utf8(output.stdout).unwrap();
    lines.lines().map(PathBuf::from).collect()
}

/// Ports below those that Linux gives to clients and to listeners on port 0.
const PORTS: Range<u32> = 10_000..32_000;

/// Returns ports that are unused at the moment, outside the range of ephemeral ports: a program may
/// take seconds until it listens on the last one, and a connection of another test would occupy it.
pub(crate) fn free_ports<const N: usize>() -> [u16; N] {
    static CALLS: AtomicU32 = AtomicU32::new(0);
    // Test processes that run at the same time begin at different ports.
    let first = std::process::id().wrapping_mul(61);
    let mut candidates = std::iter::repeat_with(|| {
        let number = first.wrapping_add(CALLS.fetch_add(1, Ordering::Relaxed));
        (PORTS.start + number % (PORTS.end - PORTS.start)) as u16
    });
    let is_free = |&port: &u16| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok();
    std::array::from_fn(|_| candidates.by_ref().take(1000).find(is_free).unwrap())
}
