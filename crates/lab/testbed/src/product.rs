//! The programs of this workspace, for tests of other packages: cargo builds the programs of a
//! package only for that package's own tests.
//!
//! A program built alone has other features of its dependencies than one built with the whole
//! workspace, so all of them are compiled again. So `make test` builds everything at once and sets
//! [`BUILT`].

use std::path::PathBuf;
use std::process::Command;

use crate::TestbedError;

/// Set by `make test`: the programs of the workspace are up to date and need no build.
const BUILT: &str = "ALBACORE_PROGRAMS_BUILT";

/// Path of the program `name` of the package `name`, built in the profile of the calling test, into
/// the target folder of that test.
///
/// # Errors
/// It cannot be built, or the caller is not a test that cargo built.
pub fn product(name: &str) -> Result<PathBuf, TestbedError> {
    product_of(name, name)
}

/// The program `name` of the package `package`, as [`product`].
///
/// # Errors
/// As [`product`].
pub fn product_of(package: &str, name: &str) -> Result<PathBuf, TestbedError> {
    // A test is in the folder `deps` below that of the programs.
    let test = std::env::current_exe().map_err(TestbedError::file("the running test"))?;
    let Some(folder) = test.ancestors().nth(2) else {
        return Err(TestbedError::NoTest { program: test });
    };
    let program = folder.join(name);
    if std::env::var_os(BUILT).is_none() {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--bins", "--package", package]);
        if !cfg!(debug_assertions) {
            cargo.arg("--release");
        }
        let status = cargo
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .status()
            .map_err(TestbedError::file("cargo"))?;
        if !status.success() {
            return Err(TestbedError::Product {
                name: package.to_owned(),
                status,
            });
        }
    }
    if !program.is_file() {
        return Err(TestbedError::NoProduct { program });
    }
    Ok(program)
}
