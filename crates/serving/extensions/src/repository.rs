//! Checks of Triton's model repository calls, for both protocols. Models and their sources are
//! defined in the settings only, so parameters that define them are rejected.

use std::collections::HashMap;

use albacore_proto::inference::ModelRepositoryParameter;
use albacore_proto::inference::model_repository_parameter::ParameterChoice;
use serde_json::{Map, Value};

use crate::limits::{PARAMETER_CHARS_SHOWN, REPOSITORY_BYTES_MAX};

/// Parameter of the unload call: also unload models that only this model depends on. There are
/// none.
const UNLOAD_DEPENDENTS: &str = "unload_dependents";

/// Prefix of parameters that contain the files of a model.
const FILE: &str = "file:";

/// A call that loads or unloads a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RepositoryCall {
    Load,
    Unload,
}

/// Error for an invalid model repository call.
#[derive(Debug, thiserror::Error)]
pub enum RepositoryError {
    #[error(
        "the message has {bytes} bytes, more than {REPOSITORY_BYTES_MAX}: files and configuration \
         of a model come from the settings, not from a request"
    )]
    TooLarge { bytes: usize },
    #[error("the body is not a JSON object")]
    Body(#[source] serde_json::Error),
    #[error("{field}: {remedy}")]
    Field { field: String, remedy: &'static str },
    #[error("repository_name: {0:?} not found: the only repository has an empty name")]
    Repository(String),
    #[error("parameter {0:?} is refused: {1}")]
    Parameter(String, &'static str),
}

impl RepositoryCall {
    /// Rejects a message that is too large for names and flags, before it is deserialized.
    ///
    /// # Errors
    /// [`RepositoryError::TooLarge`].
    pub const fn check_size(bytes: &[u8]) -> Result<(), RepositoryError> {
        match bytes.len() > REPOSITORY_BYTES_MAX {
            true => Err(RepositoryError::TooLarge { bytes: bytes.len() }),
            false => Ok(()),
        }
    }

    /// Checks an HTTP body, which may be empty.
    ///
    /// # Errors
    /// The body is too large, is not a JSON object, or has a field or parameter that the call does
    /// not accept.
    pub fn check_json(self, body: &[u8]) -> Result<(), RepositoryError> {
        for (field, value) in parse_object(body)? {
            let field_error = |remedy| {
                let field = truncated(&field);
                Err(RepositoryError::Field { field, remedy })
            };
            match (field.as_str(), value) {
                ("parameters", Value::Object(parameters)) => {
                    let mut parameters = parameters.iter();
                    parameters.try_for_each(|(name, value)| {
                        self.check_parameter(name, value.is_boolean())
                    })?;
                }
                ("parameters", _) => return field_error("must be an object"),
                _ => return field_error("is not a field of this call: send only parameters"),
            }
        }
        Ok(())
    }

    /// Checks the fields of a gRPC message, except for the model name.
    ///
    /// # Errors
    /// It names a repository, or has a parameter that the call does not accept.
    pub fn check_message(
        self,
        repository: &str,
        parameters: &HashMap<String, ModelRepositoryParameter>,
    ) -> Result<(), RepositoryError> {
        if !repository.is_empty() {
            return Err(RepositoryError::Repository(truncated(repository)));
        }
        let mut parameters = parameters.iter();
        parameters.try_for_each(|(name, value)| {
            let choice = value.parameter_choice.as_ref();
            let is_flag = matches!(choice, Some(ParameterChoice::BoolParam(_)));
            self.check_parameter(name, is_flag)
        })
    }

    fn check_parameter(self, name: &str, is_flag: bool) -> Result<(), RepositoryError> {
        let refused = |reason| Err(RepositoryError::Parameter(truncated(name), reason));
        match (self, name) {
            (Self::Unload, UNLOAD_DEPENDENTS) if is_flag => Ok(()),
            (Self::Unload, UNLOAD_DEPENDENTS) => refused("it must be true or false"),
            (Self::Load, "config") => refused(
                "how a model is served is in the settings: edit them, and leave this parameter \
                 out",
            ),
            (Self::Load, name) if name.starts_with(FILE) => refused(
                "a model is loaded from its source in the settings: edit the source, and leave \
                 this parameter out",
            ),
            (Self::Load, _) => refused("loading takes no parameters"),
            (Self::Unload, _) => refused("unloading takes only unload_dependents"),
        }
    }
}

/// Whether an HTTP body asks for ready models only.
///
/// # Errors
/// The body is not a JSON object, or its `ready` is not a Boolean.
pub fn only_ready(body: &[u8]) -> Result<bool, RepositoryError> {
    match parse_object(body)?.get("ready") {
        None | Some(Value::Null) => Ok(false),
        Some(&Value::Bool(ready)) => Ok(ready),
        Some(_) => Err(RepositoryError::Field {
            field: "ready".to_owned(),
            remedy: "must be true or false",
        }),
    }
}

/// Parses a body as a JSON object; an empty body is an empty object.
fn parse_object(body: &[u8]) -> Result<Map<String, Value>, RepositoryError> {
    RepositoryCall::check_size(body)?;
    if body.trim_ascii().is_empty() {
        return Ok(Map::new());
    }
    serde_json::from_slice(body).map_err(RepositoryError::Body)
}

fn truncated(text: &str) -> String {
    text.chars().take(PARAMETER_CHARS_SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(call: RepositoryCall, body: &str) -> Result<(), String> {
        let checked = call.check_json(body.as_bytes());
        checked.map_err(|error| error.to_string())
    }

    fn message(call: RepositoryCall, name: &str, choice: ParameterChoice) -> Result<(), String> {
        let parameter_choice = Some(choice);
        let value = ModelRepositoryParameter { parameter_choice };
        let parameters = HashMap::from([(name.to_owned(), value)]);
        let checked = call.check_message("", &parameters);
        checked.map_err(|error| error.to_string())
    }

    #[test]
    fn repository_calls_without_files_are_accepted() {
        for call in [RepositoryCall::Load, RepositoryCall::Unload] {
            for body in ["", " \n", "{}", r#"{"parameters": {}}"#] {
                assert_eq!(json(call, body), Ok(()), "{body}");
            }
            assert!(call.check_message("", &HashMap::new()).is_ok());
        }
        for flag in [true, false] {
            let body = format!(r#"{{"parameters": {{"unload_dependents": {flag}}}}}"#);
            assert_eq!(json(RepositoryCall::Unload, &body), Ok(()));
            let choice = ParameterChoice::BoolParam(flag);
            let checked = message(RepositoryCall::Unload, "unload_dependents", choice);
            assert_eq!(checked, Ok(()));
        }
    }

    #[test]
    fn every_other_parameter_is_refused_by_name() {
        let text = ParameterChoice::StringParam("{}".to_owned());
        for (call, name, reason) in [
            (RepositoryCall::Load, "config", "is in the settings"),
            (RepositoryCall::Load, "file:1/model.ubj", "its source"),
            (RepositoryCall::Load, "any", "takes no parameters"),
            (
                RepositoryCall::Load,
                "unload_dependents",
                "takes no parameters",
            ),
            (RepositoryCall::Unload, "unload_dependents", "true or false"),
            (RepositoryCall::Unload, "config", "only unload_dependents"),
        ] {
            let body = format!(r#"{{"parameters": {{"{name}": "{{}}"}}}}"#);
            let refusals = [json(call, &body), message(call, name, text.clone())];
            for refusal in refusals.map(Result::unwrap_err) {
                assert!(
                    refusal.contains(name) && refusal.contains(reason),
                    "{refusal}"
                );
            }
        }
        let named = RepositoryCall::Load.check_message("models", &HashMap::new());
        assert!(named.unwrap_err().to_string().contains("\"models\""));
        let long = format!(r#"{{"parameters": {{"{}": 1}}}}"#, "x".repeat(60_000));
        assert!(json(RepositoryCall::Load, &long).unwrap_err().len() < 300);
    }

    #[test]
    fn bodies_that_are_no_objects_of_parameters_are_refused() {
        let large = " ".repeat(REPOSITORY_BYTES_MAX + 1);
        for body in [
            "[]",
            "{",
            r#"{"parameters": 1}"#,
            r#"{"path": "/m"}"#,
            &large,
        ] {
            assert!(json(RepositoryCall::Load, body).is_err(), "{body}");
        }
        for body in ["[1, 2]", "{", r#"{"ready": 1}"#, "3", &large] {
            assert!(only_ready(body.as_bytes()).is_err(), "{body}");
        }
        let ready = |body: &str| only_ready(body.as_bytes()).unwrap();
        assert!(ready(r#"{"ready": true}"#) && !ready(r#"{"ready": null}"#));
        assert!(!ready("") && !ready("{}") && !ready(r#"{"ready": false, "name": "m"}"#));
    }
}
