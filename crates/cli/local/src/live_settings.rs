//! Settings of the built-in server that can change while it runs, and their two ways to the server:
//! the settings file, from which it reads models, and `albacore-params`, from which it takes
//! batching rules and objectives at once. Both always hold the same settings.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;

use albacore_api::BuiltInServer;
use albacore_os::Pid;
use albacore_settings::Settings;

use crate::message::Message;
use crate::node_snapshot::node_snapshot;
use crate::params_process::ParamsProcess;
use crate::private_folder::PrivateFolder;
use albacore_command::{Failure, program_beside};

/// Both ways, open.
pub(crate) struct LiveSettings {
    folder: PrivateFolder,
    params: ParamsProcess,
    /// One plus the number of edits applied.
    generation: u64,
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
                "a private folder cannot be made: {error}; set TMPDIR to a folder that can be written"
            ))
        })?;
        write(&server.settings, folder.path()).map_err(Failure::Failed)?;
        let generation = 1;
        let params = ParamsProcess::start(
            &program,
            (&folder.path().join("feed"), &socket(folder.path())),
            folder.uid(),
            node_snapshot(server, generation),
            messages,
        )?;
        Ok(Self {
            folder,
            params,
            generation,
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

    /// Replaces the settings.
    ///
    /// # Errors
    /// A sentence for the user; nothing has changed.
    pub(crate) fn change(&mut self, server: &BuiltInServer) -> Result<(), String> {
        write(&server.settings, self.folder.path())?;
        self.generation += 1;
        self.params.send(node_snapshot(server, self.generation));
        Ok(())
    }

    /// A test, usable on any thread, whether a process was started here.
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

/// Writes the file in one step: its reader sees the old one or the new one.
fn write(settings: &Settings, folder: &Path) -> Result<(), String> {
    let (file, new) = (settings_file(folder), folder.join("settings.new"));
    let written = fs::write(&new, settings.to_yaml()).and_then(|()| fs::rename(&new, &file));
    written.map_err(|error| format!("{} cannot be written: {error}", file.display()))
}
