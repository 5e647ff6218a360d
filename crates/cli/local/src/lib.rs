//! `albacore run`: serves the InferenceDeployment in a file on this machine, places every thread
//! and keeps it placed.
//!
//! `cpus` sets the mask that all processes inherit. `run` handles one `message` at a time: reports
//! of the placer (`placer_thread`), output lines and exit of the server (`server`), signals, and
//! edits of the file (`file_watch`). `restart_policy` decides when a server that exited is
//! restarted. `live_settings` applies edits to the built-in server through its settings file and
//! `albacore-params` (`params_process`). `events`, `output` and `table` produce the output.
#![forbid(unsafe_code)]

mod cpus;
mod events;
mod file_watch;
mod live_settings;
mod message;
mod node_snapshot;
mod options;
mod orphans;
mod output;
mod params_process;
mod placer_thread;
mod private_folder;
mod restart_policy;
mod run;
mod server;
mod table;

pub use options::Options;
pub use run::run;
