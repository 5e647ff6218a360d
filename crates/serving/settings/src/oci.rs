//! References to artifacts in registries: `oci://registry/repository:tag` or `@sha256:digest`.

use crate::digest::Digest;

/// Maximum length of a tag, as defined by registries.
const TAG_CHARS_MAX: usize = 128;

/// A parsed reference to an artifact.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OciReference<'a> {
    /// Host, with the port unless it is the default.
    pub registry: &'a str,
    pub repository: &'a str,
    pub tag: Option<&'a str>,
    /// SHA-256 of the manifest; takes precedence over the tag.
    pub digest: Option<Digest>,
}

impl<'a> OciReference<'a> {
    /// The expected format, for error messages.
    pub const FORM: &'static str = "oci://registry/repository:tag or @sha256: and 64 hexadecimal \
                                    digits";

    /// Parses a URL; `None` unless it has this format with a tag, a digest or both.
    #[must_use]
    pub fn parse(url: &'a str) -> Option<Self> {
        let rest = url.strip_prefix("oci://")?;
        let (rest, digest) = match rest.split_once("@sha256:") {
            Some((rest, digits)) => (rest, Some(parse_digest(digits)?)),
            None => (rest, None),
        };
        let (registry, rest) = rest.split_once('/')?;
        let (repository, tag) = match rest.split_once(':') {
            Some((repository, tag)) => (repository, Some(tag)),
            None => (rest, None),
        };
        let is_right = is_registry(registry)
            && repository.split('/').all(is_part)
            && tag.is_none_or(is_tag)
            && (tag.is_some() || digest.is_some());
        is_right.then_some(Self {
            registry,
            repository,
            tag,
            digest,
        })
    }
}

fn parse_digest(digits: &str) -> Option<Digest> {
    let is_lower = !digits.contains(|c: char| c.is_ascii_uppercase());
    digits.parse().ok().filter(|_| is_lower)
}

fn is_registry(text: &str) -> bool {
    let (host, port) = text.split_once(':').unwrap_or((text, "443"));
    let is_host = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let is_port = (1..=5).contains(&port.len()) && port.bytes().all(|c| c.is_ascii_digit());
    !host.is_empty() && host.chars().all(is_host) && is_port
}

/// A component of a repository path: lowercase letters and digits, with dots, dashes and
/// underscores between them.
fn is_part(text: &str) -> bool {
    let is_end = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let is_inner = |c: char| is_end(c) || "._-".contains(c);
    text.starts_with(is_end) && text.ends_with(is_end) && text.chars().all(is_inner)
}

fn is_tag(text: &str) -> bool {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let is_inner = |c: char| is_word(c) || ".-".contains(c);
    text.len() <= TAG_CHARS_MAX && text.starts_with(is_word) && text.chars().all(is_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reference_has_a_tag_or_a_digest() {
        let digits = "0123456789abcdef".repeat(4);
        let digest: Digest = digits.parse().unwrap();
        let base = "oci://ghcr.io:5000/team/fraud-model";
        let parsed = |url: &str| {
            let found = OciReference::parse(url)?;
            assert_eq!(found.registry, "ghcr.io:5000");
            assert_eq!(found.repository, "team/fraud-model");
            Some((found.tag.map(str::to_owned), found.digest))
        };
        let tag = Some("v1.2".to_owned());
        assert_eq!(parsed(&format!("{base}:v1.2")), Some((tag.clone(), None)));
        let pinned = format!("{base}@sha256:{digits}");
        assert_eq!(parsed(&pinned), Some((None, Some(digest))));
        let both = format!("{base}:v1.2@sha256:{digits}");
        assert_eq!(parsed(&both), Some((tag, Some(digest))));
    }

    #[test]
    fn other_strings_are_not_references() {
        for url in [
            "oci://ghcr.io/model",
            "oci://ghcr.io/Model:v1",
            "oci://ghcr.io/a//b:v1",
            "oci://me:word@ghcr.io/a:v1",
            "oci://ghcr.io:port/a:v1",
            "oci://ghcr.io/a:v1/b",
            "oci://ghcr.io/a@sha256:12",
            "oci://ghcr.io/a@md5:12",
            "oci://ghcr.io/../a:v1",
            "https://ghcr.io/a:v1",
        ] {
            assert_eq!(OciReference::parse(url), None, "{url}");
        }
    }
}
