//! Content codings of both protocols: gzip and deflate.

use std::io::{Read as _, Write as _};

use bytes::Bytes;
use flate2::Compression;
use flate2::bufread::{GzDecoder, ZlibDecoder};
use flate2::write::{GzEncoder, ZlibEncoder};
use hyper::HeaderMap;

use super::body;
use super::limits::BODY_BYTES_MAX;
use super::refused::Refused;

/// A content coding that is understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Coding {
    /// RFC 1952.
    Gzip,
    /// RFC 1950, which is what HTTP calls deflate.
    Deflate,
}

impl Coding {
    /// The name in headers.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
        }
    }

    /// The coding of this name.
    pub(super) fn named(name: &str) -> Option<Self> {
        match name.trim() {
            name if name.eq_ignore_ascii_case("gzip") => Some(Self::Gzip),
            name if name.eq_ignore_ascii_case("deflate") => Some(Self::Deflate),
            _ => None,
        }
    }

    /// The coding of a reply: the one that the client names alone.
    ///
    /// A client that lists several sends its library's default with every request; packing costs it
    /// milliseconds and gains nothing inside a cluster. One that names a single coding has asked
    /// for it.
    pub(super) fn wanted(headers: &HeaderMap) -> Option<Self> {
        headers
            .get(hyper::header::ACCEPT_ENCODING)
            .and_then(|value| Self::named(value.to_str().ok()?))
    }

    /// Packs `body`, fast rather than small.
    pub(super) fn pack(self, body: &[u8]) -> Option<Vec<u8>> {
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

    /// Unpacks `body`, of which no more than [`BODY_BYTES_MAX`] bytes may come.
    pub(super) fn unpack(self, body: &[u8]) -> Result<Bytes, Refused> {
        let mut unpacked = Vec::new();
        let limit = BODY_BYTES_MAX as u64 + 1;
        let read = match self {
            Self::Gzip => GzDecoder::new(body).take(limit).read_to_end(&mut unpacked),
            Self::Deflate => ZlibDecoder::new(body)
                .take(limit)
                .read_to_end(&mut unpacked),
        };
        match read {
            Ok(bytes) if bytes > BODY_BYTES_MAX => Err(body::too_large(bytes as u64)),
            Ok(_) => Ok(unpacked.into()),
            Err(error) => Err(Refused::invalid(format!(
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
    fn only_a_coding_named_alone_is_used() {
        let mut headers = HeaderMap::new();
        for (accept, coding) in [
            ("gzip", Some(Coding::Gzip)),
            ("deflate", Some(Coding::Deflate)),
            ("gzip, deflate", None),
            ("br", None),
        ] {
            headers.insert(
                hyper::header::ACCEPT_ENCODING,
                HeaderValue::from_static(accept),
            );
            assert_eq!(Coding::wanted(&headers), coding, "{accept}");
        }
    }
}
