//! Version, commit and timestamp of the images.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// The state of the checkout, for labels and timestamps.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Source {
    /// Version of the workspace, the tag of the images.
    pub version: String,
    /// The commit; `None` outside a repository.
    pub revision: Option<String>,
    /// Seconds since 1970: the timestamp of all files.
    pub epoch: u64,
}

impl Source {
    /// Reads the checkout at `root` with git. The timestamp is `SOURCE_DATE_EPOCH`, or that of the
    /// last commit.
    ///
    /// # Errors
    /// Neither git nor the variable provides a timestamp.
    pub fn read(root: &Path) -> Result<Self> {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        let revision = git(root, &["rev-parse", "HEAD"]).map(|commit| {
            let is_changed = git(root, &["status", "--porcelain", "--untracked-files=no"])
                .is_none_or(|files| !files.is_empty());
            commit + if is_changed { "-changed" } else { "" }
        });
        let given = std::env::var("SOURCE_DATE_EPOCH").ok();
        let Some(epoch) = given.or_else(|| git(root, &["log", "-1", "--format=%ct"])) else {
            bail!(
                "{} is not a git checkout, so the time of the images is unknown: \
                 set SOURCE_DATE_EPOCH to seconds since 1970",
                root.display()
            );
        };
        let epoch = epoch.trim().parse().with_context(|| {
            format!("SOURCE_DATE_EPOCH is {epoch:?}: give whole seconds since 1970")
        })?;
        Ok(Self {
            version,
            revision,
            epoch,
        })
    }

    /// The timestamp in RFC 3339 format.
    #[must_use]
    pub fn created(&self) -> String {
        rfc3339(self.epoch)
    }
}

/// Formats seconds since 1970 as RFC 3339.
pub(crate) fn rfc3339(epoch: u64) -> String {
    let (days, seconds) = (epoch / 86_400, epoch % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// The output of git; `None` if git fails or is not installed.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git")
        .args(arguments)
        .current_dir(root)
        .output()
        .ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// The date `days` after 1970-01-01. Years start in March, so that the leap day is the last day.
fn date(days: u64) -> (u64, u64, u64) {
    const DAYS_OF_400_YEARS: u64 = 146_097;
    let days = days + 719_468; // since 0000-03-01
    let (era, day) = (days / DAYS_OF_400_YEARS, days % DAYS_OF_400_YEARS);
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    (
        era * 400 + year + u64::from(month <= 2),
        month,
        day_of_month,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_as_by_the_calendar() {
        for (epoch, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_291_200, "2026-11-21T20:00:00Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            let source = Source {
                version: String::new(),
                revision: None,
                epoch,
            };
            assert_eq!(source.created(), text);
        }
    }
}
