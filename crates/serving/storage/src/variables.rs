//! The environment variables that set up stores: where they are, and the credentials.

use std::fmt;
use std::str::FromStr;

/// Beginnings of the names of the variables of stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// What the names of variables with secrets have in them.
const SECRETS: [&str; 4] = ["KEY", "SECRET", "TOKEN", "SAS"];

/// Names and values.
#[derive(Clone, Default)]
pub(crate) struct Variables(Vec<(String, String)>);

/// Names alone, as values may be secrets.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Variables {
    /// Those of this process.
    pub(crate) fn of_process() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::new(std::env::vars_os().filter_map(utf8))
    }

    pub(crate) fn new(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_of_store = |name: &str| PREFIXES.iter().any(|prefix| name.starts_with(prefix));
        let all = all.into_iter();
        Self(all.filter(|(name, _)| is_of_store(name)).collect())
    }

    /// Those of a store that `object_store` knows, with the keys that it gives them.
    pub(crate) fn of<K: FromStr>(&self, prefix: &str) -> impl Iterator<Item = (K, &str)> {
        let own = self
            .0
            .iter()
            .filter(move |(name, _)| name.starts_with(prefix));
        own.filter_map(|(name, value)| {
            let key = name.to_ascii_lowercase().parse().ok()?;
            Some((key, value.as_str()))
        })
    }

    /// `text` without the values that may be secrets.
    pub(crate) fn hide_secrets(&self, text: &str) -> String {
        let secrets = self.0.iter().filter(|(name, value)| {
            !value.is_empty() && SECRETS.iter().any(|word| name.contains(word))
        });
        secrets.fold(text.to_owned(), |text, (_, secret)| {
            text.replace(secret, "...")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_neither_printed_nor_left_in_texts() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "word"),
            ("AWS_REGION", "mars"),
            ("PATH", "/"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = Variables::new(variables);
        let printed = format!("{variables:?}");
        assert_eq!(printed, r#"{"AWS_SECRET_ACCESS_KEY", "AWS_REGION"}"#);
        assert_eq!(variables.hide_secrets("a word of mars"), "a ... of mars");
    }
}
