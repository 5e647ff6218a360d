//! Locates the other programs of Albacore, which are installed in the same directory.

use std::path::PathBuf;

use crate::{Failure, sentence};

/// Path of the program `name` in the directory of this program.
///
/// # Errors
/// The program is missing, or the path of this program is unknown.
pub fn program_beside(name: &str) -> Result<PathBuf, Failure> {
    let own = std::env::current_exe().map_err(|e| Failure::Failed(sentence(&e)))?;
    let program = own.with_file_name(name);
    if program.is_file() {
        return Ok(program);
    }
    Err(Failure::Failed(format!(
        "{} is missing: albacore, albacore-lab, albacore-server and albacore-params are installed into the same folder",
        program.display()
    )))
}
