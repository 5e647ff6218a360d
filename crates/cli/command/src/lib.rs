//! Shared by the subcommands of `albacore`: errors, exit codes, standard output.
#![forbid(unsafe_code)]

mod failure;
mod output;
mod programs;

pub use albacore_values::sentence;

pub use failure::{Failure, report_refused_arguments};
pub use output::{OutputFormat, RunOutput, print, print_json};
pub use programs::program_beside;
