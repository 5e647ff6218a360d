//! Settings of stores in environment variables, and the removal of secrets from messages.

use std::str::FromStr;

use crate::variables::Variables;

/// Words that occur in the names of variables with secrets.
const SECRETS: [&str; 4] = ["KEY", "SECRET", "TOKEN", "SAS"];

/// Returns the settings of a store that `object_store` supports, with its configuration keys.
pub(super) fn settings<'a, K: FromStr>(
    variables: &'a Variables,
    prefix: &str,
) -> impl Iterator<Item = (K, &'a str)> {
    let own = variables
        .iter()
        .filter(move |(name, _)| name.starts_with(prefix));
    own.filter_map(|(name, value)| Some((name.to_ascii_lowercase().parse().ok()?, value)))
}

/// Returns `text` with values that may be secrets replaced.
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
