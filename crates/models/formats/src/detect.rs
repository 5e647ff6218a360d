//! Finds the format of a model file.

use crate::error::ModelError;
use crate::model::{Format, Model};
use crate::{foreign, json, lightgbm, sklearn, ubjson, xgboost};

/// Reads a model in any known format.
pub(crate) fn parse(bytes: &[u8]) -> Result<Model, ModelError> {
    match detect(bytes).ok_or_else(|| foreign::identify(bytes))? {
        Format::XgboostUbjson => {
            xgboost::parse(&mut ubjson::UbjsonReader::new(bytes), Format::XgboostUbjson).map_err(
                |error| {
                    foreign::identify_object(bytes, &mut ubjson::UbjsonReader::new(bytes), error)
                },
            )
        }
        Format::XgboostJson => {
            xgboost::parse(&mut json::JsonReader::new(bytes), Format::XgboostJson).map_err(
                |error| foreign::identify_object(bytes, &mut json::JsonReader::new(bytes), error),
            )
        }
        Format::LightgbmText => lightgbm::parse(bytes),
        Format::SklearnJson => sklearn::parse(bytes),
    }
}

/// UBJSON and JSON both open an object with `{`; JSON continues with a quoted key or the end of the
/// object, UBJSON with a length marker.
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
