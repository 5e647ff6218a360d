//! Content codings: gzip and deflate.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::HeaderMap;

use super::limits::BODY_BYTES_MAX;
use super::request_error::RequestError;

/// A supported content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ContentCoding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950 (zlib), which HTTP calls deflate.
    Deflate,
}

impl ContentCoding {
    /// The name of the coding in headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// Returns the coding with this name.
    pub(super) fn from_name(name: &str) -> Option<Self> {
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => Some(Self::Gzip),
            name if name.eq_ignore_ascii_case("deflate") => Some(Self::Deflate),
            _ => None,
        }
    }

    /// Selects the coding of a reply: that of `Accept-Encoding` if it names exactly one.
    ///
    /// A list of several codings is the default of client libraries; compressing for them costs
    /// milliseconds and gains nothing inside a cluster. A single coding is a deliberate choice.
    pub(super) fn for_reply(headers: &HeaderMap) -> Option<Self> {
        headers
            .get(hyper::header::ACCEPT_ENCODING)
            .and_then(|value| Self::from_name(value.to_str().ok()?))
    }

    /// Compresses `body`, at the fastest level.
    pub(super) fn compress(self, body: &[u8]) -> Option<Vec<u8>> {
        let into = Vec::with_capacity(body.len() / 2);
        match self {
            Self::Gzip => {
                let mut encoder = GzEncoder::new(into, Compression::fast());
                encoder.write_all(body).ok()?;
                encoder.finish().ok()
            }
            Self::Deflate => {
                let mut encoder = ZlibEncoder::new(into, Compression::fast());
                encoder.write_all(body).ok()?;
                encoder.finish().ok()
            }
        }
    }

    /// Decompresses `body` to at most [`BODY_BYTES_MAX`] bytes.
    pub(super) fn decompress(self, body: &[u8]) -> Result<Bytes, RequestError> {
        let mut decompressed = Vec::new();
        let limit = BODY_BYTES_MAX as u64 + 1;
        let read = match self {
            Self::Gzip => GzDecoder::new(body)
                .take(limit)
                .read_to_end(&mut decompressed),
            Self::Deflate => ZlibDecoder::new(body)
                .take(limit)
                .read_to_end(&mut decompressed),
        };
        match read {
            Ok(bytes) if bytes > BODY_BYTES_MAX => Err(RequestError::body_too_large(bytes as u64)),
            Ok(_) => Ok(decompressed.into()),
            Err(error) => Err(RequestError::invalid(format!(
                "the body is not valid {}: {error}",
                self.name()
            ))),
        }
    }
}

#[cfg(test)]
mod tests {
    use hyper::header::HeaderValue;

    use super::*;

    #[test]
    fn replies_use_a_coding_only_if_it_is_the_only_one_accepted() {
        let mut headers = HeaderMap::new();
        for (accept, coding) in [
            ("gzip", Some(ContentCoding::Gzip)),
            ("deflate", Some(ContentCoding::Deflate)),
            ("gzip, deflate", None),
            ("br", None),
        ] {
            headers.insert(
                hyper::header::ACCEPT_ENCODING,
                HeaderValue::from_static(accept),
            );
            assert_eq!(ContentCoding::for_reply(&headers), coding, "{accept}");
        }
    }
}
