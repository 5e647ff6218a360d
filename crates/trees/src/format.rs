//! Model files: which format bytes are in, and one reader for each.

mod json;
mod lightgbm;
mod source;
mod ubjson;
mod xgboost;

use crate::error::ModelError;
use crate::model::{Format, Model};

/// Reads a model in any known format.
pub(crate) fn parse(bytes: &[u8]) -> Result<Model, ModelError> {
    let model = match detect(bytes).ok_or(ModelError::UnknownFormat)? {
        Format::XgboostUbjson => {
            xgboost::parse(&mut ubjson::Reader::new(bytes), Format::XgboostUbjson)
        }
        Format::XgboostJson => xgboost::parse(&mut json::Reader::new(bytes), Format::XgboostJson),
        Format::LightgbmText => lightgbm::parse(bytes),
    }?;
    // The compiled model counts nodes in 32 bits; vector leaves and sets are fewer than its bytes.
    let nodes: usize = model.trees.iter().map(|tree| tree.nodes.len()).sum();
    match u32::try_from(nodes.max(bytes.len())) {
        Ok(_) => Ok(model),
        Err(_) => Err(ModelError::TooLarge(format!(
            "{nodes} nodes in {} bytes",
            bytes.len()
        ))),
    }
}

/// UBJSON and JSON both open an object with `{`; what follows tells: a quoted key or the end of the
/// object in JSON, a length marker in UBJSON.
fn detect(bytes: &[u8]) -> Option<Format> {
    let text = bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start();
    if let Some(rest) = text.strip_prefix(b"{") {
        return match rest.trim_ascii_start().first() {
            Some(b'"' | b'}') => Some(Format::XgboostJson),
            Some(b'L' | b'l' | b'I' | b'i' | b'U' | b'$' | b'#') => Some(Format::XgboostUbjson),
            _ => None,
        };
    }
    let first_line = text.split(|&byte| byte == b'\n').next()?.trim_ascii_end();
    (first_line == b"tree").then_some(Format::LightgbmText)
}

#[cfg(test)]
mod tests;
