//! Interprets a container's command line and environment without a kubelet: literal values and
//! `$(NAME)` references, as in a Pod.

use k8s_openapi::api::core::v1::Container;

use crate::deployment::InferenceDeploymentSpec;
use crate::violation::Violation;

/// The variables that set the numbers of workers and threads for a server and its numeric
/// libraries. Variables that the user sets in the container take precedence.
pub fn thread_counts(workers: u16, threads: u16) -> Vec<(String, String)> {
    let variables = [
        ("ALBACORE_WORKERS", workers),
        ("ALBACORE_THREADS", threads),
        // gunicorn and uvicorn read their number of workers from it.
        ("WEB_CONCURRENCY", workers),
        ("OMP_NUM_THREADS", threads),
        ("OPENBLAS_NUM_THREADS", threads),
        ("MKL_NUM_THREADS", threads),
    ];
    variables
        .map(|(name, count)| (name.to_owned(), count.to_string()))
        .to_vec()
}

/// `defaults` without the variables that the container sets itself, followed by the container's
/// variables in order, with references resolved. Variables that only a cluster could resolve are
/// added to `refused`.
pub(crate) fn environment(
    spec: &InferenceDeploymentSpec,
    container: &Container,
    defaults: &[(String, String)],
    refused: &mut Vec<Violation>,
) -> Vec<(String, String)> {
    if container
        .env_from
        .as_ref()
        .is_some_and(|sources| !sources.is_empty())
    {
        let problem = "reads a ConfigMap or Secret, which needs a cluster; write the variables \
                       into env";
        refused.push(Violation::new(spec.server_field("envFrom"), problem));
    }
    let variables = container.env.as_deref().unwrap_or_default();
    let mut environment: Vec<(String, String)> = defaults
        .iter()
        .filter(|(name, _)| variables.iter().all(|v| v.name != *name))
        .cloned()
        .collect();
    for (index, variable) in variables.iter().enumerate() {
        if variable.value_from.is_some() {
            let problem = "reads from the cluster; under `albacore run` write a value";
            let field = spec.server_field(&format!("env[{index}].valueFrom"));
            refused.push(Violation::new(field, problem));
            continue;
        }
        let value = expand(variable.value.as_deref().unwrap_or_default(), &environment);
        environment.push((variable.name.clone(), value));
    }
    environment
}

/// `text` with every reference `$(NAME)` to `environment` replaced; an unknown name is kept and
/// `$$` is an escaped `$`, as in a Pod.
pub(crate) fn expand(text: &str, environment: &[(String, String)]) -> String {
    let value_of = |name: &str| {
        environment
            .iter()
            .rev()
            .find(|(n, _)| n == name)
            .map(|(_, v)| v)
    };
    let mut expanded = String::with_capacity(text.len());
    let mut rest = text;
    // bound: every pass removes at least the "$" that it found from `rest`.
    while let Some(dollar) = rest.find('$') {
        expanded.push_str(&rest[..dollar]);
        let after = &rest[dollar + 1..];
        let reference = after.strip_prefix('(').and_then(|r| r.split_once(')'));
        rest = match (after.strip_prefix('$'), reference) {
            (Some(after_second), _) => {
                expanded.push('$');
                after_second
            }
            (None, Some((name, after_reference))) => {
                match value_of(name) {
                    Some(value) => expanded.push_str(value),
                    None => expanded.push_str(&format!("$({name})")),
                }
                after_reference
            }
            (None, None) => {
                expanded.push('$');
                after
            }
        };
    }
    expanded.push_str(rest);
    expanded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_resolved_as_in_a_pod() {
        let environment = [
            ("A".to_owned(), "1".to_owned()),
            ("B".to_owned(), "$(A)".to_owned()),
        ];
        for (text, expanded) in [
            ("$(A)", "1"),
            ("x$(A)y$(B)", "x1y$(A)"),
            ("$(C)", "$(C)"),
            ("$$(A)", "$(A)"),
            ("$A $", "$A $"),
            ("$(A", "$(A"),
            ("", ""),
        ] {
            assert_eq!(expand(text, &environment), expanded, "{text}");
        }
    }
}
