//! `albacore tune NAME --apply`: gives the deployment the chosen values, watches the pods that
//! serve, and takes the values back unless they are found to be no worse.

mod patch;
mod serving;

use std::path::Path;
use std::time::{Duration, Instant};

use albacore_api::{InferenceDeployment, read_deployment};
use albacore_cluster::{ApiResource, DynamicObject, ErrorClass, ObjectKey};
use albacore_command::{Failure, sentence};
use albacore_statistics::{Change, ServedWindow};
use serde_json::{Value, json};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::job::{JobClient, typed};
use crate::limits::{API_SERVER_TIME_MAX, CONFLICTS_MAX, EXPERIMENT_POLL};
use patch::{Patches, is_unedited};
use serving::{Standing, standing};

/// A deployment that gets the values that are chosen for it.
pub(crate) struct Apply {
    pub(crate) job: JobClient,
    pub(crate) key: ObjectKey,
    /// The deployment as it is tuned.
    pub(crate) read: DynamicObject,
    /// How long the pods are watched before, and again after the change.
    pub(crate) time: Duration,
}

impl Apply {
    /// Finds out before the search what would keep the values from being applied or judged.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        let same = json!({"workers": self.read.data["spec"]["workers"]});
        let cluster = &self.job.cluster;
        let tried = cluster.try_merge_spec(&kind(), &self.key, &same).await;
        tried.map_err(|error| self.job.failed(&error))?;
        let (Standing::Pending(why) | Standing::Stuck(why)) = standing(&self.read) else {
            return self.measure(1).await.map(drop);
        };
        Err(Failure::Failed(format!(
            "--apply: {} is not in a state that others can be compared with ({why}): wait, or leave --apply out",
            self.key
        )))
    }

    /// Applies the values of the file that the search wrote; what was found, in sentences.
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
        let before = interrupts.or(self.measure(Change::WINDOWS)).await;
        let before = before.map_err(|failure| unchanged(&failure))?;
        // whether it took effect has to be known: this is not interrupted
        let Some(applied) = self.replace(&self.read, &patches.forward).await? else {
            let what = "it was edited after the search began: run the same command again";
            return Err(unchanged(&Failure::Failed(format!("{key}: {what}"))));
        };
        eprintln!("{key} has the chosen values now; waiting for its pods");
        let failed = match interrupts.or(self.watch(&applied, &before)).await {
            Ok(change) if !change.is_worse() => {
                return Ok(format!("{}. {key} keeps the chosen values.", change.text()));
            }
            Ok(change) => format!("{}: worse beyond the noise", change.text()),
            Err(failure) => failure.text().to_owned(),
        };
        let end = self.take_back(&applied, &patches.backward).await;
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
                "{named}: {field} is not the one of {}, and no search changes it: nothing is applied",
                self.key
            ))
        })
    }

    /// The pods after the change, beside those before.
    async fn watch(
        &self,
        applied: &DynamicObject,
        before: &[ServedWindow],
    ) -> Result<Change, Failure> {
        self.wait_until_in_force().await?;
        eprintln!("measuring the pods of {} after the change", self.key);
        let after = self.measure(Change::WINDOWS).await?;
        match is_unedited(&self.now().await?, applied) {
            true => Ok(Change::between(before, &after)),
            false => Err(Failure::Failed(
                "nothing is judged, as the figures may be those of other values".to_owned(),
            )),
        }
    }

    /// Changes the spec if nobody has edited it since it was that of `expected`; `None` if somebody
    /// has.
    async fn replace(
        &self,
        expected: &DynamicObject,
        patch: &Value,
    ) -> Result<Option<DynamicObject>, Failure> {
        let mut conflicts = 0;
        // bound: CONFLICTS_MAX.
        loop {
            let now = self.now().await?;
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
                let what = "others write it too often for a change";
                return Err(Failure::Failed(format!("{}: {what}", self.key)));
            }
        }
    }

    /// Gives the deployment its former values again, unless somebody has edited it; what was done.
    async fn take_back(&self, applied: &DynamicObject, backward: &Value) -> String {
        let ObjectKey { namespace, name } = &self.key;
        match self.replace(applied, backward).await {
            Ok(Some(_)) => format!("{} has its former values again", self.key),
            Ok(None) => format!(
                "{} was edited meanwhile, so it is left as it is now",
                self.key
            ),
            Err(failure) => format!(
                "{}: its former values could not be given back ({}); to do that: kubectl patch infd {name} -n {namespace} \
                 --type=merge -p '{}'",
                self.key,
                failure.text(),
                json!({ "spec": backward })
            ),
        }
    }

    /// The deployment, also where the API server is away for a moment.
    async fn now(&self) -> Result<DynamicObject, Failure> {
        let begin = Instant::now();
        // bound: API_SERVER_TIME_MAX.
        loop {
            match self.job.cluster.get(&kind(), &self.key).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => {
                    let what = format!("{}: somebody deleted it", self.key);
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

/// Ctrl-C and SIGTERM, kept from when this is made until work can be interrupted.
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

    /// The outcome of `work`, which ends early at a signal.
    async fn or<T>(
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
