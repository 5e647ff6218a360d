//! The environment variables that set up stores: where they are, and the credentials.
//!
//! Credentials of registries are in a file that they name, `config.json` of Docker.

use std::fmt;

use std::path::PathBuf;

use serde_json::Value;

use crate::error::Problem;

/// Beginnings of the names of the variables of stores.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// What says where a store is.
const ENDPOINT_VARIABLES: [&str; 6] = [
    "AWS_ENDPOINT_URL",
    "AWS_ENDPOINT_URL_S3",
    "AWS_ENDPOINT",
    "GOOGLE_BASE_URL",
    "AZURE_STORAGE_ENDPOINT",
    "AZURE_STORAGE_ACCOUNT_NAME",
];

/// What says where Docker's configuration is: its folder, or the folder above `.docker`.
const DOCKER_FOLDER_VARIABLES: [&str; 2] = ["DOCKER_CONFIG", "HOME"];

/// Names of Docker's configuration: its own, and the key of a Secret of Kubernetes.
const DOCKER_CONFIG_FILES: [&str; 2] = ["config.json", ".dockerconfigjson"];

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

    /// Names and values.
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

    /// What says where stores are, in a fixed order.
    pub(crate) fn endpoints(&self) -> impl Iterator<Item = &str> {
        ENDPOINT_VARIABLES
            .iter()
            .map(|name| self.value(name).unwrap_or_default())
    }

    /// Name and password for a registry, in base64, from Docker's configuration.
    pub(crate) fn docker_login(&self, host: &str) -> Result<Option<String>, Problem> {
        let home = || Some(PathBuf::from(self.value("HOME")?).join(".docker"));
        let folder = self.value("DOCKER_CONFIG").map(PathBuf::from).or_else(home);
        let files = folder.map(|folder| DOCKER_CONFIG_FILES.map(|name| folder.join(name)));
        let file = files.into_iter().flatten().find(|file| file.is_file());
        let Some(file) = file else {
            return Ok(None);
        };
        let wrong = |found: &str| Problem::Store {
            found: format!("needs credentials, and {} {found}", file.display()),
            remedy: format!("write \"auth\" of {host} there, as `docker login` does"),
        };
        let text = std::fs::read(&file).map_err(|error| wrong(&error.to_string()))?;
        // Not the error of the reader: it may repeat a secret.
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
            None if config.get("credsStore").is_some() => {
                Err(wrong("leaves it to a credential helper, which is not run"))
            }
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
