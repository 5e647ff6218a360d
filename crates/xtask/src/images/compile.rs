//! Compiles a program into one static file that is the same wherever the checkout lies.
//!
//! Static means musl: the toolchain brings it, with its linker, so that the C library and binutils
//! of the machine leave no trace. (glibc's static resolver works in an empty image, too, here with
//! 2.36, but its linker warns against it and it would be the machine's.) The C code of a few crates
//! is compiled by zig's clang, which brings the headers of musl for every architecture.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::{Architecture, Program};

/// Makes the environment of a list of Python packages, and prints its folder.
const PYTHON: &str = "tests/python-env.sh";

/// The list with zig.
const ZIG: &str = "scripts/zig/requirements.txt";

const C_COMPILER: &str = "scripts/zig/cc.sh";
const C_ARCHIVER: &str = "scripts/zig/ar.sh";

/// The profile of Cargo.toml.
const PROFILE: &str = "image";

/// What the checkout and the toolchain need to compile for an image.
pub(super) struct Compiler {
    root: PathBuf,
    architecture: Architecture,
    target: String,
    /// Has zig as a package.
    python: PathBuf,
    folder: PathBuf,
    /// The toolchain, and the program in it that strips.
    system: PathBuf,
    objcopy: PathBuf,
    /// Folders of this machine and the names that they have in what is compiled.
    renamed: BTreeMap<PathBuf, String>,
}

impl Compiler {
    /// Looks for what is needed.
    ///
    /// # Errors
    /// No cargo, no standard library for musl, no network for the C compiler.
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
            .context("the C compiler cannot be installed from PyPI")?;
        let version = stdout_of(Command::new("rustc").arg("-vV"))?;
        let commit = version
            .lines()
            .find_map(|l| l.strip_prefix("commit-hash: "));
        let commit = commit.context("rustc -vV says no commit-hash")?;
        let host = version.lines().find_map(|l| l.strip_prefix("host: "));
        let host = host.context("rustc -vV says no host")?;
        let objcopy = system
            .join("lib/rustlib")
            .join(host)
            .join("bin/rust-objcopy");
        ensure!(
            objcopy.is_file(),
            "{} is missing, and images hold stripped programs: install Rust 1.90 or newer by rustup",
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
        let folder = PathBuf::from(folder.context("cargo metadata names no target directory")?);
        let renamed = BTreeMap::from([
            (root.canonicalize()?, "/albacore".to_owned()),
            (folder.clone(), "/target".to_owned()),
            (cargo_home()?, "/cargo".to_owned()),
            // What rustc itself writes where the sources of the standard library are not installed.
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

    /// Compiles `programs` in one build and gives their paths, in the same order. What several of
    /// them link is compiled once, with the features that any of them asks for; what a program does
    /// not call, the linker leaves out.
    ///
    /// # Errors
    /// The compiler's.
    pub(super) fn compile(&self, programs: &[Program]) -> Result<Vec<PathBuf>> {
        let mut command = Command::new(cargo());
        command
            .args(arguments(&self.target, programs))
            .current_dir(&self.root);
        let name = self.target.replace('-', "_");
        let of_target = |variable: &str| format!("{variable}_{name}");
        // Settings of the caller's that would get into the program.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            let settings = ["CARGO_PROFILE_", "CARGO_TARGET_X86", "CARGO_TARGET_AARCH"];
            if settings.iter().any(|setting| text.starts_with(setting)) {
                command.env_remove(&name);
            }
        }
        command
            .env("CARGO_INCREMENTAL", "0")
            // C code that says when it was compiled. Not the commit's time: what a commit before
            // this one left in the target folder is used again.
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

    /// Writes `program` without its symbols to a file beside it and gives that file's path. The
    /// toolchain's own program does it, as rustc would: binutils of the machine leave no trace.
    ///
    /// # Errors
    /// The program cannot be run, or fails.
    pub(super) fn strip(&self, program: &Path) -> Result<PathBuf> {
        let stripped = program.with_extension("stripped");
        let mut command = Command::new(&self.objcopy);
        command.env("LD_LIBRARY_PATH", self.system.join("lib"));
        stdout_of(command.arg("--strip-all").arg(program).arg(&stripped))?;
        Ok(stripped)
    }

    /// Later renamings win in rustc, so the longest paths come last, as the map has them.
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

/// Arguments of cargo: one build of all programs.
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

/// The cargo that runs this program, or the one on the path.
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

/// The standard output of `command`, if it succeeds.
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
