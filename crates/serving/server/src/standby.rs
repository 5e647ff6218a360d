//! A standby front: it replicates the state stored by the serving front, and takes over on request.

use std::collections::BTreeSet;
use std::process::ExitCode;

use albacore_live_settings::config_watcher::{self, LoadedSettings};
use albacore_live_settings::control::ControlReceiver;
use albacore_live_settings::effective_config::ModelConfig;
use albacore_live_settings::handover::{Listeners, RestoredModels, StoredModel, StoredValue};
use albacore_live_settings::model_status::ModelLoadStatus;
use albacore_server_args::ModelSource;
use albacore_supervision::{FrontMessage, SupervisorMessage};

use crate::event_loops::EventLoops;
use crate::serve::{Accepting, FrontProcess, PreparedFront, StartMode, prepare};

/// The state stored by the serving front.
#[derive(Default)]
pub(crate) struct StoredState {
    pub(crate) listeners: Vec<Listeners>,
    settings: Option<Box<LoadedSettings>>,
    models: Vec<StoredModel>,
    /// A message of the params stream.
    parameters: Option<Vec<u8>>,
    /// The models that were unloaded by calls.
    unloaded: BTreeSet<String>,
}

impl StoredState {
    /// Receives all state stored so far.
    pub(crate) async fn receive(control: &ControlReceiver) -> anyhow::Result<Self> {
        let mut stored_state = Self::default();
        // bound: number of stored entries; ends with the supervisor
        loop {
            match control.next().await? {
                (SupervisorMessage::Stored { key }, fds) => match StoredValue::read(&key, fds)? {
                    StoredValue::Listeners(listeners) => stored_state.listeners = listeners,
                    StoredValue::Settings(settings) => stored_state.settings = Some(settings),
                    StoredValue::Model(model) => stored_state.models.push(*model),
                    StoredValue::Parameters(message) => stored_state.parameters = Some(message),
                    StoredValue::Unloaded(names) => stored_state.unloaded = names,
                    StoredValue::Other => {}
                },
                (SupervisorMessage::AllStored, _) => return Ok(stored_state),
                _ => {}
            }
        }
    }
}

/// Prepares a front, applies the changes stored by the serving front, and takes over on request.
pub(crate) async fn run(
    process: FrontProcess,
    control: ControlReceiver,
) -> anyhow::Result<ExitCode> {
    let handover = process.handover.clone();
    let stored_state = StoredState::receive(&control).await?;
    let event_loops = EventLoops::start(stored_state.listeners.len())?;
    let batching = match (&process.config.models, &stored_state.settings) {
        (ModelSource::Arguments { batching, .. }, _) => *batching,
        (ModelSource::SettingsFile(_), Some(settings)) => settings.settings.batching,
        (ModelSource::SettingsFile(file), None) => {
            config_watcher::read(file)
                .map_err(|error| anyhow::anyhow!("--settings {}: {error}", file.display()))?
                .settings
                .batching
        }
    };
    let listeners = stored_state.listeners;
    let (front, accepting) = prepare(process, Vec::new(), batching, listeners, &event_loops)?;
    let mut standby = Standby {
        front,
        settings: None,
        restored: RestoredModels::default(),
    };
    if let ModelSource::Arguments { models, batching } = &standby.front.config.models {
        let params = models.iter().map(|model| model.config()).collect();
        standby.front.effective.set_settings(*batching, params)?;
    }
    if let Some(settings) = stored_state.settings {
        standby.set_settings(settings)?;
    }
    for model in stored_state.models {
        standby.restore(model)?;
    }
    for name in &stored_state.unloaded {
        standby.release_model(name);
    }
    standby.restored.unloaded = stored_state.unloaded;
    if let Some(message) = stored_state.parameters {
        standby.set_parameters(&message);
    }
    handover.send(&FrontMessage::Prepared, &[]);
    // bound: one pass per change; ends with the supervisor
    let mode = loop {
        match control.next().await? {
            (SupervisorMessage::Stored { key }, fds) => standby.apply(&key, fds)?,
            (SupervisorMessage::Removed { key }, _) if StoredValue::is_parameters(&key) => {
                standby.front.effective.inherit_stream(None);
            }
            (SupervisorMessage::Removed { key }, _) => {
                StoredValue::model_name(&key)
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

/// A prepared front with the state stored by the serving front.
struct Standby {
    front: PreparedFront,
    settings: Option<Box<LoadedSettings>>,
    restored: RestoredModels,
}

impl Standby {
    fn apply(&mut self, key: &str, fds: Vec<std::os::fd::OwnedFd>) -> anyhow::Result<()> {
        match StoredValue::read(key, fds)? {
            StoredValue::Settings(settings) => self.set_settings(settings),
            StoredValue::Model(model) => self.restore(*model),
            StoredValue::Parameters(message) => {
                self.set_parameters(&message);
                Ok(())
            }
            StoredValue::Unloaded(names) => {
                self.restored.unloaded = names;
                Ok(())
            }
            StoredValue::Listeners(_) | StoredValue::Other => Ok(()),
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

    fn restore(&mut self, stored: StoredModel) -> anyhow::Result<()> {
        let StoredModel { model, record } = stored;
        let records = &mut self.restored.records;
        let known = records.get(&record.name);
        // The record of the same revision may have changed.
        if known.is_none_or(|known| known.revision() != record.revision()) {
            self.front.engine.restore(model, record.revision())?;
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
        control: ControlReceiver,
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
                    let mut status = ModelLoadStatus::new(
                        &model.name,
                        albacore_storage::redacted(&model.source),
                    );
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
