//! The conditions. `Ready`, `Available`, `Progressing`, `ModelLoaded`, `Placed` and `SLOMet` tell
//! how things stand; `Reconciling` and `Stalled` exist only while they are true, so that kstatus
//! (Flux, Argo CD) and `kubectl wait` agree with a reader, and so does `WorkersRespawning`.
//!
//! `Ready` is left out while the deployment is scaled to zero: nobody asked for it to serve, a
//! `False` would keep GitOps tools waiting for ever, and a `True` would be a lie. `ModelLoaded` and
//! `SLOMet` are of the built-in server.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

use super::stuck::stuck;
use super::{Facts, Verdict, figures, live_workers, models, placed};
use crate::limits::{MESSAGE_CHARS_MAX, RESPAWN_WINDOW, RESPAWNS_FREQUENT};
use crate::observed::{PodSeen, Told};
use crate::refusal::{Refusal, with_remedy};

pub(super) const RECONCILING: &str = "Reconciling";
pub(super) const STALLED: &str = "Stalled";
pub(super) const RESPAWNING: &str = "WorkersRespawning";

/// How a condition stands: `status`, `reason`, `message`.
type Standing = (&'static str, String, String);

fn standing(status: &'static str, reason: &str, message: impl Into<String>) -> Standing {
    (status, reason.to_owned(), message.into())
}

/// Every condition of `facts`.
pub(super) fn conditions(facts: &Facts<'_>, now: &Time) -> Vec<Condition> {
    let stalled = stalled(facts);
    let reconciling = match stalled {
        Some(_) => None,
        None => reconciling(facts),
    };
    let standings = [
        ("Ready", ready(facts, stalled.as_ref())),
        ("Available", Some(available(facts))),
        ("Progressing", Some(progressing(facts))),
        (
            "ModelLoaded",
            facts.is_built_in().then(|| model_loaded(facts)),
        ),
        ("Placed", Some(is_placed(facts))),
        ("SLOMet", facts.is_built_in().then(|| slo_met(facts))),
        (RECONCILING, reconciling),
        (STALLED, stalled),
        (RESPAWNING, respawning(facts)),
    ];
    let known = standings
        .into_iter()
        .filter_map(|(kind, standing)| Some((kind, standing?)));
    known
        .map(|(kind, standing)| condition(facts, kind, standing, now))
        .collect()
}

fn condition(facts: &Facts<'_>, kind: &str, standing: Standing, now: &Time) -> Condition {
    let (status, reason, message) = standing;
    let before = facts.deployment.status.iter().flat_map(|s| &s.conditions);
    let mut before = before.filter(|c| c.type_ == kind && c.status == status);
    let since = before.next().map_or(now, |c| &c.last_transition_time);
    Condition {
        type_: kind.to_owned(),
        status: status.to_owned(),
        observed_generation: facts.deployment.metadata.generation,
        last_transition_time: since.clone(),
        reason,
        message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
    }
}

/// The Deployment's own word for pods that did not become available in time.
const DEADLINE: &str = "ProgressDeadlineExceeded";

/// What keeps the spec from coming true until somebody does something.
fn stalled(facts: &Facts<'_>) -> Option<Standing> {
    let (reason, message) = match facts.verdict {
        Verdict::Invalid(violations) => {
            let sentences: Vec<String> = violations.iter().map(ToString::to_string).collect();
            ("InvalidSpec", sentences.join("; "))
        }
        Verdict::Taken(kind) => (
            "NameTaken",
            format!(
                "a {} of this name exists that this deployment does not control; delete or rename \
                 it, or give the deployment another name",
                kind.kind()
            ),
        ),
        Verdict::Refused(refusal) if refusal.is_lasting => (
            refusal.reason,
            with_remedy(&refusal.message, refusal.reason),
        ),
        Verdict::Applied | Verdict::Collecting(_) | Verdict::Refused(_) => {
            let told = facts.workload?.is_progressing.as_ref()?;
            if told.reason != DEADLINE {
                return None;
            }
            let message = match stuck(facts) {
                Some(stuck) => stuck.beside(&told.message),
                None => told.message.clone(),
            };
            (DEADLINE, message)
        }
    };
    Some(standing("True", reason, message))
}

/// What is under way.
fn reconciling(facts: &Facts<'_>) -> Option<Standing> {
    let say = |reason: &str, message: String| Some(standing("True", reason, message));
    if let Verdict::Collecting(kind) = facts.verdict {
        let message = format!(
            "the {} of a former deployment of this name is being deleted",
            kind.kind()
        );
        return say("Collecting", message);
    }
    if let Verdict::Refused(refusal) = facts.verdict {
        let message = with_remedy(&refusal.message, refusal.reason);
        return say(refusal.reason, message);
    }
    let Some(workload) = facts.workload else {
        return say("Creating", "there is no Deployment yet".to_owned());
    };
    let beside = |message: String| match stuck(facts) {
        Some(stuck) => stuck.beside(&message),
        None => message,
    };
    if !workload.is_observed || workload.replicas != workload.updated {
        return say("RollingOut", beside(rollout(facts)));
    }
    if !workload.is_full() {
        let message = format!(
            "{} of {} pods are available",
            workload.available, workload.wanted
        );
        let reason = match workload.is_rolled_out() {
            true => "Scaling",
            false => "RollingOut",
        };
        return say(reason, beside(message));
    }
    settings_pending(facts)
}

/// Settings that have not reached every server yet.
fn settings_pending(facts: &Facts<'_>) -> Option<Standing> {
    let behind = || facts.ready_pods().filter(|pod| facts.is_behind(pod));
    let told = || facts.ready_pods().filter(|pod| pod.state.is_some());
    let PodSeen { name, state, .. } = behind().next()?;
    let refused = state.as_ref().and_then(|state| {
        let params = || state.params.as_ref()?.refused.as_ref();
        state.settings_error.as_ref().or_else(params)
    });
    if let Some(error) = refused {
        let message = format!("{name} keeps its former settings: {error}");
        return Some(standing("True", "SettingsRefused", message));
    }
    let message = format!(
        "{} of {} pods have not taken the newest settings yet; the kubelet brings them within \
         about a minute",
        behind().count(),
        told().count()
    );
    Some(standing("True", "SettingsPending", message))
}

fn rollout(facts: &Facts<'_>) -> String {
    let workload = facts.workload.cloned().unwrap_or_default();
    format!(
        "{} of {} pods have the newest template, {} are available",
        workload.updated, workload.wanted, workload.available
    )
}

fn ready(facts: &Facts<'_>, stalled: Option<&Standing>) -> Option<Standing> {
    let no = |reason: &str, message: String| Some(standing("False", reason, message));
    let stuck = stuck(facts);
    match (stalled, &stuck) {
        (Some((_, reason, _)), Some(stuck)) if reason == DEADLINE => {
            return no(&stuck.reason, stuck.message());
        }
        (Some((_, reason, message)), _) => return no(reason, message.clone()),
        (None, _) => {}
    }
    if facts.is_at_zero() {
        return None;
    }
    let Some(workload) = facts.workload else {
        return match facts.verdict {
            Verdict::Refused(Refusal {
                reason, message, ..
            }) => no(reason, with_remedy(message, reason)),
            _ => no("Creating", "there is no Deployment yet".to_owned()),
        };
    };
    if let (true, models::Progress::Failed(model, error)) =
        (facts.is_built_in(), models::progress(facts))
    {
        return no("ModelFailed", format!("model {model}: {error}"));
    }
    let is_served = workload.is_rolled_out() && workload.available > 0;
    if let Some(stuck) = stuck.filter(|_| !is_served) {
        return no(&stuck.reason, stuck.message());
    }
    if !workload.is_rolled_out() {
        return no("RollingOut", rollout(facts));
    }
    if workload.available == 0 {
        return no("NoPods", "no pod is available".to_owned());
    }
    Some(ready_by_workers(facts))
}

/// Pods are there: do workers live in them?
fn ready_by_workers(facts: &Facts<'_>) -> Standing {
    let yes = || standing("True", "Serving", "requests are served");
    let none = || standing("False", "NoLiveWorkers", "no worker process is alive");
    let mut ready = facts.ready_pods();
    let is_alive = live_workers(facts) > 0;
    match facts.is_built_in() {
        true if is_alive => yes(),
        true if ready.any(|pod| pod.state.is_some()) => none(),
        true => {
            let message = "pods are ready, but none told its state to the controller; may it reach \
                           them on their HTTP port?";
            standing("Unknown", "StateUnread", message)
        }
        // Only the agent looks into servers of the user's own; where it does and sees none, none
        // is.
        false => {
            let is_seen = ready.all(|pod| pod.placement.is_some());
            if is_seen && !is_alive { none() } else { yes() }
        }
    }
}

/// What the Deployment says itself.
fn told(facts: &Facts<'_>, told: Option<&Told>) -> Standing {
    let status = |told: &Told| match told.status.as_str() {
        "True" => "True",
        "False" => "False",
        _ => "Unknown",
    };
    match told {
        Some(told) => standing(status(told), &told.reason, told.message.clone()),
        None if facts.workload.is_some() => {
            standing("Unknown", "Creating", "the Deployment does not say yet")
        }
        None => standing("False", "NoDeployment", "there is no Deployment"),
    }
}

fn available(facts: &Facts<'_>) -> Standing {
    told(facts, facts.workload.and_then(|w| w.is_available.as_ref()))
}

fn progressing(facts: &Facts<'_>) -> Standing {
    told(
        facts,
        facts.workload.and_then(|w| w.is_progressing.as_ref()),
    )
}

fn model_loaded(facts: &Facts<'_>) -> Standing {
    if facts.is_at_zero() {
        return standing("Unknown", "ScaledToZero", "there is no pod to load into");
    }
    match models::progress(facts) {
        models::Progress::Unread => standing("Unknown", "StateUnread", "no pod told its state yet"),
        models::Progress::Failed(model, error) => {
            standing("False", "LoadFailed", format!("model {model}: {error}"))
        }
        models::Progress::Loading(loaded, all) => {
            let message = format!("{loaded} of {all} are loaded, over all pods");
            standing("False", "Loading", message)
        }
        models::Progress::Loaded => standing("True", "Loaded", "every pod has every model"),
    }
}

fn is_placed(facts: &Facts<'_>) -> Standing {
    let (status, reason, message) = placed::placed(facts);
    standing(status, reason, message)
}

/// Workers that end again and again, though others take their place.
fn respawning(facts: &Facts<'_>) -> Option<Standing> {
    let count = facts.respawns.count;
    if count < RESPAWNS_FREQUENT {
        return None;
    }
    let message = format!(
        "worker processes that ended and were replaced in the last {} minutes: {count}; last: {}",
        RESPAWN_WINDOW.as_secs() / 60,
        facts.respawns.last.as_deref().unwrap_or_default()
    );
    let reason = "FrequentRespawns";
    Some(standing("True", reason, with_remedy(&message, reason)))
}

fn slo_met(facts: &Facts<'_>) -> Standing {
    let has_objective = facts.deployment.spec.models.iter().any(|m| m.slo.is_some());
    if !has_objective {
        return standing(
            "True",
            "NoObjective",
            "no model has an objective that could be missed",
        );
    }
    if facts.ready_pods().all(|pod| pod.state.is_none()) {
        return standing("Unknown", "StateUnread", "no pod told its state yet");
    }
    match figures::is_objective_kept(facts) {
        None => standing("True", "NoRequests", "no request came that could miss it"),
        Some(true) => standing(
            "True",
            "Met",
            "as many requests were in time as the objective asks",
        ),
        Some(false) => {
            let message = "more requests were late, shed or failed than the objective allows; see \
                           status.badRate";
            standing("False", "Missed", message)
        }
    }
}
