//! What a snapshot must hold.

use core::net::IpAddr;
use std::collections::BTreeSet;

use super::{FeedLine, Objective, Parameters, Pod};
use crate::check::{check_name, check_rules, check_slo, check_timespan};
use crate::invalid::{Invalid, quoted};
use crate::limits::{
    COUNT_MAX, CPUS_MAX, FEED_METRICS_BYTES_MAX, FEED_PODS_MAX, MODELS_MAX, OBJECT_NAME_CHARS_MAX,
};

impl FeedLine {
    /// Checks values that were not read: what [`FeedLine::decode`] returns is checked.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        let Self {
            node,
            sequence: _,
            pods,
            metrics,
        } = self;
        check_word("node", node)?;
        if pods.len() > FEED_PODS_MAX {
            let problem = format!("has {} entries, at most {FEED_PODS_MAX}", pods.len());
            return Err(Invalid::of("pods", problem));
        }
        for (index, pod) in pods.iter().enumerate() {
            pod.check_at(&format!("pods[{index}]"))?;
        }
        if metrics.len() > FEED_METRICS_BYTES_MAX {
            let problem = format!(
                "has {} bytes, at most {FEED_METRICS_BYTES_MAX}",
                metrics.len()
            );
            return Err(Invalid::of("metrics", problem));
        }
        Ok(())
    }
}

impl Pod {
    /// Checks one pod, so that one alone can be left out.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_at("pod")
    }

    fn check_at(&self, at: &str) -> Result<(), Invalid> {
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
            check_address(&format!("{at}.address"), *address)?;
        }
        check_word(&format!("{at}.namespace"), namespace)?;
        check_word(&format!("{at}.name"), name)?;
        check_word(&format!("{at}.uid"), uid)?;
        check_word(&format!("{at}.deployment"), deployment)?;
        parameters.check_at(&format!("{at}.parameters"))
    }
}

impl Parameters {
    /// Checks parameters that came in another form than a line of the feed.
    ///
    /// # Errors
    /// The first thing that is wrong.
    pub fn check(&self) -> Result<(), Invalid> {
        self.check_at("parameters")
    }

    fn check_at(&self, at: &str) -> Result<(), Invalid> {
        let Self {
            batching,
            queue,
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
            return Err(Invalid::of(format!("{at}.slo"), problem));
        }
        let mut names = BTreeSet::new();
        for (index, Objective { model, slo }) in slo.iter().enumerate() {
            let here = format!("{at}.slo[{index}]");
            check_name(&format!("{here}.model"), model)?;
            check_slo(&here, slo)?;
            if !names.insert(model) {
                let problem = format!("{} is there twice", quoted(model));
                return Err(Invalid::of(format!("{here}.model"), problem));
            }
        }
        let objectives = slo.iter().map(|entry| (&*entry.model, entry.slo));
        check_rules(&format!("{at}."), batching, queue, objectives)?;
        if let Some(window) = window {
            check_timespan(&format!("{at}.window"), *window)?;
        }
        if let Some(period) = report {
            check_timespan(&format!("{at}.report"), *period)?;
        }
        check_count(&format!("{at}.workers"), *workers)?;
        check_count(&format!("{at}.threads"), *threads)?;
        if !(*cpu_share > 0.0 && *cpu_share <= CPUS_MAX) {
            let problem = format!("{cpu_share} is not above 0 and at most {CPUS_MAX}");
            return Err(Invalid::of(format!("{at}.cpu_share"), problem));
        }
        Ok(())
    }
}

fn check_address(at: &str, address: IpAddr) -> Result<(), Invalid> {
    let problem = if address.is_unspecified() || address.is_multicast() {
        "is no address of a pod"
    } else if address != address.to_canonical() {
        "is an IPv4 address in IPv6: write the IPv4 address"
    } else {
        return Ok(());
    };
    Err(Invalid::of(at, format!("{address} {problem}")))
}

/// A name in which nothing needs care: it becomes part of logs and metrics.
pub(super) fn check_word(at: &str, text: &str) -> Result<(), Invalid> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if (1..=OBJECT_NAME_CHARS_MAX).contains(&text.len()) && text.chars().all(is_plain) {
        return Ok(());
    }
    let problem = format!(
        "{} is not 1 to {OBJECT_NAME_CHARS_MAX} letters, digits, '-', '_', '.' and ':'",
        quoted(text)
    );
    Err(Invalid::of(at, problem))
}

fn check_count(at: &str, count: u32) -> Result<(), Invalid> {
    if (1..=COUNT_MAX).contains(&count) {
        return Ok(());
    }
    let problem = format!("{count} is not from 1 to {COUNT_MAX}");
    Err(Invalid::of(at, problem))
}
