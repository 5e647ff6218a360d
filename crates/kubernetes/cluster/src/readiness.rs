//! Readiness by named gates: a program is ready when all gates have passed (L12).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Conditions that must hold before a program is ready. Clones share the gates.
#[derive(Clone, Debug, Default)]
pub struct ReadinessGates {
    /// The condition for which each gate waits; `None` if it has passed.
    gates: Arc<Mutex<BTreeMap<String, Option<String>>>>,
}

/// One condition of readiness.
#[derive(Clone, Debug)]
pub struct ReadinessGate {
    gates: ReadinessGates,
    name: String,
}

impl ReadinessGates {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Option<String>>> {
        // Every change is a single insertion, so a panic leaves no partial state.
        self.gates.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a gate that waits for `what`.
    pub fn add(&self, name: impl Into<String>, what: &str) -> ReadinessGate {
        let gates = self.clone();
        let gate = ReadinessGate {
            gates,
            name: name.into(),
        };
        gate.close(what);
        gate
    }

    /// Whether every gate has passed.
    pub fn is_ready(&self) -> bool {
        self.lock().values().all(Option::is_none)
    }

    /// One gate per line, the body of `/readyz`.
    pub fn text(&self) -> String {
        let mut text = String::new();
        for (name, waits_for) in &*self.lock() {
            // Writing to a string cannot fail.
            let _ = match waits_for {
                None => writeln!(text, "[+] {name}"),
                Some(what) => writeln!(text, "[-] {name}: waits for {what}"),
            };
        }
        text
    }
}

impl ReadinessGate {
    pub fn pass(&self) {
        self.gates.lock().insert(self.name.clone(), None);
    }

    /// Closes the gate, which then waits for `what`.
    pub fn close(&self, what: &str) {
        let waits_for = Some(what.to_owned());
        self.gates.lock().insert(self.name.clone(), waits_for);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ready_means_that_every_gate_has_passed() {
        let gates = ReadinessGates::default();
        let pods = gates.add("watch pods", "the first list");
        let kinds = gates.add("kinds", "the custom resource definitions");
        pods.pass();
        assert!(!gates.is_ready());
        assert_eq!(
            gates.text(),
            "[-] kinds: waits for the custom resource definitions\n[+] watch pods\n"
        );
        kinds.pass();
        assert!(gates.is_ready());
        pods.close("an answer");
        assert!(!gates.is_ready());
    }
}
