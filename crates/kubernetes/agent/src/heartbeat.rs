//! Health without a listener: a file that is written while the loop turns, and a look at its age.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use crate::limits::{HEARTBEAT_AGE_MAX, HEARTBEAT_PERIOD};

/// Writes the file, at most once a period.
#[derive(Debug, Default)]
pub(crate) struct Heartbeat {
    due: Option<Instant>,
    is_failing: bool,
}

impl Heartbeat {
    /// The loop turned. The content says for people how it stands; readers look at the file's age
    /// alone.
    pub(crate) fn beat(&mut self, path: &Path, says: &str, now: Instant) {
        if self.due.is_some_and(|due| now < due) {
            return;
        }
        self.due = Some(now + HEARTBEAT_PERIOD);
        let written = fs::write(path, format!("{says}\n"));
        if let Err(error) = &written
            && !self.is_failing
        {
            tracing::warn!(%error, path = %path.display(), "the heartbeat cannot be written");
        }
        self.is_failing = written.is_err();
    }

    /// When the next one is due.
    pub(crate) fn due(&self) -> Option<Instant> {
        self.due
    }
}

/// Whether the agent that writes `path` works, and why not.
///
/// # Errors
/// There is no heartbeat, or it is too old.
pub(crate) fn alive(path: &Path, now: SystemTime) -> Result<Duration, String> {
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
    fn an_old_heartbeat_is_none() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("heartbeat");
        let now = SystemTime::now();
        assert!(alive(&path, now).unwrap_err().contains("heartbeat"));
        let mut heart = Heartbeat::default();
        let start = Instant::now();
        heart.beat(&path, "working", start);
        assert!(alive(&path, SystemTime::now()).is_ok());
        let late = SystemTime::now() + HEARTBEAT_AGE_MAX + Duration::from_secs(1);
        assert!(alive(&path, late).unwrap_err().contains("s ago"));
        fs::remove_file(&path).unwrap();
        heart.beat(&path, "working", start + Duration::from_secs(1));
        assert!(!path.exists(), "not before it is due");
        heart.beat(&path, "working", start + HEARTBEAT_PERIOD);
        assert!(path.exists());
    }
}
