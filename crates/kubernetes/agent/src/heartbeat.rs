//! Liveness without a listener: a file written by the reconcile loop, and a check of its age.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::limits::{HEARTBEAT_AGE_MAX, HEARTBEAT_PERIOD};

/// Writes the file at most once per period.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    due: Option<Instant>,
    is_failing: bool,
}

impl Heartbeat {
    /// Records an iteration of the loop. `state` is for people; the check reads only the file's
    /// age.
    pub(crate) fn beat(&mut self, path: &Path, state: &str, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + HEARTBEAT_PERIOD);
        let written = fs::write(path, format!("{state}\n"));
        if let Err(error) = &written
            && !self.is_failing
        {
            tracing::warn!(%error, path = %path.display(), "the heartbeat cannot be written");
        }
        self.is_failing = written.is_err();
    }

    /// Time at which the next heartbeat is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Checks that the agent that writes `path` is alive; returns the age of its heartbeat.
///
/// # Errors
/// The heartbeat file is missing or too old.
pub(crate) fn check_heartbeat(path: &Path, now: SystemTime) -> Result<Duration, String> {
    let age = fs::metadata(path)
        .and_then(|meta| meta.modified())
        .and_then(|at| now.duration_since(at).map_err(io::Error::other));
    let shown = path.display();
    match age {
        Ok(age) if age <= HEARTBEAT_AGE_MAX => Ok(age),
        Ok(age) => Err(format!("{shown} was written {} s ago", age.as_secs())),
        Err(error) => Err(format!("{shown}: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_heartbeat_fails_the_check() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heartbeat");
        let now = SystemTime::now();
        assert!(
            check_heartbeat(&path, now)
                .unwrap_err()
                .contains("heartbeat")
        );
        let mut heart = Heartbeat::default();
        let start = Instant::now();
        heart.beat(&path, "working", start);
        assert!(check_heartbeat(&path, SystemTime::now()).is_ok());
        let late = SystemTime::now() + HEARTBEAT_AGE_MAX + Duration::from_secs(1);
        assert!(check_heartbeat(&path, late).unwrap_err().contains("s ago"));
        fs::remove_file(&path).unwrap();
        heart.beat(&path, "working", start + Duration::from_secs(1));
        assert!(!path.exists(), "not before it is due");
        heart.beat(&path, "working", start + HEARTBEAT_PERIOD);
        assert!(path.exists());
    }
}
