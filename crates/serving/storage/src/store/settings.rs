//! The settings of stores among the environment variables, and the secrets among these.

use std::str::FromStr;

use crate::variables::Variables;

/// What the names of variables with secrets have in them.
const SECRETS: [&str; 4] = ["KEY", "SECRET", "TOKEN", "SAS"];

/// The settings of a store that `object_store` knows, with the keys that it gives them.
pub(super) fn settings<'a, K: FromStr>(
    variables: &'a Variables,
    prefix: &str,
) -> impl Iterator<Item = (K, &'a str)> {
    let own = variables
        .iter()
        .filter(move |(name, _)| name.starts_with(prefix));
    own.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
}

/// `text` without the values that may be secrets.
pub(super) fn hide_secrets(variables: &Variables, text: &str) -> String {
    let secrets = variables.iter().filter(|(name, value)| {
        !value.is_empty() && SECRETS.iter().any(|word| name.contains(word))
    });
    secrets.fold(text.to_owned(), |text, (_, secret)| {
        text.replace(secret, "...")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_removed_from_messages() {
        let variables = [("AWS_SECRET_ACCESS_KEY", "word"), ("AWS_REGION", "mars")];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let hidden = hide_secrets(&Variables::new(variables), "a word of mars");
        assert_eq!(hidden, "a ... of mars");
    }
}
