//! Parameters that somebody outside tells this server while it runs (`--params`), and what is in
//! force of them.
//!
//! Two say how to batch: the settings (the file of `--settings`, or the command line) and the
//! stream of `--params`. **The stream is in force while it is connected**: it brings an edit in a
//! moment, where a mounted file takes a minute. When it is lost, what it said last stays in force,
//! so that a restart of `albacore-params` changes nothing, until one of these:
//! - the stream is back, and says what is so now;
//! - the settings file changes: then it is the newer word;
//! - the stream was away for [`crate::limits::TOLD_KEPT_FOR`], in which a mounted file has caught
//!   up: the settings are in force again.
//!
//! Parameters that are wrong change nothing: they are refused by the name of the field, counted,
//! and told once. Rules, bounds and objectives can be told; models, workers and threads cannot.
//!
//! `desk` holds both and tells the engine; `follow` keeps the connection; `take` checks a message.

mod desk;
mod follow;
mod place;
mod take;

pub(crate) use desk::{Desk, Link, Objectives};
pub(crate) use follow::follow;
pub use place::Place;
pub(crate) use take::policy_of;

/// A message of the stream, for fuzz targets: read and checked, its rules as the engine takes them.
#[cfg(any(test, fuzzing))]
pub fn fuzzed(bytes: &[u8]) {
    use prost::Message as _;
    if bytes.len() > crate::limits::PARAMS_BYTES_MAX {
        return;
    }
    if let Ok(message) = albacore_proto::params::Parameters::decode(bytes) {
        let _ = take::Told::of(&message);
    }
}
