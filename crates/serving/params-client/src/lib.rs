//! Client of `albacore-params` (`--params`): receives parameters while the server runs.
//!
//! Batching, queue bounds and objectives, and batching, threads and weight of single models, have
//! two sources: the settings (the file of `--settings`, or the command line) and the params stream.
//! **The stream overrides the settings while it is connected**: it delivers an edit within
//! milliseconds, whereas a mounted file takes a minute. After the stream is lost, its last
//! parameters stay effective, so that a restart of `albacore-params` changes nothing, until one of
//! these events:
//! - the stream reconnects and sends the current parameters;
//! - the settings file changes and becomes the newer source;
//! - the stream has been lost for [`limits::PARAMS_RETENTION`], in which a mounted file has been
//!   updated: the settings become effective again.
//!
//! After a front dies, the next front starts with its effective parameters, as after a loss.
//!
//! Invalid parameters change nothing: they are rejected with the name of the field, counted, and
//! reported once. The stream cannot add or remove models, or change workers or their threads.
//!
//! `client` maintains the connection, `decode` validates a message,
//! [`albacore_live_settings::effective_config::EffectiveConfig`] stores both sources.
#![forbid(unsafe_code)]

mod client;
mod decode;
mod endpoint;
pub mod limits;

pub use client::run;
pub use endpoint::ParamsEndpoint;

use albacore_settings::agent_stream::Parameters;
use prost::Message;

/// Decodes and checks a message of the stream, which may have been kept by a previous front.
///
/// # Errors
/// The message is not valid for workers with this number of threads.
pub fn decode_parameters(message: &[u8], threads: usize) -> Result<Parameters, String> {
    let message = Message::decode(message).map_err(|error| error.to_string())?;
    decode::parameters(&message, threads)
}
