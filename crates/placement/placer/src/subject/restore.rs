//! Restores the masks of a subject.

use std::collections::{BTreeMap, BTreeSet};

use albacore_plan::{LintInput, Linted, PlacementMethod, Plan, SubjectPolicy, lint, plan};
use albacore_values::sentence;

use super::{PassContext, Subject};
use crate::PlacerError;
use crate::execute::{ExecutedStep, StepOutcome, execute};
use crate::limits::{RESTORE_ERRORS_MAX, RESTORE_PASSES_MAX};
use crate::report::RestoreSummary;

impl Subject {
    /// Restores all masks, despite errors, until a check of the tree finds nothing left to restore.
    pub(crate) fn restore(&mut self, context: &mut PassContext<'_>) -> RestoreSummary {
        let mut restored = RestoreSummary::default();
        let mut restored_threads = BTreeSet::new();
        let policy = SubjectPolicy {
            placement: PlacementMethod::None,
            ..self.policy().clone()
        };
        for _ in 0..RESTORE_PASSES_MAX {
            restored.errors.clear();
            restored.errors_total = 0;
            let mut fail = |reason: String| {
                restored.errors_total += 1;
                if restored.errors.len() < RESTORE_ERRORS_MAX {
                    restored.errors.push(reason);
                }
            };
            // On a read error the previous data is used, which is better than restoring nothing.
            if let Err(e) = self.read_tree(context) {
                fail(sentence(&e));
            }
            let linted = match self.plan_restore(&policy, context) {
                Ok(linted) => linted,
                Err(e) => {
                    fail(sentence(&e));
                    break;
                }
            };
            let mut linted = linted;
            let calls = &mut context.figures.setaffinity_calls;
            let done = execute(context.reader, &linted, &self.guard(), calls);
            for ExecutedStep { step, outcome } in &done {
                match outcome {
                    StepOutcome::Verified => {
                        linted.confirm(step);
                        restored_threads.insert(step.thread);
                    }
                    StepOutcome::Gone | StepOutcome::Outside => {}
                    StepOutcome::Differs { actual } => fail(format!(
                        "thread {} has the mask {actual} instead of {}",
                        step.thread.tid.0, step.mask
                    )),
                    StepOutcome::Stale => {
                        fail(format!("thread {}: the cpuset changed", step.thread.tid.0))
                    }
                    StepOutcome::NotPermitted(e) => fail(sentence(e)),
                    StepOutcome::Failed(reason) => fail(reason.clone()),
                }
            }
            self.history = linted.into_history();
            self.verification.set_targets(BTreeMap::new());
            if done.is_empty() {
                break;
            }
        }
        restored.count = restored_threads.len();
        restored
    }

    fn read_tree(&mut self, context: &PassContext<'_>) -> Result<(), PlacerError> {
        let host = &context.reader.host;
        self.cpuset.update(host)?;
        if albacore_os::read_stat(host, self.tree.root()).is_ok_and(|stat| !stat.is_dead()) {
            self.tree.read_all()?;
        }
        self.tree.read_masks()?;
        Ok(())
    }

    fn plan_restore(
        &self,
        policy: &SubjectPolicy,
        context: &PassContext<'_>,
    ) -> Result<Plan<Linted>, PlacerError> {
        let observation = self.observe(context.reader, context.machine)?;
        let proposed = plan(policy, &observation, None, &self.history);
        let input = LintInput {
            policy,
            observation: &observation,
            history: &self.history,
            solved: None,
        };
        Ok(lint(proposed, &input)?)
    }
}
