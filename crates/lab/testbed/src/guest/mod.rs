//! A machine that this one is not: emulated by QEMU, with more cpus, NUMA and a kernel of its own.
//! Its whole disk is an archive in memory with programs of this machine and the libraries that they
//! need; its first process is one of them.

mod archive;
mod modules;

use std::ffi::OsString;
use std::io::{Error, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::image::libraries;
use crate::limits::{GUEST_BOOT_MAX, GUEST_TIME_MAX, READY_PERIOD};
use crate::{Program, TestbedError};
use archive::Archive;

/// How large a machine is. Every core has two threads, every package is a NUMA node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Size {
    /// 8 cpus: 2 packages of 2 cores.
    #[default]
    Eight,
    /// 32 cpus: 4 packages of 4 cores.
    ThirtyTwo,
}

impl Size {
    /// Packages, and cores in each.
    fn shape(self) -> (u32, u32) {
        match self {
            Self::Eight => (2, 2),
            Self::ThirtyTwo => (4, 4),
        }
    }

    /// The emulator's words for cpus and memories.
    fn words(self) -> Vec<String> {
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

/// A machine to be emulated.
#[derive(Clone, Debug, Default)]
pub struct Guest {
    pub size: Size,
    /// The first process; it lies at `/NAME`.
    pub init: PathBuf,
    pub arguments: Vec<String>,
    /// More programs: where they lie in the guest, and here.
    pub programs: Vec<(String, PathBuf)>,
    pub files: Vec<(String, PathBuf)>,
    /// Symbolic links: where they lie, and what they mean.
    pub links: Vec<(String, String)>,
    /// Modules of its kernel. They lie in `/modules`, with what they need, and can be loaded in the
    /// order of their names.
    pub modules: Vec<&'static str>,
}

/// Mebibytes of memory.
const MEMORY: u32 = 4_096;

/// Programs of the guest wait for each other in loops, as on a machine whose cpus never stop. At
/// the priority of the tests beside it, each such wait would last for a time slice of the host.
const PRIORITY: &str = "-10";

/// What is the same for machines of all sizes.
const MACHINE: &str =
    "-accel tcg,thread=multi,tb-size=512 -cpu Nehalem -display none -monitor none -no-reboot";

impl Guest {
    /// Boots it, waits until it is off, and gives what it wrote to its console. It has no network.
    /// The emulator hangs in a boot now and then; a second boot follows, which shows the messages
    /// of its kernel.
    ///
    /// # Errors
    /// QEMU or its kernel cannot be had, a file cannot be read, or it is not off in time.
    pub fn run(&self) -> std::result::Result<String, TestbedError> {
        let folder = TempDir::with_prefix("albacore-guest-")
            .map_err(TestbedError::file("a temporary folder"))?;
        let words = self.prepare(folder.path(), &["-nic", "none"])?;
        match run(folder.path(), &words, Some(GUEST_BOOT_MAX)) {
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

    /// Boots it in the network that `entrance` leads to, on its device `tap`, and goes on. Its
    /// files lie in `folder`.
    pub(crate) fn start(
        &self,
        folder: &Path,
        entrance: &[OsString],
        tap: &str,
    ) -> std::result::Result<Program, TestbedError> {
        let net = format!("tap,id=net0,ifname={tap},script=no,downscript=no");
        // It boots from no network, and so needs none of the firmware for that.
        let device = "virtio-net-pci,netdev=net0,romfile=";
        let mut words = entrance.to_vec();
        words.extend(self.prepare(folder, &["-netdev", &net, "-device", device])?);
        let log = folder.join("emulator.log");
        Program::start("the guest", Path::new(&words[0]), &words[1..], log)
    }

    /// Writes its disk into `folder`; the command that boots it.
    fn prepare(
        &self,
        folder: &Path,
        network: &[&str],
    ) -> std::result::Result<Vec<OsString>, TestbedError> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/bignode/kernel.sh");
        let kernel = crate::program::folder_of(&script)?;
        let disk = folder.join("disk.cpio");
        self.write(&disk, &kernel.join("modules"))
            .map_err(TestbedError::file(&disk))?;
        let name = self.init.file_name().unwrap_or_default().to_string_lossy();
        let line = format!(
            "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on cgroup_no_v1=all \
             rdinit=/{name} -- {}",
            self.arguments.join(" ")
        );
        // Emulated, not virtualized: a machine that is virtual itself may offer a /dev/kvm that
        // hangs.
        let mut words: Vec<OsString> = ["nice", "-n", PRIORITY, "qemu-system-x86_64"]
            .map(OsString::from)
            .into();
        words.extend(self.size.words().into_iter().map(OsString::from));
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
        // Programs load libraries, and these load others.
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

/// Boots with the command `words`, and waits until the guest is off. It has `silent_max` for its
/// first words.
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

/// What the guest of this folder wrote to its console.
pub(crate) fn console(folder: &Path) -> String {
    let bytes = std::fs::read(folder.join("console")).unwrap_or_default();
    String::from_utf8_lossy(&bytes).replace('\r', "")
}
