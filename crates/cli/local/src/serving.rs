//! What of the built-in server can change while it runs, and how it hears of it: the settings file,
//! which brings models, and `albacore-params`, which brings rules and objectives at once. Both say
//! the same.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use albacore_api::ServerSettings;
use albacore_os::Pid;
use albacore_settings::Settings;

use crate::inbox::Inbox;
use crate::private_folder::PrivateFolder;
use crate::settings::{feed_line_of, settings_of};
use crate::telling::Telling;
use albacore_command::{Failure, program_beside};

/// The built-in server's ears.
pub(crate) struct Serving {
    folder: PrivateFolder,
    telling: Telling,
    /// Edits that were taken over, and one.
    generation: u64,
}

impl Serving {
    /// Writes the first settings and starts to tell them.
    ///
    /// # Errors
    /// The settings cannot be written or told.
    pub(crate) fn start(
        server: &ServerSettings,
        file: &Path,
        inbox: SyncSender<Inbox>,
    ) -> Result<Self, Failure> {
        let wrong = |problem| Failure::Failed(format!("{}: {problem}", file.display()));
        let settings = settings_of(server).map_err(wrong)?;
        let program = program_beside("albacore-params")?;
        let folder = PrivateFolder::make().map_err(|error| {
            Failure::Failed(format!(
                "a private folder cannot be made: {error}; set TMPDIR to a folder that can be written"
            ))
        })?;
        write(&settings, folder.path()).map_err(Failure::Failed)?;
        let generation = 1;
        let telling = Telling::start(
            &program,
            (&folder.path().join("feed"), &socket(folder.path())),
            folder.uid(),
            feed_line_of(&settings, (server.workers, server.threads), generation),
            inbox,
        )?;
        Ok(Self {
            folder,
            telling,
            generation,
        })
    }

    /// The arguments of the server that make it listen.
    pub(crate) fn arguments(&self) -> Vec<OsString> {
        let folder = self.folder.path();
        let mut place = OsString::from("unix:");
        place.push(socket(folder));
        vec![
            "--settings".into(),
            settings_file(folder).into(),
            "--params".into(),
            place,
        ]
    }

    /// Other settings from now on.
    ///
    /// # Errors
    /// A sentence; nothing has changed.
    pub(crate) fn change(&mut self, server: &ServerSettings) -> Result<(), String> {
        let settings = settings_of(server)?;
        write(&settings, self.folder.path())?;
        self.generation += 1;
        let sizes = (server.workers, server.threads);
        self.telling
            .tell(feed_line_of(&settings, sizes, self.generation));
        Ok(())
    }

    /// Says whether a process is one that was started here, from any thread.
    pub(crate) fn recognizer(&self) -> impl Fn(Pid) -> bool + Send + use<> {
        self.telling.recognizer()
    }

    /// Ends what was started and removes what was written.
    pub(crate) fn stop(self) {
        self.telling.stop();
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("params.sock")
}

fn settings_file(folder: &Path) -> PathBuf {
    folder.join("settings.yaml")
}

/// Writes the file in one step: its reader sees the old one or the new one.
fn write(settings: &Settings, folder: &Path) -> Result<(), String> {
    let (file, new) = (settings_file(folder), folder.join("settings.new"));
    let written = fs::write(&new, settings.to_yaml()).and_then(|()| fs::rename(&new, &file));
    written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
