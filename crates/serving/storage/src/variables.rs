//! Environment variables that set the endpoints and credentials of stores, and the folder of
//! Docker's `config.json`, which contains the credentials of registries.

use std::fmt;

use std::path::PathBuf;

use serde_json::Value;

use crate::error::StorageErrorKind;

/// Prefixes of the variables of stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Variables that set the endpoint of a store.
const ENDPOINT_VARIABLES: [&str; 6] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
];

/// Variables that set the folder of Docker's configuration, or the parent of its `.docker` folder.
const DOCKER_FOLDER_VARIABLES: [&str; 2] = ["DOCKER_CONFIG", "HOME"];

/// File names of Docker's configuration: Docker's own, and the key in a Kubernetes Secret.
const DOCKER_CONFIG_FILES: [&str; 2] = ["config.json", ".dockerconfigjson"];

/// Relevant environment variables: names and values.
#[derive(Clone, Default)]
pub(crate) struct Variables(Vec<(String, String)>);

/// Prints names only, because values may be secrets.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set()
            .entries(self.0.iter().map(|(name, _)| name))
            .finish()
    }
}

impl Variables {
    /// Reads the variables of this process.
    pub(crate) fn from_env() -> Self {
        let utf8 = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self::new(std::env::vars_os().filter_map(utf8))
    }

    pub(crate) fn new(all: impl IntoIterator<Item = (String, String)>) -> Self {
        let is_of_store = |name: &str| {
            DOCKER_FOLDER_VARIABLES.contains(&name)
                || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
        };
        let all = all.into_iter();
        Self(all.filter(|(name, _)| is_of_store(name)).collect())
    }

    /// Returns names and values.
    #[cfg(feature = "object-storage")]
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }

    fn value(&self, name: &str) -> Option<&str> {
        let mut all = self.0.iter();
        all.find_map(|(own, value)| (own == name).then_some(value.as_str()))
    }

    /// Returns the values of the variables that set endpoints, in a fixed order.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &str> {
        ENDPOINT_VARIABLES
            .iter()
            .map(|name| self.value(name).unwrap_or_default())
    }

    /// Returns user name and password for a registry, in base64, from Docker's configuration.
    pub(crate) fn docker_login(&self, host: &str) -> Result<Option<String>, StorageErrorKind> {
        let home = || Some(PathBuf::from(self.value("HOME")?).join(".docker"));
        let folder = self.value("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
        let files = folder.map(|folder| DOCKER_CONFIG_FILES.map(|name| folder.join(name)));
        let file = files.into_iter().flatten().find(|file| file.is_file());
        let Some(file) = file else {
            return Ok(None);
        };
        let wrong = |found: &str| StorageErrorKind::Store {
            found: format!("needs credentials, and {} {found}", file.display()),
            remedy: format!("write \"auth\" of {host} there, as `docker login` does"),
        };
        let text = std::fs::read(&file).map_err(|error| wrong(&error.to_string()))?;
        // The parser's error is dropped, because it may contain a secret.
        let config: Value = serde_json::from_slice(&text).map_err(|_| wrong("is not JSON"))?;
        let entries = config["auths"].as_object().into_iter().flatten();
        let mut own = entries.filter(|(name, _)| {
            let name = name
                .split_once("://")
                .map_or(name.as_str(), |(_, name)| name);
            name.split('/').next() == Some(host)
        });
        match own.next().map(|(_, entry)| entry["auth"].as_str()) {
            Some(Some(login)) if !login.is_empty() => Ok(Some(login.to_owned())),
            Some(_) => Err(wrong("has no \"auth\" for it")),
            None if config.get("credsStore").is_some() => Err(wrong(
                "refers to a credential helper, which is not supported",
            )),
            None => Ok(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_not_printed() {
        let variables = [
            ("AWS_SECRET_ACCESS_KEY", "word"),
            ("AWS_REGION", "mars"),
            ("PATH", "/"),
        ];
        let variables = variables.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let variables = Variables::new(variables);
        let printed = format!("{variables:?}");
        assert_eq!(printed, r#"{"AWS_SECRET_ACCESS_KEY", "AWS_REGION"}"#);
    }
}
