//! API calls that load and unload models, as handled by the thread that loads models.

use std::collections::BTreeSet;

use super::watch_loop::WatchLoop;
use crate::events::{ServerEvent, emit};
use crate::model_control::ModelCall;

impl WatchLoop {
    /// Accepts a call. A call for a model that has been removed is dropped, which sends its reply.
    pub(super) fn accept_call(&mut self, call: ModelCall) {
        let mut models = self.models.iter_mut();
        if let Some(model) = models.find(|model| model.settings.name == call.model()) {
            model.accept_call(call);
        }
    }

    /// Unloads the models for which an unload call is pending and no load is running.
    pub(super) fn process_unload_calls(&mut self) {
        let models = self.models.iter_mut();
        let calls: Vec<ModelCall> = models
            .filter_map(|model| model.take_unload_call())
            .collect();
        for call in calls {
            if self.unload(call.model()) {
                self.handover.store_unloaded(&self.unloaded());
                self.handover.remove_model(call.model());
                let model = call.model().to_owned();
                emit(&ServerEvent::ModelUnloaded { model });
            }
            call.reply(Ok(()));
        }
    }

    /// Unloads a model; returns false if it was already unloaded.
    pub(super) fn unload(&mut self, name: &str) -> bool {
        let mut models = self.models.iter_mut();
        let Some(model) = models.find(|model| model.settings.name == name) else {
            return false;
        };
        let is_changed = !model.is_unloaded;
        model.unload();
        self.context.engine.unload(name);
        self.status.update(|status| {
            let mut models = status.models.iter_mut();
            if let Some(status) = models.find(|status| status.name == name) {
                status.set_unloaded();
            }
        });
        is_changed
    }

    /// Returns the names of the models unloaded by API calls.
    pub(super) fn unloaded(&self) -> BTreeSet<String> {
        let models = self.models.iter().filter(|model| model.is_unloaded);
        models.map(|model| model.settings.name.clone()).collect()
    }
}
