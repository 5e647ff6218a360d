//! `albacore tune NAME --apply`: applies the chosen values to the deployment, measures its serving
//! pods, and reverts the values unless the pods are found to be no worse.

mod patch;
mod serving;

use std::path::Path;
use std::time::{Duration, Instant};

use albacore_api::{InferenceDeployment, read_deployment};
use albacore_cluster::{ApiResource, DynamicObject, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use albacore_statistics::{RegressionCheck, RequestWindow};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::job::{JobClient, typed};
use crate::limits::{API_SERVER_TIME_MAX, CONFLICTS_MAX, EXPERIMENT_POLL};
use patch::{Patches, is_unedited};
use serving::{ValuesRollout, rollout_state};

/// Applies the chosen values to a deployment.
pub(crate) struct Apply {
    pub(crate) job: JobClient,
    pub(crate) key: ObjectKey,
    /// The deployment as read before the search.
    pub(crate) read: DynamicObject,
    /// How long the pods are measured, once before and once after the change.
    pub(crate) time: Duration,
}

impl Apply {
    /// Checks before the search whether the values can be applied and judged.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        let same = json!({"workers": self.read.data["spec"]["workers"]});
        let cluster = &self.job.cluster;
        let tried = cluster.try_merge_spec(&kind(), &self.key, &same).await;
        tried.map_err(|error| self.job.failed(&error))?;
        let (ValuesRollout::Pending(why) | ValuesRollout::Rejected(why)) =
            rollout_state(&self.read)
        else {
            return self.measure(1).await.map(drop);
        };
        Err(Failure::Failed(format!(
            "--apply: {} is not in a state for a comparison ({why}): wait, or leave --apply out",
            self.key
        )))
    }

    /// Applies the values in the file written by the search; returns the findings as sentences.
    pub(crate) async fn run(&self, file: &Path) -> Result<String, Failure> {
        let key = &self.key;
        let Some(patches) = self.patches(file)? else {
            return Ok(format!(
                "{key}: nothing to apply; it has the chosen values."
            ));
        };
        let unchanged =
            |failure: &Failure| Failure::Failed(format!("{}; {key} is unchanged", failure.text()));
        let mut interrupts = Interrupts::new()?;
        eprintln!("measuring the pods of {key} before the change");
        let before = interrupts
            .interruptible(self.measure(RegressionCheck::WINDOWS))
            .await;
        let before = before.map_err(|failure| unchanged(&failure))?;
        // not interruptible: whether it took effect has to be known
        let Some(applied) = self.patch_if_unedited(&self.read, &patches.forward).await? else {
            let what = "it was edited after the search began: run the same command again";
            return Err(unchanged(&Failure::Failed(format!("{key}: {what}"))));
        };
        eprintln!("{key} has the chosen values now; waiting for its pods");
        let failed = match interrupts
            .interruptible(self.watch(&applied, &before))
            .await
        {
            Ok(change) if !change.is_regression() => {
                return Ok(format!("{}. {key} keeps the chosen values.", change.text()));
            }
            Ok(change) => format!("{}: worse beyond the noise", change.text()),
            Err(failure) => failure.text().to_owned(),
        };
        let end = self.revert(&applied, &patches.backward).await;
        Err(Failure::Failed(format!("{failed}; {end}")))
    }

    fn patches(&self, file: &Path) -> Result<Option<Patches>, Failure> {
        let named = file.display().to_string();
        let text = std::fs::read_to_string(file).map_err(|error| Failure::file(file, &error))?;
        let chosen = read_deployment(&text, &named);
        let chosen = chosen.map_err(|error| Failure::Failed(error.to_string()))?;
        let own: InferenceDeployment = typed(self.read.clone())?;
        Patches::between(&own.spec, &chosen.spec).map_err(|field| {
            Failure::Failed(format!(
                "{named}: {field} differs from that of {}, and no search changes it: nothing is \
                 applied",
                self.key
            ))
        })
    }

    /// Measures the pods after the change and compares them with `before`.
    async fn watch(
        &self,
        applied: &DynamicObject,
        before: &[RequestWindow],
    ) -> Result<RegressionCheck, Failure> {
        self.wait_until_in_force().await?;
        eprintln!("measuring the pods of {} after the change", self.key);
        let after = self.measure(RegressionCheck::WINDOWS).await?;
        match is_unedited(&self.read_current().await?, applied) {
            true => Ok(RegressionCheck::between(before, &after)),
            false => Err(Failure::Failed(
                "the deployment was edited during the measurement, so there is no result"
                    .to_owned(),
            )),
        }
    }

    /// Patches the spec if it has not been edited since `expected`; returns `None` if it has.
    async fn patch_if_unedited(
        &self,
        expected: &DynamicObject,
        patch: &Value,
    ) -> Result<Option<DynamicObject>, Failure> {
        let mut conflicts = 0;
        // bound: CONFLICTS_MAX.
        loop {
            let now = self.read_current().await?;
            if !is_unedited(&now, expected) {
                return Ok(None);
            }
            let merged = self.job.cluster.merge_spec(&kind(), &now, patch).await;
            match merged {
                // the controller has written the status
                Err(error) if error.class() == ErrorClass::Conflict => conflicts += 1,
                Err(error) if error.class() == ErrorClass::Transient => {
                    return Err(Failure::Failed(format!(
                        "{}: whether that took effect is unknown; `kubectl get infd {} -n {} -o yaml` shows it",
                        sentence(&error),
                        self.key.name,
                        self.key.namespace
                    )));
                }
                merged => return merged.map(Some).map_err(|error| self.job.failed(&error)),
            }
            if conflicts >= CONFLICTS_MAX {
                let what = "too many conflicts with other writes";
                return Err(Failure::Failed(format!("{}: {what}", self.key)));
            }
        }
    }

    /// Restores the former values unless the deployment was edited; returns what was done.
    async fn revert(&self, applied: &DynamicObject, backward: &Value) -> String {
        let ObjectKey { namespace, name } = &self.key;
        match self.patch_if_unedited(applied, backward).await {
            Ok(Some(_)) => format!("{} has its previous values again", self.key),
            Ok(None) => format!("{} was edited meanwhile and is left unchanged", self.key),
            Err(failure) => format!(
                "{}: cannot restore its previous values ({}); to do that: kubectl patch infd \
                 {name} -n {namespace} --type=merge -p '{}'",
                self.key,
                failure.text(),
                json!({ "spec": backward })
            ),
        }
    }

    /// Reads the deployment; retries while the API server is unreachable.
    async fn read_current(&self) -> Result<DynamicObject, Failure> {
        let begin = Instant::now();
        // bound: API_SERVER_TIME_MAX.
        loop {
            match self.job.cluster.get(&kind(), &self.key).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {
                    let what = format!("{}: it was deleted", self.key);
                    return Err(Failure::Failed(what));
                }
                Err(error)
                    if error.class() == ErrorClass::Transient
                        && begin.elapsed() < API_SERVER_TIME_MAX =>
                {
                    tokio::time::sleep(EXPERIMENT_POLL).await;
                }
                Err(error) => return Err(self.job.failed(&error)),
            }
        }
    }
}

fn kind() -> ApiResource {
    ApiResource::erase::<InferenceDeployment>(&())
}

/// Ctrl-C and SIGTERM, recorded from creation on and handled when work can be interrupted.
struct Interrupts {
    interrupt: Signal,
    terminate: Signal,
}

impl Interrupts {
    fn new() -> Result<Self, Failure> {
        let listen = |kind| signal(kind).map_err(|e| Failure::Failed(format!("signals: {e}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
        })
    }

    /// Runs `work`, which a signal ends early.
    async fn interruptible<T>(
        &mut self,
        work: impl Future<Output = Result<T, Failure>>,
    ) -> Result<T, Failure> {
        tokio::select! {
            done = work => done,
            _ = self.interrupt.recv() => Err(Failure::Failed("interrupted".to_owned())),
            _ = self.terminate.recv() => Err(Failure::Failed("interrupted".to_owned())),
        }
    }
}

#[cfg(test)]
mod cluster_tests;
#[cfg(test)]
mod tests;
