//! A network of its own for a control plane and a node, and the process that keeps it.
//!
//! Nothing in it can be reached from outside and nothing outside from it, so that no address is
//! taken and no rule of the machine's firewall is touched; whoever wants in joins the namespace.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use nix::sched::{CloneFlags, setns};
use tempfile::TempDir;

use crate::keep::{NODE, READY};
use crate::{TestbedError, product};

/// The address of the node and of the control plane.
pub(crate) const NODE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 123, 0, 2);

/// The address of an emulated node.
pub(crate) const GUEST_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 123, 0, 3);

/// The network, its keeper, and the folder of all that happens in it.
#[derive(Debug)]
pub(crate) struct Site {
    keeper: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    program: PathBuf,
    folder: TempDir,
}

impl Site {
    /// Makes one.
    ///
    /// # Errors
    /// No right to make a network, or no `ip`.
    pub(crate) fn new() -> Result<Self, TestbedError> {
        let program = product("albacore-testbed")?;
        let folder = TempDir::with_prefix("albacore-site-")
            .map_err(TestbedError::file("a temporary folder"))?;
        let log = folder.path().join("keeper.log");
        let log = File::create(&log).map_err(TestbedError::file(log))?;
        let mut keeper = Command::new(&program)
            .arg("keep")
            .arg(folder.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            // The terminal's Ctrl-C ends the test; the keeper has to see that and clean.
            .process_group(0)
            .spawn()
            .map_err(TestbedError::file(&program))?;
        let (Some(orders), Some(answers)) = (keeper.stdin.take(), keeper.stdout.take()) else {
            return Err(TestbedError::Keeper {
                said: "it has no pipes".into(),
            });
        };
        let mut site = Self {
            keeper,
            orders: Some(orders),
            answers: BufReader::new(answers),
            program,
            folder,
        };
        site.expect(READY)?;
        Ok(site)
    }

    /// Starts the node that the files of the folder describe.
    ///
    /// # Errors
    /// The keeper's, in its words.
    pub(crate) fn start_node(&mut self) -> Result<(), TestbedError> {
        let orders = self.orders.as_mut();
        let sent = orders.map(|orders| writeln!(orders, "{NODE}").and_then(|()| orders.flush()));
        drop(sent); // The answer tells.
        self.expect(NODE)
    }

    fn expect(&mut self, word: &str) -> Result<(), TestbedError> {
        let mut line = String::new();
        let read = self.answers.read_line(&mut line);
        if read.is_ok() && line.trim() == word {
            return Ok(());
        }
        let log = self.folder.path().join("keeper.log");
        Err(TestbedError::Keeper {
            said: std::fs::read_to_string(log).unwrap_or_default(),
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn keeper(&self) -> u32 {
        self.keeper.id()
    }

    /// The keeper's own program.
    pub(crate) fn program(&self) -> &Path {
        &self.program
    }

    fn network(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/ns/net", self.keeper.id()))
    }

    /// What a command begins with to run in this network.
    pub(crate) fn entrance(&self) -> Vec<OsString> {
        let network = format!("--net={}", self.network().display());
        vec!["nsenter".into(), network.into(), "--".into()]
    }

    /// The pid of the node's first process.
    pub(crate) fn first_process(&self) -> Result<u32, TestbedError> {
        // keeper -> unshare -> first process
        let child = |of: u32| -> Option<u32> {
            let children = format!("/proc/{of}/task/{of}/children");
            let text = std::fs::read_to_string(children).ok()?;
            text.split_whitespace().next()?.parse().ok()
        };
        child(self.keeper.id())
            .and_then(child)
            .ok_or_else(|| TestbedError::Keeper {
                said: std::fs::read_to_string(self.folder().join("init.log")).unwrap_or_default(),
            })
    }

    /// Runs `work` in this network; what it opens there stays there.
    ///
    /// # Errors
    /// The network is gone.
    pub(crate) fn within<T: Send>(
        &self,
        work: impl FnOnce() -> T + Send,
    ) -> Result<T, TestbedError> {
        let path = self.network();
        let network = File::open(&path).map_err(TestbedError::file(&path))?;
        let enter = move || {
            setns(network, CloneFlags::CLONE_NEWNET).map_err(std::io::Error::from)?;
            Ok(work())
        };
        std::thread::scope(|scope| {
            let joined = scope.spawn(enter).join();
            match joined {
                Ok(done) => done.map_err(TestbedError::file(path)),
                // The caller's own panic.
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        // The end of its input tells the keeper to clean and to end.
        drop(self.orders.take());
        let _ = self.keeper.wait();
    }
}
