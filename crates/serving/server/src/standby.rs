//! A standby front: it replicates the state kept by the serving front, and takes over on request.

use std::collections::BTreeSet;
use std::process::ExitCode;

use albacore_live_settings::config_watcher::{self, LoadedSettings};
use albacore_live_settings::control::Control;
use albacore_live_settings::effective_config::ModelConfig;
use albacore_live_settings::handover::{Kept, KeptModel, Listeners, Restored};
use albacore_live_settings::model_status::ModelStatus;
use albacore_server_args::ModelSource;
use albacore_supervision::{FrontMessage, SupervisorMessage};

use crate::event_loops::EventLoops;
use crate::serve::{Accepting, FrontProcess, PreparedFront, StartMode, prepare};

/// The state kept by the serving front.
#[derive(Default)]
pub(crate) struct KeptState {
    pub(crate) listeners: Vec<Listeners>,
    settings: Option<Box<LoadedSettings>>,
    models: Vec<KeptModel>,
    /// A message of the params stream.
    parameters: Option<Vec<u8>>,
    /// The models that were unloaded by calls.
    unloaded: BTreeSet<String>,
}

impl KeptState {
    /// Receives all state kept so far.
    pub(crate) async fn receive(control: &Control) -> anyhow::Result<Self> {
        let mut kept_state = Self::default();
        // bound: number of kept entries; ends with the supervisor
        loop {
            match control.next().await? {
                (SupervisorMessage::Kept { key }, fds) => match Kept::read(&key, fds)? {
                    Kept::Listeners(listeners) => kept_state.listeners = listeners,
                    Kept::Settings(settings) => kept_state.settings = Some(settings),
                    Kept::Model(model) => kept_state.models.push(*model),
                    Kept::Parameters(message) => kept_state.parameters = Some(message),
                    Kept::Unloaded(names) => kept_state.unloaded = names,
                    Kept::Other => {}
                },
                (SupervisorMessage::AllKept, _) => return Ok(kept_state),
                _ => {}
            }
        }
    }
}

/// Prepares a front, applies the changes kept by the serving front, and takes over on request.
pub(crate) async fn run(process: FrontProcess, control: Control) -> anyhow::Result<ExitCode> {
    let handover = process.handover.clone();
    let kept_state = KeptState::receive(&control).await?;
    let event_loops = EventLoops::start(kept_state.listeners.len())?;
    let batching = match (&process.config.models, &kept_state.settings) {
        (ModelSource::Arguments { batching, .. }, _) => *batching,
        (ModelSource::SettingsFile(_), Some(settings)) => settings.settings.batching,
        (ModelSource::SettingsFile(file), None) => {
            config_watcher::read(file)
                .map_err(|error| anyhow::anyhow!("--settings {}: {error}", file.display()))?
                .settings
                .batching
        }
    };
    let listeners = kept_state.listeners;
    let (front, accepting) = prepare(process, Vec::new(), batching, listeners, &event_loops)?;
    let mut standby = Standby {
        front,
        settings: None,
        restored: Restored::default(),
    };
    if let ModelSource::Arguments { models, batching } = &standby.front.config.models {
        let params = models.iter().map(|model| model.config()).collect();
        standby.front.effective.set_settings(*batching, params)?;
    }
    if let Some(settings) = kept_state.settings {
        standby.set_settings(settings)?;
    }
    for model in kept_state.models {
        standby.restore(model)?;
    }
    for name in &kept_state.unloaded {
        standby.release_model(name);
    }
    standby.restored.unloaded = kept_state.unloaded;
    if let Some(message) = kept_state.parameters {
        standby.set_parameters(&message);
    }
    handover.send(&FrontMessage::Prepared, &[]);
    // bound: one pass per change; ends with the supervisor
    let mode = loop {
        match control.next().await? {
            (SupervisorMessage::Kept { key }, fds) => standby.apply(&key, fds)?,
            (SupervisorMessage::Forgotten { key }, _) if Kept::is_parameters(&key) => {
                standby.front.effective.inherit_stream(None);
            }
            (SupervisorMessage::Forgotten { key }, _) => {
                Kept::model_name(&key)
                    .into_iter()
                    .for_each(|name| standby.release_model(name));
            }
            (
                SupervisorMessage::Serve {
                    predecessor,
                    was_ready,
                },
                _,
            ) => {
                break StartMode::Takeover {
                    predecessor,
                    was_ready,
                };
            }
            (SupervisorMessage::Drain | SupervisorMessage::Retire, _) => {
                return Ok(ExitCode::SUCCESS);
            }
            _ => {}
        }
    };
    standby.serve(accepting, control, mode).await
}

/// A prepared front with the state kept by the serving front.
struct Standby {
    front: PreparedFront,
    settings: Option<Box<LoadedSettings>>,
    restored: Restored,
}

impl Standby {
    fn apply(&mut self, key: &str, fds: Vec<std::os::fd::OwnedFd>) -> anyhow::Result<()> {
        match Kept::read(key, fds)? {
            Kept::Settings(settings) => self.set_settings(settings),
            Kept::Model(model) => self.restore(*model),
            Kept::Parameters(message) => {
                self.set_parameters(&message);
                Ok(())
            }
            Kept::Unloaded(names) => {
                self.restored.unloaded = names;
                Ok(())
            }
            Kept::Listeners(_) | Kept::Other => Ok(()),
        }
    }

    fn set_settings(&mut self, settings: Box<LoadedSettings>) -> anyhow::Result<()> {
        let models = settings.settings.models.iter().map(ModelConfig::from);
        let batching = settings.settings.batching;
        let effective = &self.front.effective;
        effective.set_settings(batching, models.collect())?;
        self.settings = Some(settings);
        Ok(())
    }

    /// Applies parameters of the stream. Without them, the settings are in force, as after a start.
    fn set_parameters(&self, message: &[u8]) {
        let effective = &self.front.effective;
        match albacore_params_client::decode_parameters(message, effective.threads()) {
            Ok(parameters) => effective.inherit_stream(Some(parameters)),
            Err(error) => tracing::error!(
                error,
                "the parameters of the previous front cannot be applied"
            ),
        }
    }

    fn restore(&mut self, kept: KeptModel) -> anyhow::Result<()> {
        let KeptModel { model, record } = kept;
        let records = &mut self.restored.records;
        let known = records.get(&record.name);
        // The record of the same edition may have changed.
        if known.is_none_or(|known| known.edition() != record.edition()) {
            self.front.engine.restore(model, record.edition())?;
        }
        records.insert(record.name.clone(), record);
        Ok(())
    }

    /// Releases the memory of a model that is no longer served.
    fn release_model(&mut self, name: &str) {
        self.restored.records.remove(name);
        self.front.engine.unload(name);
    }

    async fn serve(
        self,
        accepting: Accepting,
        control: Control,
        mode: StartMode,
    ) -> anyhow::Result<ExitCode> {
        let mut front = self.front;
        if let StartMode::Takeover {
            was_ready: true, ..
        } = mode
        {
            front.engine.serve();
        }
        // First, because clients are waiting.
        front.start_accepting();
        let watcher = match front.config.models.clone() {
            ModelSource::Arguments { models, .. } => {
                let status = models.iter().map(|model| {
                    let mut status =
                        ModelStatus::new(&model.name, albacore_storage::redacted(&model.source));
                    if let Some(record) = self.restored.records.get(&model.name) {
                        status.restore(record.serving());
                    }
                    status
                });
                let statuses = status.collect();
                front.status.update(|status| status.models = statuses);
                front.start_model_control(&self.restored)?
            }
            ModelSource::SettingsFile(file) => {
                let settings = match self.settings {
                    Some(settings) => *settings,
                    None => config_watcher::read(&file).map_err(anyhow::Error::msg)?,
                };
                Some(front.watch(file, settings, &self.restored)?)
            }
        };
        front.serve(accepting, control, watcher, mode).await
    }
}
