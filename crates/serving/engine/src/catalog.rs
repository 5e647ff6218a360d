//! Models by name, and their revisions that requests may still need.
//!
//! A model has a slot, which also determines its queues, and at most one current revision, which
//! new requests get. A revision is retained while it is current or pinned by a request, so that a
//! request is computed by a single revision, even if others are installed in the meantime.

use std::sync::Arc;

use albacore_worker::RevisionId;

use super::error::ModelLookupError;
use super::model::ModelRevision;
use crate::limits::SLOTS_MAX;

/// A slot for a model.
#[derive(Debug)]
struct ModelSlot {
    name: String,
    /// False after the model was removed; its requests may still be running.
    is_declared: bool,
    /// Whether it was unloaded by [`Catalog::unload`] and not loaded since.
    is_unloaded: bool,
    current: Option<Arc<ModelRevision>>,
}

impl ModelSlot {
    /// The revision for new requests.
    fn revision(&self) -> Result<&Arc<ModelRevision>, ModelLookupError> {
        self.current.as_ref().ok_or(match self.is_unloaded {
            true => ModelLookupError::Unloaded,
            false => ModelLookupError::NotLoaded,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) slot: usize,
    /// The slot was unused or belonged to another model.
    pub(super) is_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requests of too many removed models are still running: try again when they are done")]
pub struct ModelSlotsExhausted;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    slots: Vec<ModelSlot>,
    /// Every revision that a batch may use.
    retained: Vec<Arc<ModelRevision>>,
    last: RevisionId,
    /// Whether the models changed since the last [`Catalog::changed_view`].
    is_changed: bool,
}

/// The declared models by name, with their current revisions.
#[derive(Debug, Default)]
pub(super) struct CatalogView(Vec<(String, Result<Arc<ModelRevision>, ModelLookupError>)>);

impl CatalogView {
    /// The current revision of a model.
    pub(super) fn find(&self, name: &str) -> Result<&Arc<ModelRevision>, ModelLookupError> {
        let mut models = self.0.iter();
        let found = models.find(|(declared, _)| declared == name);
        let (_, revision) = found.ok_or(ModelLookupError::Unknown)?;
        revision.as_ref().map_err(|&absent| absent)
    }

    /// The name of the model, if there is only one.
    pub(super) fn single_model_name(&self) -> Option<&str> {
        match &self.0[..] {
            [(name, _)] => Some(name),
            _ => None,
        }
    }
}

impl Catalog {
    /// A catalog of the front with this number.
    pub(super) fn of_front(front: u64) -> Self {
        Self {
            last: RevisionId::first_of(front),
            ..Self::default()
        }
    }

    /// The identifier of the next revision.
    pub(super) fn next_id(&mut self) -> RevisionId {
        self.last = RevisionId(self.last.0 + 1);
        self.last
    }

    /// Number of slots, used or not.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// The slot of a declared model.
    pub(super) fn slot_of(&self, name: &str) -> Option<usize> {
        let mut slots = self.slots.iter();
        slots.position(|slot| slot.is_declared && slot.name == name)
    }

    /// Slots and names of declared models.
    pub(super) fn declared(&self) -> impl Iterator<Item = (usize, &str)> {
        let slots = self.slots.iter().enumerate();
        slots
            .filter(|(_, slot)| slot.is_declared)
            .map(|(at, slot)| (at, slot.name.as_str()))
    }

    /// Current revisions, by slot.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<ModelRevision>> {
        self.slots.iter().filter_map(|slot| slot.current.as_ref())
    }

    /// The current revision of a slot.
    pub(super) fn current_of(&self, slot: usize) -> Option<&Arc<ModelRevision>> {
        self.slots.get(slot)?.current.as_ref()
    }

    /// The current revision of a model.
    pub(super) fn find(&self, name: &str) -> Result<&Arc<ModelRevision>, ModelLookupError> {
        let slot = self.slot_of(name).and_then(|slot| self.slots.get(slot));
        slot.ok_or(ModelLookupError::Unknown)?.revision()
    }

    /// Every revision that a batch may use.
    pub(super) fn retained(&self) -> impl Iterator<Item = &Arc<ModelRevision>> {
        self.retained.iter()
    }

    /// The models, if they changed since the last call.
    pub(super) fn changed_view(&mut self) -> Option<CatalogView> {
        if !std::mem::take(&mut self.is_changed) {
            return None;
        }
        let declared = self.slots.iter().filter(|slot| slot.is_declared);
        let models = declared.map(|slot| (slot.name.clone(), slot.revision().cloned()));
        Some(CatalogView(models.collect()))
    }

    /// Declares a model; a slot is reused once no request uses a revision in it.
    pub(super) fn declare(&mut self, name: &str) -> Result<Declared, ModelSlotsExhausted> {
        if let Some(slot) = self.slot_of(name) {
            let is_new = false;
            return Ok(Declared { slot, is_new });
        }
        let is_free = |(at, slot): &(usize, &ModelSlot)| {
            let is_held = self.retained.iter().any(|revision| revision.slot == *at);
            !slot.is_declared && !is_held
        };
        let free = self.slots.iter().enumerate().find(is_free);
        let slot = free.map_or(self.slots.len(), |(at, _)| at);
        if slot >= SLOTS_MAX {
            return Err(ModelSlotsExhausted);
        }
        let declared = ModelSlot {
            name: name.to_owned(),
            is_declared: true,
            is_unloaded: false,
            current: None,
        };
        match self.slots.get_mut(slot) {
            Some(free) => *free = declared,
            None => self.slots.push(declared),
        }
        self.is_changed = true;
        let is_new = true;
        Ok(Declared { slot, is_new })
    }

    /// Removes models with other names.
    pub(super) fn keep_only(&mut self, names: &[&str]) {
        for slot in &mut self.slots {
            if slot.is_declared && !names.contains(&slot.name.as_str()) {
                slot.is_declared = false;
                self.is_changed = true;
                if let Some(revision) = slot.current.take() {
                    revision.usage.retire();
                }
            }
        }
        self.drop_unneeded();
    }

    /// Removes the current revision of a declared model, until another one is promoted.
    pub(super) fn unload(&mut self, name: &str) {
        let slot = self.slot_of(name).and_then(|slot| self.slots.get_mut(slot));
        let Some(slot) = slot else {
            return;
        };
        slot.is_unloaded = true;
        self.is_changed = true;
        if let Some(revision) = slot.current.take() {
            revision.usage.retire();
        }
        self.drop_unneeded();
    }

    /// Makes a revision the current one. Returns false if its model was removed.
    pub(super) fn promote(&mut self, revision: Arc<ModelRevision>) -> bool {
        let Some(slot) = self.slots.get_mut(revision.slot) else {
            return false;
        };
        if !slot.is_declared || slot.name != revision.info.name {
            return false;
        }
        if let Some(before) = slot.current.replace(Arc::clone(&revision)) {
            before.usage.retire();
        }
        slot.is_unloaded = false;
        self.retained.push(revision);
        self.is_changed = true;
        self.drop_unneeded();
        true
    }

    /// Drops retired revisions without pins; returns whether there were any.
    pub(super) fn drop_unneeded(&mut self) -> bool {
        let before = self.retained.len();
        self.retained.retain(|revision| revision.usage.is_needed());
        self.retained.len() < before
    }
}

#[cfg(test)]
mod tests;
