//! Detects the format of a model file.

use crate::error::ModelError;
use crate::json::JsonReader;
use crate::model::{Format, Model};
use crate::ubjson::UbjsonReader;
use crate::{foreign, lightgbm, sklearn, xgboost};

impl Model {
    /// Parses a model; the format is detected by the content.
    ///
    /// # Errors
    /// A field is invalid, or the model is not supported.
    pub fn parse(bytes: &[u8]) -> Result<Self, ModelError> {
        let format = detect(bytes).ok_or_else(|| foreign::identify(bytes))?;
        match format {
            Format::XgboostUbjson => {
                let reader = || UbjsonReader::new(bytes);
                xgboost::parse(&mut reader(), format)
                    .map_err(|error| foreign::identify_object(bytes, &mut reader(), error))
            }
            Format::XgboostJson => {
                let reader = || JsonReader::new(bytes);
                xgboost::parse(&mut reader(), format)
                    .map_err(|error| foreign::identify_object(bytes, &mut reader(), error))
            }
            Format::LightgbmText => lightgbm::parse(bytes),
            Format::SklearnJson => sklearn::parse(bytes),
        }
    }
}

/// UBJSON and JSON both start an object with `{`. In JSON a quoted key or the end of the object
/// follows, in UBJSON a length marker.
fn detect(bytes: &[u8]) -> Option<Format> {
    let text = bytes
        .strip_prefix(b"\xef\xbb\xbf")
        .unwrap_or(bytes)
        .trim_ascii_start();
    if let Some(rest) = text.strip_prefix(b"{") {
        let rest = rest.trim_ascii_start();
        if rest.starts_with(b"\"scikit_learn\"") {
            return Some(Format::SklearnJson);
        }
        return match rest.first() {
            Some(b'"' | b'}') => Some(Format::XgboostJson),
            Some(b'L' | b'l' | b'I' | b'i' | b'U' | b'$' | b'#') => Some(Format::XgboostUbjson),
            _ => None,
        };
    }
    let first_line = text.split(|&byte| byte == b'\n').next()?.trim_ascii_end();
    (first_line == b"tree").then_some(Format::LightgbmText)
}
