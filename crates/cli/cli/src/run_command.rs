//! `albacore run -f FILE`.

use albacore_local::{Options, OutputFormat};

use crate::args::{RunArgs, RunOutput};
use albacore_command::Failure;

/// Runs until a signal, the end of the server or an error.
///
/// # Errors
/// The file, the server or the kernel does not allow it; the failure says which and what to do.
pub(crate) fn run(args: &RunArgs) -> Result<(), Failure> {
    albacore_local::run(&Options {
        file: args.file.clone(),
        http: args.http,
        grpc: args.grpc,
        format: match args.output {
            RunOutput::Auto => OutputFormat::Auto,
            RunOutput::Table => OutputFormat::Table,
            RunOutput::Json => OutputFormat::Json,
        },
    })
}
