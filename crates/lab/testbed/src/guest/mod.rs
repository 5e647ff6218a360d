//! A machine emulated by QEMU, with more cpus, NUMA nodes and its own kernel. Its root file system
//! is an initial RAM disk with programs of the host and their shared libraries; its init process is
//! one of these programs.

mod archive;
mod modules;

use std::ffi::OsString;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::image::libraries;
use crate::limits::{GUEST_FIRST_OUTPUT_MAX, GUEST_TIME_MAX, READY_PERIOD};
use crate::{Program, TestbedError};
use archive::Archive;

/// Topology of a machine. Every core has two threads, every package is a NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    /// 8 cpus: 2 packages of 2 cores.
    #[default]
    Eight,
    /// 32 cpus: 4 packages of 4 cores.
    ThirtyTwo,
}

impl Size {
    /// Number of packages, and of cores per package.
    fn shape(self) -> (u32, u32) {
        match self {
            Self::Eight => (2, 2),
            Self::ThirtyTwo => (4, 4),
        }
    }

    /// QEMU arguments for cpus and memory.
    fn qemu_arguments(self) -> Vec<String> {
        let (packages, cores) = self.shape();
        let cpus = cores * 2;
        let smp = format!(
            "{},sockets={packages},cores={cores},threads=2",
            packages * cpus
        );
        let mut words = vec!["-m".to_owned(), MEMORY.to_string(), "-smp".to_owned(), smp];
        for node in 0..packages {
            let memory = format!("memory-backend-ram,id=m{node},size={}M", MEMORY / packages);
            let (first, last) = (node * cpus, node * cpus + cpus - 1);
            let numa = format!("node,cpus={first}-{last},memdev=m{node}");
            words.extend(["-object".to_owned(), memory, "-numa".to_owned(), numa]);
        }
        words
    }
}

/// Configuration of an emulated machine.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    pub size: Size,
    /// The init process, stored at `/NAME`.
    pub init: PathBuf,
    pub arguments: Vec<String>,
    /// Additional programs: path in the guest, and path on the host.
    pub programs: Vec<(String, PathBuf)>,
    pub files: Vec<(String, PathBuf)>,
    /// Symbolic links: path, and target.
    pub links: Vec<(String, String)>,
    /// Kernel modules. They are stored in `/modules` with their dependencies, and can be loaded in
    /// alphabetical order.
    pub modules: Vec<&'static str>,
}

/// Memory in MiB.
const MEMORY: u32 = 4_096;

/// Programs of the guest wait for each other with spin loops, as on a machine whose cpus never
/// stop. At the priority of concurrent tests, each such wait would last for a time slice of the
/// host.
const PRIORITY: &str = "-10";

/// QEMU arguments common to all sizes.
const MACHINE: &str =
    "-accel tcg,thread=multi,tb-size=512 -cpu Nehalem -display none -monitor none -no-reboot";

impl Guest {
    /// Boots the machine without network, waits until it is off, and returns its console output.
    /// The emulator occasionally hangs during a boot; it is then booted a second time, with the
    /// messages of its kernel.
    ///
    /// # Errors
    /// QEMU or its kernel is not available, a file cannot be read, or the machine is not off in
    /// time.
    pub fn run(&self) -> std::result::Result<String, TestbedError> {
        let folder = TempDir::with_prefix("albacore-guest-")
            .map_err(TestbedError::file("a temporary folder"))?;
        let words = self.prepare(folder.path(), &["-nic", "none"])?;
        match run(folder.path(), &words, Some(GUEST_FIRST_OUTPUT_MAX)) {
            Err(TestbedError::NotReady { tail, .. }) if tail.is_empty() => {}
            result => return result,
        }
        let is_line = |word: &OsString| word.to_string_lossy().starts_with("console=");
        let shown = |word: OsString| match is_line(&word) {
            true => word.to_string_lossy().replace(" quiet ", " ").into(),
            false => word,
        };
        let words: Vec<OsString> = words.into_iter().map(shown).collect();
        run(folder.path(), &words, None)
    }

    /// Boots the machine in the network that `command_prefix` enters, connected to its device
    /// `tap`, and returns immediately. Its files are in `folder`.
    pub(crate) fn start(
        &self,
        folder: &Path,
        command_prefix: &[OsString],
        tap: &str,
    ) -> std::result::Result<Program, TestbedError> {
        let net = format!("tap,id=net0,ifname={tap},script=no,downscript=no");
        // Without network boot no option ROM is needed.
        let device = "virtio-net-pci,netdev=net0,romfile=";
        let mut words = command_prefix.to_vec();
        words.extend(self.prepare(folder, &["-netdev", &net, "-device", device])?);
        let log = folder.join("emulator.log");
        Program::start("the guest", Path::new(&words[0]), &words[1..], log)
    }

    /// Writes its RAM disk into `folder`; returns the command that boots it.
    fn prepare(
        &self,
        folder: &Path,
        network: &[&str],
    ) -> std::result::Result<Vec<OsString>, TestbedError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/bignode/kernel.sh");
        let kernel = crate::program::program_folder(&script)?;
        let disk = folder.join("disk.cpio");
        self.write(&disk, &kernel.join("modules"))
            .map_err(TestbedError::file(&disk))?;
        let name = self.init.file_name().unwrap_or_default().to_string_lossy();
        let line = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on cgroup_no_v1=all \
             rdinit=/{name} -- {}",
            self.arguments.join(" ")
        );
        // Emulation instead of virtualization: a machine that is virtual itself may have a /dev/kvm
        // that hangs.
        let mut words: Vec<OsString> = ["nice", "-n", PRIORITY, "qemu-system-x86_64"]
            .map(OsString::from)
            .into();
        words.extend(self.size.qemu_arguments().into_iter().map(OsString::from));
        words.extend(MACHINE.split_whitespace().map(OsString::from));
        words.extend(["-kernel".into(), kernel.join("vmlinuz").into()]);
        words.extend(["-initrd".into(), disk.into()]);
        words.extend(["-append".into(), line.into()]);
        let console = format!("file:{}", folder.join("console").display());
        words.extend(["-serial".into(), console.into()]);
        words.extend(network.iter().map(OsString::from));
        Ok(words)
    }

    fn write(&self, disk: &Path, modules: &Path) -> Result<()> {
        let name = self.init.file_name().and_then(|name| name.to_str());
        let name = name.ok_or_else(|| Error::other("the first process has no name"))?;
        let mut programs = self.programs.clone();
        programs.push((name.to_owned(), self.init.clone()));
        let mut archive = Archive::create(disk)?;
        for folder in ["dev", "proc", "sys", "tmp", "run"] {
            archive.folder(folder)?;
        }
        // Includes shared libraries and their dependencies.
        let loaded = self.files.iter().map(|(_, source)| source);
        let loaded = loaded.filter(|source| source.extension().is_some_and(|e| e == "so"));
        let sources = programs.iter().map(|(_, source)| source).chain(loaded);
        let sources: Vec<&Path> = sources.map(PathBuf::as_path).collect();
        for library in libraries(&sources)? {
            archive.file(&library.to_string_lossy(), &library)?;
        }
        for (path, source) in self.files.iter().chain(&programs) {
            archive.file(path, source)?;
        }
        for (path, target) in &self.links {
            archive.link(path, target)?;
        }
        for (at, module) in modules::in_order(modules, &self.modules)?
            .iter()
            .enumerate()
        {
            archive.file(&format!("/modules/{at:03}.ko"), module)?;
        }
        archive.end()
    }
}

/// Boots with the command `words`, and waits until the guest is off. `silent_max` is the timeout of
/// its first output.
fn run(
    folder: &Path,
    words: &[OsString],
    silent_max: Option<Duration>,
) -> std::result::Result<String, TestbedError> {
    let mut emulator = Command::new(&words[0])
        .args(&words[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .map_err(TestbedError::file(&words[0]))?;
    let start = Instant::now();
    // bound: GUEST_TIME_MAX
    while emulator
        .try_wait()
        .map_err(TestbedError::file("qemu"))?
        .is_none()
    {
        let time = start.elapsed();
        let is_silent = silent_max.is_some_and(|max| time > max) && console(folder).is_empty();
        if is_silent || time > GUEST_TIME_MAX {
            let _ = emulator.kill();
            let _ = emulator.wait();
            return Err(TestbedError::NotReady {
                program: "the guest",
                seconds: time.as_secs(),
                tail: console(folder),
            });
        }
        std::thread::sleep(READY_PERIOD);
    }
    Ok(console(folder))
}

/// Console output of the guest of this folder.
pub(crate) fn console(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join("console")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}
