//! Validates snapshots.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{ModelParameters, ModelSlo, NodeSnapshot, Parameters, ServingPod};
use crate::limits::{
    MODELS_MAX, OBJECT_NAME_CHARS_MAX, SNAPSHOT_METRICS_BYTES_MAX, SNAPSHOT_PODS_MAX,
};
use crate::validate::{
    BatchedModel, check_batching, check_model_name, check_slo, check_threads_nonzero,
    check_timespan, check_weight,
};
use crate::validation_error::{ValidationError, quoted};

impl NodeSnapshot {
    /// Checks a snapshot built in memory; [`NodeSnapshot::decode`] returns only checked snapshots.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), ValidationError> {
        let Self {
            node,
            sequence: _,
            pods,
            metrics,
        } = self;
        check_name("node", node)?;
        if pods.len() > SNAPSHOT_PODS_MAX {
            let problem = format!("has {} entries, at most {SNAPSHOT_PODS_MAX}", pods.len());
            return Err(ValidationError::field("pods", problem));
        }
        for (index, pod) in pods.iter().enumerate() {
            pod.check_under(&format!("pods[{index}]"))?;
        }
        if metrics.len() > SNAPSHOT_METRICS_BYTES_MAX {
            let problem = format!(
                "has {} bytes, at most {SNAPSHOT_METRICS_BYTES_MAX}",
                metrics.len()
            );
            return Err(ValidationError::field("metrics", problem));
        }
        Ok(())
    }
}

impl ServingPod {
    /// Checks one pod, so that the caller can omit an invalid one.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), ValidationError> {
        self.check_under("pod")
    }

    fn check_under(&self, path: &str) -> Result<(), ValidationError> {
        let Self {
            address,
            namespace,
            name,
            uid,
            deployment,
            generation: _,
            parameters,
        } = self;
        if let Some(address) = address {
            check_address(&format!("{path}.address"), *address)?;
        }
        check_name(&format!("{path}.namespace"), namespace)?;
        check_name(&format!("{path}.name"), name)?;
        check_name(&format!("{path}.uid"), uid)?;
        check_name(&format!("{path}.deployment"), deployment)?;
        parameters.check_under(&format!("{path}.parameters"))
    }
}

impl Parameters {
    /// Checks parameters that were not decoded from a snapshot line.
    ///
    /// # Errors
    /// The first error.
    pub fn check(&self) -> Result<(), ValidationError> {
        self.check_under("parameters")
    }

    fn check_under(&self, path: &str) -> Result<(), ValidationError> {
        let Self {
            batching,
            slo,
            models,
            generation: _,
            report,
        } = self;
        if slo.len() > MODELS_MAX {
            let problem = format!("has {} entries, at most {MODELS_MAX}", slo.len());
            return Err(ValidationError::field(format!("{path}.slo"), problem));
        }
        let mut names = BTreeSet::new();
        for (index, ModelSlo { model, slo }) in slo.iter().enumerate() {
            let path = format!("{path}.slo[{index}]");
            check_model_name(&format!("{path}.model"), model)?;
            check_slo(&path, slo)?;
            if !names.insert(model) {
                let problem = format!("{} is listed twice", quoted(model));
                return Err(ValidationError::field(format!("{path}.model"), problem));
            }
        }
        if models.len() > MODELS_MAX {
            let problem = format!("has {} entries, at most {MODELS_MAX}", models.len());
            return Err(ValidationError::field(format!("{path}.models"), problem));
        }
        let mut names = BTreeSet::new();
        for (index, entry) in models.iter().enumerate() {
            let path = format!("{path}.models[{index}]");
            let ModelParameters {
                model,
                threads,
                weight,
                batching: _,
            } = entry;
            check_model_name(&format!("{path}.model"), model)?;
            check_threads_nonzero(&format!("{path}.threads"), *threads)?;
            check_weight(&format!("{path}.weight"), *weight)?;
            if !names.insert(model) {
                let problem = format!("{} is listed twice", quoted(model));
                return Err(ValidationError::field(format!("{path}.model"), problem));
            }
        }
        let objective = |model: &str| slo.iter().find(|entry| entry.model == model);
        let listed = models.iter().map(|entry| BatchedModel {
            name: &entry.model,
            slo: objective(&entry.model).map(|entry| entry.slo),
            batching: entry.batching,
        });
        let unlisted = slo.iter().filter(|entry| !names.contains(&entry.model));
        let unlisted = unlisted.map(|entry| BatchedModel {
            name: &entry.model,
            slo: Some(entry.slo),
            batching: None,
        });
        check_batching(&format!("{path}."), batching, listed.chain(unlisted))?;
        if let Some(period) = report {
            check_timespan(&format!("{path}.report"), *period)?;
        }
        Ok(())
    }
}

fn check_address(path: &str, address: IpAddr) -> Result<(), ValidationError> {
    let problem = if address.is_unspecified() || address.is_multicast() {
        "is not an address of a pod"
    } else if address != address.to_canonical() {
        "is an IPv4 address in IPv6: write the IPv4 address"
    } else {
        return Ok(());
    };
    Err(ValidationError::field(path, format!("{address} {problem}")))
}

/// Accepts only names without characters that logs or metrics would have to escape.
pub(super) fn check_name(path: &str, text: &str) -> Result<(), ValidationError> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if (1..=OBJECT_NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(());
    }
    let problem = format!(
        "{} is not 1 to {OBJECT_NAME_CHARS_MAX} letters, digits, '-', '_', '.' and ':'",
        quoted(text)
    );
    Err(ValidationError::field(path, problem))
}
