//! Number of pods for a rate.

use albacore_api::limits::REPLICAS_MAX;
use serde::Serialize;

use crate::check::Sustained;
use crate::deployment::Deployment;

#[derive(Clone, PartialEq, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pods {
    /// Requests per second of all pods.
    pub rate: f64,
    pub pods: u32,
    /// New value of `spec.replicas`; `None`: unchanged.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    pub text: String,
}

impl Pods {
    /// Number of pods that together sustain the rate.
    pub(crate) fn of(rate: f64, sustained: &Sustained, deployment: &Deployment) -> Self {
        let each = sustained.goodput.max(1e-9);
        let pods = (rate / each).ceil().min(f64::from(u32::MAX)) as u32;
        let own = &sustained.configuration;
        let text = format!(
            "{rate:.0} requests/s at {} ms: {pods} {} of {} x {}",
            deployment.objective.as_secs_f64() * 1e3,
            if pods == 1 { "pod" } else { "pods" },
            own.workers,
            own.threads
        );
        let (replicas, note) = replicas(pods, deployment.replicas);
        Self {
            rate,
            pods,
            replicas,
            text: text + &note,
        }
    }
}

/// New replicas of the file, if different from `written`; and a text about them.
fn replicas(pods: u32, written: Option<i32>) -> (Option<i32>, String) {
    let possible = i32::try_from(pods)
        .ok()
        .filter(|pods| *pods <= REPLICAS_MAX);
    match (written, possible) {
        (_, None) => {
            let note = format!("; spec.replicas is at most {REPLICAS_MAX} and is left unchanged");
            (None, note)
        }
        (None, _) => {
            let note = "; the file leaves spec.replicas to an autoscaler or the default";
            (None, note.to_owned())
        }
        (Some(written), Some(pods)) if written == pods => (None, String::new()),
        (Some(written), pods) => (pods, format!("; spec.replicas was {written}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replicas_change_if_they_differ_and_are_allowed() {
        assert_eq!(replicas(3, Some(3)), (None, String::new()));
        let changed = replicas(3, Some(1));
        assert_eq!(changed, (Some(3), "; spec.replicas was 1".to_owned()));
        let (left, note) = replicas(3, None);
        assert!(left.is_none() && note.contains("autoscaler"), "{note}");
        for too_many in [10_001, u32::MAX] {
            let (left, note) = replicas(too_many, Some(1));
            assert!(left.is_none() && note.contains("at most 10000"), "{note}");
        }
    }
}
