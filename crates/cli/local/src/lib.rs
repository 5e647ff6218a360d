//! `albacore run`: serves what an InferenceDeployment's file says on this machine, places every
//! thread and keeps it placed.
//!
//! `run` takes one message at a time from the `inbox`: the placer's news (`placing`), the server's
//! lines and end (`server`), signals, edits of the file (`file_watch`). `restarts` says when a
//! server that ended is started again. `serving` brings edits to the built-in server, `telling` by
//! `albacore-params`. `events`, `output` and `table` are what people and programs see of it.
#![forbid(unsafe_code)]

mod events;
mod file_watch;
mod inbox;
mod left_behind;
mod output;
mod placing;
mod private_folder;
mod restarts;
mod run;
mod server;
mod serving;
mod settings;
mod table;
mod telling;

pub use run::{Options, Shape, run};
