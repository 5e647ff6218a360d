//! The annotation that pins the image of the built-in server.

use std::collections::BTreeMap;

use crate::violation::Violation;

/// Annotation of an `InferenceDeployment` or a `Namespace`: the image of its built-in servers,
/// which overrides that of the operator. The annotation of the `InferenceDeployment` takes
/// precedence.
pub const SERVER_IMAGE_ANNOTATION: &str = "albacore.dev/server-image";

/// Maximum length of a reference, in characters: registries accept 255 before the tag (128) or
/// digest (71).
const REFERENCE_CHARS_MAX: usize = 384;

/// The image in the annotation, if there is one.
///
/// # Errors
/// The value is not an image reference.
pub fn server_image_of(
    annotations: Option<&BTreeMap<String, String>>,
) -> Result<Option<&str>, Violation> {
    let Some(image) = annotations.and_then(|all| all.get(SERVER_IMAGE_ANNOTATION)) else {
        return Ok(None);
    };
    let is_known = |c: char| c.is_ascii_alphanumeric() || "._-/:@".contains(c);
    let starts_well = image.starts_with(|c: char| c.is_ascii_alphanumeric());
    if starts_well && image.len() <= REFERENCE_CHARS_MAX && image.chars().all(is_known) {
        return Ok(Some(image));
    }
    let shown: String = image
        .chars()
        .take(crate::limits::QUOTED_CHARS_MAX)
        .collect();
    Err(Violation {
        field: format!("metadata.annotations[{SERVER_IMAGE_ANNOTATION}]"),
        problem: format!(
            "is \"{shown}\", which is not a valid image reference; write one as in \
             registry.example.com/albacore/albacore-server:0.1.0, or remove the annotation to \
             follow the operator"
        ),
        line: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_taken_and_other_texts_refused() {
        let of = |image: &str| {
            let annotations =
                BTreeMap::from([(SERVER_IMAGE_ANNOTATION.to_owned(), image.to_owned())]);
            server_image_of(Some(&annotations)).map(|image| image.map(str::to_owned))
        };
        for image in [
            "a",
            "localhost:5000/albacore-server:1.2",
            "r.io/a/b@sha256:00",
        ] {
            assert_eq!(of(image), Ok(Some(image.to_owned())));
        }
        for image in ["", " a", "a b", "a\n", ":1", &"a".repeat(400)] {
            let refused = of(image).unwrap_err();
            assert_eq!(
                refused.field,
                "metadata.annotations[albacore.dev/server-image]"
            );
        }
        assert_eq!(server_image_of(None), Ok(None));
    }
}
