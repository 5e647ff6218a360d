//! Streams the results of a job line by line during the measurement.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::time::{Duration, Instant};

use super::description::{FetchedResults, sum};
use super::{ENDED, Ended, JOB_RESULTS, file_error};
use crate::ExperimentError;
use crate::grid::windows;
use crate::record::Line;
use crate::run::Progress;

/// Polling period of the file: long enough not to affect the measurements.
const POLL: Duration = Duration::from_millis(500);

/// Period of keep-alive messages while a window is measured.
const KEEP_ALIVE_PERIOD: Duration = Duration::from_secs(10);

/// Messages to a follower.
#[derive(Debug)]
pub enum FollowMessage<'a> {
    /// A line of the journal, including its newline.
    Line {
        text: &'a str,
        /// Whether the follower does not have it yet.
        is_new: bool,
    },
    KeepAlive,
    /// The job has ended, and all lines were sent; contains the error if it failed.
    End(Option<String>),
}

/// Sends all lines of the journal, including those already fetched, until the job ends.
///
/// # Errors
/// The fetched part is not a prefix of this journal; the follower has disconnected.
pub fn follow(
    folder: &Path,
    journal: &str,
    fetched: &FetchedResults,
    send: &mut dyn FnMut(FollowMessage<'_>) -> std::io::Result<()>,
) -> Result<(), ExperimentError> {
    let path = folder.join(JOB_RESULTS).join(journal);
    let failed = file_error(&path);
    let sent = |result: std::io::Result<()>| result.map_err(file_error(Path::new("the follower")));
    let mut open: Option<BufReader<File>> = None;
    let (mut text, mut position, mut last) = (String::new(), 0, Instant::now());
    // bound: the time limit of a job.
    loop {
        // checked before reading lines, so that no line written before the end is missed
        let end = std::fs::read(folder.join(ENDED)).ok();
        if open.is_none() && path.exists() {
            check_beginning(&path, fetched)?;
            open = Some(BufReader::new(File::open(&path).map_err(&failed)?));
        }
        if let Some(reader) = &mut open {
            // bound: the file's length; an incomplete line is kept for the next pass
            while reader.read_line(&mut text).map_err(&failed)? > 0 && text.ends_with('\n') {
                position += text.len() as u64;
                let is_new = position > fetched.bytes;
                let line = FollowMessage::Line {
                    text: &text,
                    is_new,
                };
                sent(send(line))?;
                last = Instant::now();
                text.clear();
            }
        }
        if let Some(end) = end {
            let failure = match serde_json::from_slice(&end) {
                Ok(Ended { failure }) => failure,
                Err(error) => Some(error.to_string()),
            };
            return sent(send(FollowMessage::End(failure)));
        }
        if last.elapsed() >= KEEP_ALIVE_PERIOD {
            sent(send(FollowMessage::KeepAlive))?;
            last = Instant::now();
        }
        std::thread::sleep(POLL);
    }
}

/// Checks that the fetched part is a prefix of the results.
fn check_beginning(path: &Path, fetched: &FetchedResults) -> Result<(), ExperimentError> {
    let length = std::fs::metadata(path).map_err(file_error(path))?.len();
    if length < fetched.bytes || sum(path, Some(fetched.bytes))? != fetched.sha256 {
        let what = "the folder has results of another run: name another folder with --output";
        return Err(ExperimentError::Job {
            what: what.to_owned(),
        });
    }
    Ok(())
}

/// Counts the windows of an experiment's lines and estimates the remaining time.
#[derive(Debug)]
pub struct WindowCounter {
    begin: Instant,
    /// Windows sent as new lines.
    measured: u32,
    done: usize,
    all: usize,
    /// Lower bound of the time of a window.
    expected: Duration,
}

impl Default for WindowCounter {
    fn default() -> Self {
        Self {
            begin: Instant::now(),
            measured: 0,
            done: 0,
            all: 0,
            expected: Duration::ZERO,
        }
    }
}

impl WindowCounter {
    /// Counts a line; returns the result of `describe` if the line has a known format.
    pub fn count<T>(
        &mut self,
        text: &str,
        is_new: bool,
        describe: impl FnOnce(&Progress<'_>) -> T,
    ) -> Option<T> {
        let line = serde_json::from_str(text).ok()?;
        Some(describe(&self.progress(&line, is_new)))
    }

    fn progress<'a>(&mut self, line: &'a Line, is_new: bool) -> Progress<'a> {
        match line {
            Line::Experiment(header) => {
                let spec = &header.spec;
                self.all = windows(spec).iter().map(|(_, cell)| cell.len()).sum();
                self.expected = spec.window.0 + spec.settle.0;
                let (done, all, left) = (self.done, self.all, self.left());
                Progress::Start { done, all, left }
            }
            Line::Window(window) => {
                self.done += 1;
                self.measured += u32::from(is_new);
                let (done, all, left) = (self.done, self.all, self.left());
                Progress::Window {
                    window,
                    done,
                    all,
                    left,
                }
            }
            Line::Failed(failed) => Progress::Failed(failed),
        }
    }

    fn left(&self) -> Duration {
        let each = match self.measured {
            0 => self.expected,
            // windows measured before this follower connected are not timed
            measured => (self.begin.elapsed() / measured).max(self.expected),
        };
        each.saturating_mul(self.all.saturating_sub(self.done) as u32)
    }
}
