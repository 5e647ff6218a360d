//! Object stores and the schemes of their URLs.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StoreKind {
    S3,
    Google,
    Azure,
}

impl StoreKind {
    pub(crate) fn from_scheme(scheme: &str) -> Option<Self> {
        match scheme {
            "s3" => Some(Self::S3),
            "gs" => Some(Self::Google),
            "az" => Some(Self::Azure),
            _ => None,
        }
    }
}

/// Returns whether a URL is that of an object in a store, which has an ETag as its version.
pub(crate) fn is_object(url: &str) -> bool {
    let scheme = url.split_once("://").map(|(scheme, _)| scheme);
    scheme.is_some_and(|scheme| StoreKind::from_scheme(scheme).is_some())
}
