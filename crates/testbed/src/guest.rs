//! A machine that this one is not: emulated by QEMU, with more cpus, NUMA and a kernel of its own. Its whole disk is an
//! archive in memory with programs of this machine and the libraries that they need; its first process is one of them.

use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use tempfile::TempDir;

use crate::TestbedError;
use crate::image::libraries;
use crate::limits::{GUEST_TIME_MAX, READY_PERIOD};

/// A machine to be emulated: 8 cpus in 2 packages of 2 cores with 2 threads, 2 NUMA nodes.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    /// The first process; it lies at `/NAME`.
    pub init: PathBuf,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// More programs: where they lie in the guest, and here.
    pub programs: Vec<(String, PathBuf)>,
    /// Other files.
    pub files: Vec<(String, PathBuf)>,
}

/// Mebibytes of memory.
const MEMORY: u32 = 3_072;

impl Guest {
    /// Boots it, waits until it is off, and gives what it wrote to its console.
    ///
    /// # Errors
    /// QEMU or its kernel cannot be had, a file cannot be read, or it is not off in time.
    pub fn run(&self) -> std::result::Result<String, TestbedError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/bignode/kernel.sh");
        let kernel = crate::program::folder_of(&script)?;
        let folder = TempDir::with_prefix("albacore-guest-")
            .map_err(TestbedError::file("a temporary folder"))?;
        let disk = folder.path().join("disk.cpio");
        let console = folder.path().join("console");
        self.archive()
            .and_then(|bytes| std::fs::write(&disk, bytes))
            .map_err(TestbedError::file(&disk))?;
        let mut emulator = self
            .emulator(&kernel, &disk, &console)
            .spawn()
            .map_err(TestbedError::file("qemu-system-x86_64"))?;
        let start = Instant::now();
        let read = || {
            let bytes = std::fs::read(&console).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\r', "")
        };
        // bound: GUEST_TIME_MAX
        while emulator
            .try_wait()
            .map_err(TestbedError::file("qemu"))?
            .is_none()
        {
            if start.elapsed() > GUEST_TIME_MAX {
                let _ = emulator.kill();
                let _ = emulator.wait();
                return Err(TestbedError::NotReady {
                    program: "the guest",
                    seconds: GUEST_TIME_MAX.as_secs(),
                    tail: read(),
                });
            }
            std::thread::sleep(READY_PERIOD);
        }
        Ok(read())
    }

    fn emulator(&self, kernel: &Path, disk: &Path, console: &Path) -> Command {
        let half = MEMORY / 2;
        let name = self.init.file_name().unwrap_or_default().to_string_lossy();
        let line = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on cgroup_no_v1=all \
             rdinit=/{name} -- {}",
            self.arguments.join(" ")
        );
        let mut command = Command::new("qemu-system-x86_64");
        command
            // Emulated, not virtualized: a machine that is virtual itself may offer a /dev/kvm that hangs.
            .args(["-accel", "tcg,thread=multi,tb-size=512", "-cpu", "Nehalem"])
            .args([
                "-m",
                &MEMORY.to_string(),
                "-smp",
                "8,sockets=2,cores=2,threads=2",
            ])
            .args(["-object", &format!("memory-backend-ram,id=m0,size={half}M")])
            .args(["-object", &format!("memory-backend-ram,id=m1,size={half}M")])
            .args([
                "-numa",
                "node,cpus=0-3,memdev=m0",
                "-numa",
                "node,cpus=4-7,memdev=m1",
            ])
            .arg("-kernel")
            .arg(kernel)
            .arg("-initrd")
            .arg(disk)
            .args(["-append", &line])
            .arg("-serial")
            .arg(format!("file:{}", console.display()))
            .args([
                "-display",
                "none",
                "-monitor",
                "none",
                "-nic",
                "none",
                "-no-reboot",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// The archive that the kernel unpacks.
    fn archive(&self) -> Result<Vec<u8>> {
        let name = self.init.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::other("the first process has no name"))?;
        let mut programs = self.programs.clone();
        programs.push((name.to_owned(), self.init.clone()));
        let mut files = self.files.clone();
        let sources: Vec<&Path> = programs
            .iter()
            .map(|(_, source)| source.as_path())
            .collect();
        for library in libraries(&sources)? {
            files.push((library.to_string_lossy().into_owned(), library));
        }
        files.extend(programs);
        let mut archive = Vec::new();
        let mut made = std::collections::BTreeSet::new();
        for folder in ["dev", "proc", "sys", "tmp", "run"] {
            entry(&mut archive, folder, 0o040_755, &[])?;
            made.insert(PathBuf::from(folder));
        }
        for (path, source) in files {
            let path = PathBuf::from(path.trim_start_matches('/'));
            let above: Vec<&Path> = path.ancestors().skip(1).collect();
            for folder in above
                .into_iter()
                .rev()
                .filter(|f| !f.as_os_str().is_empty())
            {
                if made.insert(folder.to_owned()) {
                    entry(&mut archive, &folder.to_string_lossy(), 0o040_755, &[])?;
                }
            }
            if made.insert(path.clone()) {
                let bytes = std::fs::read(&source)?;
                entry(&mut archive, &path.to_string_lossy(), 0o100_755, &bytes)?;
            }
        }
        entry(&mut archive, "TRAILER!!!", 0, &[])?;
        Ok(archive)
    }
}

/// One entry of the format `newc` of cpio: thirteen numbers in hexadecimal digits, the name, the contents, each padded to
/// four bytes.
fn entry(archive: &mut Vec<u8>, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
    let size = u32::try_from(contents.len()).map_err(Error::other)?;
    let length = u32::try_from(name.len() + 1).map_err(Error::other)?;
    // Inode (equal ones with one link each are no links), mode, owner, group, links, time, size, devices, name, sum.
    let numbers = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
    archive.extend_from_slice(b"070701");
    for number in numbers {
        archive.extend_from_slice(format!("{number:08x}").as_bytes());
    }
    archive.extend_from_slice(name.as_bytes());
    archive.push(0);
    archive.resize(archive.len().next_multiple_of(4), 0);
    archive.extend_from_slice(contents);
    archive.resize(archive.len().next_multiple_of(4), 0);
    Ok(())
}
