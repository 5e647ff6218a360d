//! Compiles a program into one static file that does not depend on the path of the checkout.
//!
//! Static linking uses musl: it is part of the toolchain, including its linker, so that the result
//! does not depend on the machine's C library and binutils. (glibc's static resolver also works in
//! an empty image, tested with 2.36, but its linker warns against it, and it would be the machine's
//! glibc.) The C code of a few crates is compiled by zig's clang, which includes the headers of
//! musl for every architecture.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Architecture, Program};

/// Creates the environment for a list of Python packages and prints its directory.
const PYTHON: &str = "tests/python-env.sh";

/// The list of packages with zig.
const ZIG: &str = "scripts/zig/requirements.txt";

const C_COMPILER: &str = "scripts/zig/cc.sh";
const C_ARCHIVER: &str = "scripts/zig/ar.sh";

/// The build profile in Cargo.toml.
const PROFILE: &str = "image";

/// Paths of the checkout and the toolchain needed to compile for an image.
pub(super) struct Compiler {
    root: PathBuf,
    architecture: Architecture,
    target: String,
    /// Has zig installed as a package.
    python: PathBuf,
    folder: PathBuf,
    /// The toolchain, and its program that strips symbols.
    system: PathBuf,
    objcopy: PathBuf,
    /// Directories of this machine, and the names that replace them in compiled files.
    renamed: BTreeMap<PathBuf, String>,
}

impl Compiler {
    /// Locates the toolchain and the C compiler.
    ///
    /// # Errors
    /// There is no cargo, no standard library for musl, or no network to fetch the C compiler.
    pub(super) fn find(root: &Path, architecture: Architecture) -> Result<Self> {
        let target = architecture.target();
        let system = PathBuf::from(stdout_of(
            Command::new("rustc").args(["--print", "sysroot"]),
        )?);
        let library = system.join("lib/rustlib").join(&target);
        ensure!(
            library.is_dir(),
            "{} is missing, and static programs need it: run `rustup target add {target}` where \
             static.rust-lang.org can be reached",
            library.display()
        );
        let zig = stdout_of(Command::new(root.join(PYTHON)).arg(root.join(ZIG)))
            .context("cannot install the C compiler from PyPI")?;
        let version = stdout_of(Command::new("rustc").arg("-vV"))?;
        let commit = version
            .lines()
            .find_map(|l| l.strip_prefix("commit-hash: "));
        let commit = commit.context("rustc -vV does not print commit-hash")?;
        let host = version.lines().find_map(|l| l.strip_prefix("host: "));
        let host = host.context("rustc -vV does not print host")?;
        let objcopy = system
            .join("lib/rustlib")
            .join(host)
            .join("bin/rust-objcopy");
        ensure!(
            objcopy.is_file(),
            "{} is missing, and images contain stripped programs: install Rust 1.90 or newer by \
             rustup",
            objcopy.display()
        );
        let metadata = Command::new(cargo())
            .args(["metadata", "--format-version", "1", "--no-deps"])
            .current_dir(root)
            .output()
            .context("cannot run cargo")?;
        let metadata: Value = serde_json::from_slice(&metadata.stdout)
            .context("cargo metadata does not print JSON: run it to see why")?;
        let folder = metadata["target_directory"].as_str();
        let folder =
            PathBuf::from(folder.context("cargo metadata does not contain target_directory")?);
        let renamed = BTreeMap::from([
            (root.canonicalize()?, "/albacore".to_owned()),
            (folder.clone(), "/target".to_owned()),
            (cargo_home()?, "/cargo".to_owned()),
            // Written by rustc itself if the sources of the standard library are not installed.
            (
                system.join("lib/rustlib/src/rust"),
                format!("/rustc/{commit}"),
            ),
        ]);
        Ok(Self {
            root: root.to_owned(),
            architecture,
            target,
            python: Path::new(&zig).join("bin/python"),
            folder,
            system,
            objcopy,
            renamed,
        })
    }

    /// Compiles `programs` in one build and returns their paths in the same order. Crates that
    /// several of them link are compiled once, with the union of the requested features; the linker
    /// removes code that a program does not call.
    ///
    /// # Errors
    /// The compiler fails.
    pub(super) fn compile(&self, programs: &[Program]) -> Result<Vec<PathBuf>> {
        let mut command = Command::new(cargo());
        command
            .args(arguments(&self.target, programs))
            .current_dir(&self.root);
        let name = self.target.replace('-', "_");
        let of_target = |variable: &str| format!("{variable}_{name}");
        // Settings of the caller that would affect the program.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let settings = ["CARGO_PROFILE_", "CARGO_TARGET_X86", "CARGO_TARGET_AARCH"];
            if settings.iter().any(|setting| text.starts_with(setting)) {
                command.env_remove(&name);
            }
        }
        command
            .env("CARGO_INCREMENTAL", "0")
            // For C code that embeds its compilation time. Not the time of the commit, because
            // files that a previous commit left in the target directory are reused.
            .env("SOURCE_DATE_EPOCH", "0")
            .env("CARGO_ENCODED_RUSTFLAGS", self.rust_flags())
            .env(of_target("CC"), self.root.join(C_COMPILER))
            .env(of_target("AR"), self.root.join(C_ARCHIVER))
            .env(of_target("CFLAGS"), self.c_flags())
            .env("ALBACORE_ZIG_PYTHON", &self.python)
            .env("ALBACORE_ZIG_TARGET", self.zig_target());
        let status = command.status().context("cannot run cargo")?;
        if !status.success() {
            bail!(
                "the programs do not compile for {}: cargo prints the reason above",
                self.target
            );
        }
        let folder = self.folder.join(&self.target).join(PROFILE);
        Ok(programs
            .iter()
            .map(|program| folder.join(program.name))
            .collect())
    }

    /// Writes `program` without its symbols to a file in the same directory and returns its path.
    /// Uses the toolchain's own program, like rustc, so that the result does not depend on the
    /// machine's binutils.
    ///
    /// # Errors
    /// The program cannot be run, or it fails.
    pub(super) fn strip(&self, program: &Path) -> Result<PathBuf> {
        let stripped = program.with_extension("stripped");
        let mut command = Command::new(&self.objcopy);
        command.env("LD_LIBRARY_PATH", self.system.join("lib"));
        stdout_of(command.arg("--strip-all").arg(program).arg(&stripped))?;
        Ok(stripped)
    }

    /// In rustc, later mappings take precedence, so the longest paths must be last, which is the
    /// order of the map.
    fn rust_flags(&self) -> OsString {
        let mut flags = OsString::from("-Clinker=rust-lld");
        for (path, name) in &self.renamed {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(path);
            flags.push("=");
            flags.push(name);
        }
        flags
    }

    fn zig_target(&self) -> String {
        format!("{}-linux-musl", self.architecture.cpu())
    }

    fn c_flags(&self) -> OsString {
        let mut flags = OsString::from("-g0");
        for (path, name) in &self.renamed {
            flags.push(" -ffile-prefix-map=");
            flags.push(path);
            flags.push("=");
            flags.push(name);
        }
        flags
    }
}

/// Arguments of cargo for one build of all programs.
fn arguments<'a>(target: &'a str, programs: &'a [Program]) -> Vec<&'a str> {
    let mut all = vec![
        "build",
        "--locked",
        "--profile",
        PROFILE,
        "--target",
        target,
    ];
    for program in programs {
        all.extend(["--package", program.package, "--bin", program.name]);
    }
    all
}

/// The cargo that runs this program, or the one in PATH.
pub(super) fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

fn cargo_home() -> Result<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"));
    let given = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    given
        .or_else(home)
        .context("neither CARGO_HOME nor HOME is set: set one")
}

/// Runs `command` and returns its standard output if it succeeds.
pub(super) fn stdout_of(command: &mut Command) -> Result<String> {
    let output = command
        .output()
        .with_context(|| format!("cannot run {}", command.get_program().display()))?;
    ensure!(
        output.status.success(),
        "{} failed: {}",
        command.get_program().display(),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::super::programs;
    use super::*;

    #[test]
    fn one_build_makes_every_program() {
        let programs = programs();
        let arguments = arguments("target", &programs);
        assert_eq!(arguments.iter().filter(|word| **word == "build").count(), 1);
        for program in &programs {
            let has = |words: [&str; 2]| arguments.windows(2).any(|pair| pair == words);
            assert!(has(["--package", program.package]));
            assert!(has(["--bin", program.name]));
        }
    }
}
