//! Shared by the subcommands of `albacore`: errors, exit codes, standard output.
#![forbid(unsafe_code)]

mod failure;
mod output;
mod programs;

pub use failure::{Failure, report_refused_arguments, sentence};
pub use output::{Output, RunOutput, print, print_json};
pub use programs::program_beside;
