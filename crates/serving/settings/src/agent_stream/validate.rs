//! Validates snapshots.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{ModelSlo, NodeSnapshot, Parameters, ServingPod};
use crate::limits::{
    COUNT_MAX, CPUS_MAX, MODELS_MAX, OBJECT_NAME_CHARS_MAX, SNAPSHOT_METRICS_BYTES_MAX,
    SNAPSHOT_PODS_MAX,
};
use crate::validate::{check_batching, check_model_name, check_slo, check_timespan};
use crate::validation_error::{ValidationError, quoted};

impl NodeSnapshot {
    /// Checks a snapshot that was built in memory; [`NodeSnapshot::decode`] returns checked ones.
    ///
    /// # Errors
    /// The first error that is found.
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
    /// Checks one pod, so that the caller can leave out an invalid one.
    ///
    /// # Errors
    /// The first error that is found.
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
    /// Checks parameters that did not come from a snapshot line.
    ///
    /// # Errors
    /// The first error that is found.
    pub fn check(&self) -> Result<(), ValidationError> {
        self.check_under("parameters")
    }

    fn check_under(&self, path: &str) -> Result<(), ValidationError> {
        let Self {
            batching,
            slo,
            window,
            workers,
            threads,
            cpu_share,
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
        let objectives = slo.iter().map(|entry| (&*entry.model, entry.slo));
        check_batching(&format!("{path}."), batching, objectives)?;
        if let Some(window) = window {
            check_timespan(&format!("{path}.window"), *window)?;
        }
        if let Some(period) = report {
            check_timespan(&format!("{path}.report"), *period)?;
        }
        check_count(&format!("{path}.workers"), *workers)?;
        check_count(&format!("{path}.threads"), *threads)?;
        if !(*cpu_share > 0.0 && *cpu_share <= CPUS_MAX) {
            let problem = format!("{cpu_share} is not above 0 and at most {CPUS_MAX}");
            return Err(ValidationError::field(format!("{path}.cpu_share"), problem));
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

/// A name without characters that logs or metrics would have to escape.
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

fn check_count(path: &str, count: u32) -> Result<(), ValidationError> {
    if (1..=COUNT_MAX).contains(&count) {
        return Ok(());
    }
    let problem = format!("{count} is not from 1 to {COUNT_MAX}");
    Err(ValidationError::field(path, problem))
}
