//! The name of an object of a known kind.

use std::fmt;

use kube_client::ResourceExt;

/// Namespace and name of an object; the kind is known from the place where it stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    /// The namespace; empty for an object of the whole cluster.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The key of what has this namespace and name.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        let (namespace, name) = (namespace.into(), name.into());
        Self { namespace, name }
    }

    /// The key of an object.
    pub fn of(object: &impl ResourceExt) -> Self {
        Self::new(object.namespace().unwrap_or_default(), object.name_any())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => f.write_str(&self.name),
            namespace => write!(f, "{namespace}/{}", self.name),
        }
    }
}
