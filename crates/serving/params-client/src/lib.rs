//! Client of `albacore-params` (`--params`): receives parameters while the server runs.
//!
//! Batching, queue bounds and objectives, and batching, threads and weight of single models, have
//! two sources: the settings (the file of `--settings`, or the command line) and the params stream.
//! **The stream overrides the settings while it is connected**: it delivers an edit within
//! milliseconds, where a mounted file takes a minute. After the stream is lost its last parameters
//! stay in force, so that a restart of `albacore-params` changes nothing, until one of these:
//! - the stream is connected again and sends the current parameters;
//! - the settings file changes, which makes it the newer source;
//! - the stream was lost for [`limits::PARAMS_RETENTION`], in which a mounted file has
//!   caught up: the settings are in force again.
//!
//! The next front starts with the parameters that a dead one had in force, as after a loss.
//!
//! Invalid parameters change nothing: they are refused with the name of the field, counted, and
//! reported once. The stream cannot change which models there are, workers, or threads of workers.
//!
//! `client` keeps the connection, `decode` validates a message,
//! [`albacore_live_settings::effective_config::EffectiveConfig`] holds both sources.
#![forbid(unsafe_code)]

mod client;
mod decode;
mod endpoint;
pub mod limits;

pub use client::run;
pub use endpoint::ParamsEndpoint;

use albacore_settings::agent_stream::Parameters;
use prost::Message;

/// Decodes and checks a message of the stream, which another front may have kept.
///
/// # Errors
/// It is not valid for workers of so many threads.
pub fn decode_parameters(message: &[u8], threads: usize) -> Result<Parameters, String> {
    let message = Message::decode(message).map_err(|error| error.to_string())?;
    decode::parameters(&message, threads)
}
