//! A running program of the control plane.

use std::ffi::OsString;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Instant;

use albacore_os::{CommandSpec, SpawnOutput};

use crate::limits::{LOG_TAIL_BYTES, READY_PERIOD, READY_TIME_MAX};
use crate::{TestbedError, spawner};

/// Folder with etcd, kube-apiserver, kube-controller-manager, kubectl, helm...; they are built at
/// the first use, which takes minutes.
///
/// # Errors
/// They cannot be built.
pub fn programs() -> Result<PathBuf, TestbedError> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/cluster/build.sh");
    program_folder(&script)
}

/// Runs a script that builds or downloads programs, and returns the folder that it prints.
///
/// # Errors
/// The script fails.
pub fn program_folder(script: &Path) -> Result<PathBuf, TestbedError> {
    let output = Command::new(script)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()
        .map_err(TestbedError::file(script))?;
    if !output.status.success() {
        return Err(TestbedError::Build {
            script: script.to_owned(),
            status: output.status,
        });
    }
    Ok(PathBuf::from(
        String::from_utf8_lossy(&output.stdout).trim(),
    ))
}

/// A running program with its log; killed on drop.
#[derive(Debug)]
pub struct Program {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Program {
    /// Starts `binary` with `arguments`; its output is appended to `log`.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(
        name: &'static str,
        binary: &Path,
        arguments: &[OsString],
        log: PathBuf,
    ) -> Result<Self, TestbedError> {
        let mut command = vec![binary.as_os_str().to_owned()];
        command.extend_from_slice(arguments);
        let spec = CommandSpec {
            command,
            environment: Vec::new(),
            directory: None,
            output: SpawnOutput::Log(log.clone()),
        };
        let child = spawner::start(spec).map_err(|source| TestbedError::Start {
            program: name,
            source,
        })?;
        Ok(Self { name, child, log })
    }

    /// Waits until `is_ready` returns true.
    ///
    /// # Errors
    /// The program exits, or is not ready in time; the error quotes the end of its log.
    pub fn wait_until(&mut self, mut is_ready: impl FnMut() -> bool) -> Result<(), TestbedError> {
        let start = Instant::now();
        // bound: READY_TIME_MAX
        while !is_ready() {
            let ended = self
                .child
                .try_wait()
                .map_err(TestbedError::file(&self.log))?;
            if let Some(status) = ended {
                return Err(self.ended(status));
            }
            if start.elapsed() > READY_TIME_MAX {
                let seconds = READY_TIME_MAX.as_secs();
                return Err(TestbedError::NotReady {
                    program: self.name,
                    seconds,
                    tail: self.tail(),
                });
            }
            std::thread::sleep(READY_PERIOD);
        }
        Ok(())
    }

    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills the program immediately.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    fn ended(&self, status: ExitStatus) -> TestbedError {
        TestbedError::Ended {
            program: self.name,
            status,
            tail: self.tail(),
        }
    }

    fn tail(&self) -> String {
        let read = || -> std::io::Result<String> {
            let mut file = std::fs::File::open(&self.log)?;
            let length = file.metadata()?.len();
            file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL_BYTES)))?;
            let mut bytes = Vec::new();
            file.read_to_end(&mut bytes)?;
            Ok(String::from_utf8_lossy(&bytes).into_owned())
        };
        read().unwrap_or_else(|error| format!("cannot read {}: {error}", self.log.display()))
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.kill();
    }
}
