//! Settings of the built-in server that can change while it runs. They reach the server in two
//! ways: by the settings file, from which it reads models, and by `albacore-params`, which delivers
//! batching rules and objectives at once. Both always contain the same settings.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use albacore_api::BuiltInServer;
use albacore_os::{FifoReader, Pid};
use albacore_settings::agent_stream::LatencyReport;
use albacore_settings::{REPORT_LINE_BYTES_MAX, Settings};
use albacore_trial::LatencyHistogram;

use crate::message::Message;
use crate::node_snapshot::node_snapshot;
use crate::params_process::{ParamsFiles, ParamsProcess};
use crate::private_folder::PrivateFolder;
use albacore_command::{Failure, program_beside, sentence};

/// Bytes of reports read at once, enough for the reports of a minute.
const REPORTS_BYTES_MAX: usize = 128 << 10;

/// Both channels to the server.
pub(crate) struct LiveSettings {
    folder: PrivateFolder,
    params: ParamsProcess,
    /// One plus the number of changes applied.
    generation: u64,
    /// Latency reports of the server; `report` is their period.
    reports: FifoReader,
    report: Option<Duration>,
}

impl LiveSettings {
    /// Writes the settings file and starts `albacore-params`.
    ///
    /// # Errors
    /// The settings cannot be written, or the program is missing.
    pub(crate) fn start(
        server: &BuiltInServer,
        messages: SyncSender<Message>,
    ) -> Result<Self, Failure> {
        let program = program_beside("albacore-params")?;
        let folder = PrivateFolder::create().map_err(|error| {
            Failure::Failed(format!(
                "cannot create a private folder: {error}; set TMPDIR to a writable folder"
            ))
        })?;
        write(&server.settings, folder.path()).map_err(Failure::Failed)?;
        let reports = folder.path().join("reports");
        let files = ParamsFiles {
            feed: &folder.path().join("feed"),
            socket: &socket(folder.path()),
            reports: &reports,
        };
        let reports = FifoReader::new(&reports, REPORT_LINE_BYTES_MAX)
            .map_err(|error| Failure::Failed(sentence(&error)))?;
        let generation = 1;
        let params = ParamsProcess::start(
            &program,
            &files,
            folder.uid(),
            node_snapshot(server, generation, None),
            messages,
        )?;
        Ok(Self {
            folder,
            params,
            generation,
            reports,
            report: None,
        })
    }

    /// Arguments of the server that name the settings file and the socket.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let folder = self.folder.path();
        let mut address = OsString::from("unix:");
        address.push(socket(folder));
        vec![
            "--settings".into(),
            settings_file(folder).into(),
            "--params".into(),
            address,
        ]
    }

    /// Replaces the settings in force.
    ///
    /// # Errors
    /// A sentence for the user; the settings are unchanged.
    pub(crate) fn change(&mut self, server: &BuiltInServer) -> Result<(), String> {
        write(&server.settings, self.folder.path())?;
        self.send(server);
        Ok(())
    }

    /// Sets the period in which the server reports its latency.
    pub(crate) fn set_report_period(&mut self, server: &BuiltInServer, period: Option<Duration>) {
        if self.report != period {
            self.report = period;
            self.send(server);
        }
    }

    fn send(&mut self, server: &BuiltInServer) {
        self.generation += 1;
        let snapshot = node_snapshot(server, self.generation, self.report);
        self.params.send(snapshot);
    }

    /// The newest latency report since the last call; reports that cannot be parsed are ignored.
    pub(crate) fn latest_latency(&mut self) -> Option<LatencyHistogram> {
        let mut latest = None;
        let mut take = |line: &[u8]| {
            if let Ok(report) = LatencyReport::decode(line) {
                latest = Some(report.cumulative());
            }
        };
        self.reports.read(REPORTS_BYTES_MAX, &mut take).ok()?;
        latest
    }

    /// Returns a predicate, usable on any thread, for processes that were started here.
    pub(crate) fn recognizer(&self) -> impl Fn(Pid) -> bool + Send + use<> {
        self.params.recognizer()
    }

    /// Stops `albacore-params` and removes the files.
    pub(crate) fn stop(self) {
        self.params.stop();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("params.sock")
}

fn settings_file(folder: &Path) -> PathBuf {
    folder.join("settings.yaml")
}

/// Replaces the file atomically: its reader sees either the old or the new content.
fn write(settings: &Settings, folder: &Path) -> Result<(), String> {
    let (file, new) = (settings_file(folder), folder.join("settings.new"));
    let written = fs::write(&new, settings.to_yaml()).and_then(|()| fs::rename(&new, &file));
    written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
