//! The parsed `uri` of a model.
//!
//! A checksum may follow as a fragment, `#sha256=` and 64 hexadecimal digits; a file with another
//! SHA-256 is rejected.
//!
//! Nothing is decoded: a path is used as written, so that `kubectl get` shows the name that the
//! server opens.

use std::fmt;
use std::str::FromStr;

use albacore_settings::{OciReference, is_bucket_and_key};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use crate::limits::{QUOTED_CHARS_MAX, URI_CHARS_MAX};

/// Location of a model file, and its checksum.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ModelUri {
    pub place: ModelPlace,
    /// SHA-256 of the file's bytes, 64 lower-case hexadecimal digits; `None` accepts any content.
    pub sha256: Option<String>,
}

/// Location of a model file.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ModelPlace {
    /// `file:///models/fraud.ubj`: an absolute path on the machine of the server; or
    /// `file://./fraud.ubj`, `file://../fraud.ubj`: relative to the YAML file, for `albacore run`
    /// only.
    File {
        /// The path: starts with `/`, `./` or `../`.
        path: String,
    },
    /// `pvc://claim/path/in/volume`.
    Pvc {
        /// Name of the PersistentVolumeClaim, in the namespace of the deployment.
        claim: String,
        /// Path in the volume, without leading slash.
        path: String,
    },
    /// `configmap://name/key`.
    ConfigMap {
        /// Name of the ConfigMap, in the namespace of the deployment.
        name: String,
        /// The key in `data` or `binaryData`.
        key: String,
    },
    /// `http://...`, `https://...`, `s3://bucket/key`, `gs://bucket/key`, `az://container/key` or
    /// `oci://registry/repository:tag`, without the fragment: downloaded by the server itself.
    Url {
        /// The URL as written.
        url: String,
    },
}

/// The pattern in the schema; [`ModelUri::from_str`] accepts the same texts.
pub(crate) const PATTERN: &str = concat!(
    r"^(file://(\.\.?)?/[^\x00-\x1f#]*[^\x00-\x1f/#]",
    r"|pvc://[a-z0-9][a-z0-9.-]*/[^\x00-\x1f#]*[^\x00-\x1f/#]",
    r"|configmap://[a-z0-9][a-z0-9.-]*/[A-Za-z0-9._-]+",
    r"|https?://[^\x00-\x20/#][^\x00-\x20#]*",
    // Parts of a key must not be "." or "..".
    r"|(s3|gs|az)://[A-Za-z0-9._-]+",
    r"(/(\.{0,2}[^\x00-\x1f\x7f-\x9f./#][^\x00-\x1f\x7f-\x9f/#]*|\.{3}[^\x00-\x1f\x7f-\x9f/#]*))+/?",
    r"|oci://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[a-z0-9]([a-z0-9._-]*[a-z0-9])?)+",
    r"(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64}))",
    r"(#sha256=[0-9a-f]{64})?$"
);

/// Reason why a text is not a [`ModelUri`]; each message contains the correct form.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum UriError {
    /// No scheme, or an unknown one.
    #[error(
        "must start with file://, pvc://, configmap://, http://, https://, s3://, gs://, az:// \
         or oci://, \
         as in \"file:///models/fraud.ubj\""
    )]
    Scheme,
    /// `file://models/x`, in which `models` would be a host.
    #[error(
        "names a host; write \"file:///{0}\" for an absolute path or \"file://./{0}\" for one \
         beside the YAML file"
    )]
    FileHost(String),
    /// A part is missing or contains forbidden characters.
    #[error("is not of the form {0}")]
    Form(&'static str),
    /// The fragment is not a checksum.
    #[error(
        "has {0:?} after its path; only a checksum may follow: \"#sha256=\" and 64 lower-case \
         hexadecimal digits, as sha256sum prints them"
    )]
    Checksum(String),
    /// Too long.
    #[error("is longer than {URI_CHARS_MAX} characters")]
    Length,
}

impl FromStr for ModelUri {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        if text.chars().count() > URI_CHARS_MAX {
            return Err(UriError::Length);
        }
        let (place, sha256) = match text.split_once('#') {
            None => (text, None),
            Some((place, fragment)) => (place, Some(parse_checksum(fragment)?)),
        };
        let place = place.parse()?;
        Ok(Self { place, sha256 })
    }
}

impl FromStr for ModelPlace {
    type Err = UriError;

    fn from_str(text: &str) -> Result<Self, UriError> {
        let (scheme, rest) = text.split_once("://").ok_or(UriError::Scheme)?;
        match scheme {
            "file" => parse_file(rest),
            "pvc" => {
                let form = UriError::Form("pvc://claim/path");
                let (claim, path) = rest.split_once('/').ok_or(form.clone())?;
                if !is_object_name(claim) || !is_path(path) {
                    return Err(form);
                }
                Ok(Self::Pvc {
                    claim: claim.to_owned(),
                    path: path.to_owned(),
                })
            }
            "configmap" => {
                let form = UriError::Form("configmap://name/key");
                let (name, key) = rest.split_once('/').ok_or(form.clone())?;
                if !is_object_name(name) || !is_key(key) {
                    return Err(form);
                }
                Ok(Self::ConfigMap {
                    name: name.to_owned(),
                    key: key.to_owned(),
                })
            }
            "http" | "https" => {
                if rest.is_empty() || rest.starts_with('/') || rest.chars().any(|c| c <= ' ') {
                    return Err(UriError::Form("http(s)://host/path"));
                }
                Ok(Self::Url {
                    url: text.to_owned(),
                })
            }
            "s3" | "gs" | "az" => {
                if !is_bucket_and_key(rest) {
                    return Err(UriError::Form("s3://bucket/key"));
                }
                Ok(Self::Url {
                    url: text.to_owned(),
                })
            }
            "oci" => match OciReference::parse(text) {
                Some(_) => Ok(Self::Url {
                    url: text.to_owned(),
                }),
                None => Err(UriError::Form(OciReference::FORM)),
            },
            _ => Err(UriError::Scheme),
        }
    }
}

fn parse_checksum(fragment: &str) -> Result<String, UriError> {
    let is_digit = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
    match fragment.strip_prefix("sha256=") {
        Some(digits) if digits.len() == 64 && digits.bytes().all(is_digit) => Ok(digits.to_owned()),
        _ => {
            let shown = fragment.chars().take(QUOTED_CHARS_MAX).collect();
            Err(UriError::Checksum(shown))
        }
    }
}

fn parse_file(rest: &str) -> Result<ModelPlace, UriError> {
    if !(rest.starts_with('/') || rest.starts_with("./") || rest.starts_with("../")) {
        return Err(UriError::FileHost(rest.to_owned()));
    }
    let below = rest.trim_start_matches("..").trim_start_matches('.');
    if !is_path(below.strip_prefix('/').unwrap_or(below)) {
        return Err(UriError::Form("file:///path/to/model.ubj"));
    }
    Ok(ModelPlace::File {
        path: rest.to_owned(),
    })
}

fn is_path(text: &str) -> bool {
    !text.is_empty() && !text.ends_with('/') && !text.chars().any(|c| c < ' ')
}

fn is_object_name(text: &str) -> bool {
    let is_alphanumeric = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    text.starts_with(is_alphanumeric)
        && text
            .chars()
            .all(|c| is_alphanumeric(c) || c == '-' || c == '.')
}

fn is_key(text: &str) -> bool {
    !text.is_empty()
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "._-".contains(c))
}

impl fmt::Display for ModelUri {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.place.fmt(f)?;
        match &self.sha256 {
            Some(digits) => write!(f, "#sha256={digits}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for ModelPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path } => write!(f, "file://{path}"),
            Self::Pvc { claim, path } => write!(f, "pvc://{claim}/{path}"),
            Self::ConfigMap { name, key } => write!(f, "configmap://{name}/{key}"),
            Self::Url { url } => f.write_str(url),
        }
    }
}

impl Serialize for ModelUri {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ModelUri {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse()
            .map_err(|e| de::Error::custom(format_args!("\"{text}\" {e}")))
    }
}

impl JsonSchema for ModelUri {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ModelUri".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "pattern": PATTERN, "maxLength": URI_CHARS_MAX })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scheme_is_taken_apart_and_printed_as_written() {
        for text in [
            "file:///models/fraud.ubj",
            "file://./fraud.ubj",
            "file://../models/fraud model.txt",
            "pvc://models/v1/fraud.ubj",
            "configmap://fraud-model/fraud.json",
            "http://models:8080/fraud.ubj",
            "https://example.org/fraud.ubj?version=2",
            "s3://models/v1/fraud model.ubj",
            "gs://models.example.org/fraud.ubj",
            "az://models/fraud.ubj",
            "s3://mlflow/1/run/artifacts/model/",
            "oci://ghcr.io/team/fraud-model:v1.2",
        ] {
            let plain: ModelUri = text.parse().unwrap();
            assert_eq!((plain.to_string().as_str(), plain.sha256), (text, None));
            let digits = "0123456789abcdef".repeat(4);
            let text = format!("{text}#sha256={digits}");
            let checked: ModelUri = text.parse().unwrap();
            assert_eq!((checked.to_string(), checked.sha256), (text, Some(digits)));
            assert_eq!(checked.place, plain.place);
        }
    }

    #[test]
    fn an_artifact_may_have_a_tag_beside_its_digest() {
        let digest = "0123456789abcdef".repeat(4);
        let text = format!("oci://ghcr.io/team/fraud:v1@sha256:{digest}");
        let parsed: ModelUri = text.parse().unwrap();
        assert_eq!((parsed.to_string(), parsed.sha256), (text, None));
    }

    #[test]
    fn a_refusal_says_what_to_write() {
        for (text, part) in [
            ("/models/fraud.ubj", "must start with file://"),
            ("ftp://host/fraud.ubj", "must start with file://"),
            (
                "oci://ghcr.io/team/model",
                "of the form oci://registry/repository:tag",
            ),
            ("s3://bucket", "of the form s3://bucket/key"),
            ("gs://bucket/", "of the form s3://bucket/key"),
            ("az://user@container/a//b", "of the form s3://bucket/key"),
            ("s3://bucket/a/../b", "of the form s3://bucket/key"),
            (
                "file://models/fraud.ubj",
                "write \"file:///models/fraud.ubj\"",
            ),
            ("file:///", "of the form file:///path"),
            ("file://./", "of the form file:///path"),
            ("pvc://models", "of the form pvc://claim/path"),
            ("pvc://models/", "of the form pvc://claim/path"),
            ("configmap://Fraud/key", "of the form configmap://name/key"),
            ("https:///x", "of the form http(s)://host/path"),
            ("file:///m#sha256=12", "\"#sha256=\" and 64"),
            ("http://host/m#part", "has \"part\" after its path"),
            ("pvc://models/#sha256=", "\"#sha256=\" and 64"),
        ] {
            let error = text.parse::<ModelUri>().unwrap_err().to_string();
            assert!(error.contains(part), "{text:?}: {error}");
        }
    }

    proptest::proptest! {
        #[test]
        fn texts_that_match_the_pattern_are_parsed(text in PATTERN.trim_matches(['^', '$'])) {
            let uri: ModelUri = text.parse().unwrap();
            proptest::prop_assert_eq!(uri.to_string(), text);
        }
    }
}
