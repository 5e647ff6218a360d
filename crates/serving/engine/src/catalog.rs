//! The models by name, and the editions of them that requests may still need.
//!
//! A model has a slot, which also determines its queues, and at most one current edition: the one
//! that new requests get. An edition is retained while it is current or pinned by a request, so
//! that a request is computed by one edition, whatever is installed meanwhile.

use std::sync::Arc;

use super::model::Edition;
use crate::command::EditionId;
use crate::limits::SLOTS_MAX;

/// A place for a model.
#[derive(Debug)]
struct ModelSlot {
    name: String,
    /// False once the model was removed; its requests may still run.
    is_declared: bool,
    current: Option<Arc<Edition>>,
}

/// An edition that a batch may name.
#[derive(Debug)]
struct RetainedEdition {
    edition: Arc<Edition>,
    /// Requests that name it.
    pins: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    pub(super) slot: usize,
    /// The slot was unused or belonged to another model.
    pub(super) is_new: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("requests of too many removed models are still running: try again when they are done")]
pub struct NoSlot;

#[derive(Debug, Default)]
pub(super) struct Catalog {
    slots: Vec<ModelSlot>,
    retained: Vec<RetainedEdition>,
    last: u64,
}

impl Catalog {
    /// The identifier of the next edition.
    pub(super) fn next_id(&mut self) -> EditionId {
        self.last += 1;
        EditionId(self.last)
    }

    /// How many slots there are, used or not.
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

    /// Current editions, by slot.
    pub(super) fn current(&self) -> impl Iterator<Item = &Arc<Edition>> {
        self.slots.iter().filter_map(|slot| slot.current.as_ref())
    }

    /// The current edition of a slot.
    pub(super) fn current_of(&self, slot: usize) -> Option<&Arc<Edition>> {
        self.slots.get(slot)?.current.as_ref()
    }

    /// Every edition that a batch may name.
    pub(super) fn retained(&self) -> impl Iterator<Item = &Arc<Edition>> {
        self.retained.iter().map(|retained| &retained.edition)
    }

    /// Declares a model; a slot is reused once no request names an edition of it.
    pub(super) fn declare(&mut self, name: &str) -> Result<Declared, NoSlot> {
        if let Some(slot) = self.slot_of(name) {
            let is_new = false;
            return Ok(Declared { slot, is_new });
        }
        let is_free = |(at, slot): &(usize, &ModelSlot)| {
            let is_held = self
                .retained
                .iter()
                .any(|retained| retained.edition.slot == *at);
            !slot.is_declared && !is_held
        };
        let free = self.slots.iter().enumerate().find(is_free);
        let slot = free.map_or(self.slots.len(), |(at, _)| at);
        if slot >= SLOTS_MAX {
            return Err(NoSlot);
        }
        let declared = ModelSlot {
            name: name.to_owned(),
            is_declared: true,
            current: None,
        };
        match self.slots.get_mut(slot) {
            Some(free) => *free = declared,
            None => self.slots.push(declared),
        }
        let is_new = true;
        Ok(Declared { slot, is_new })
    }

    /// Removes the models with other names.
    pub(super) fn keep_only(&mut self, names: &[&str]) {
        for slot in &mut self.slots {
            if slot.is_declared && !names.contains(&slot.name.as_str()) {
                slot.is_declared = false;
                slot.current = None;
            }
        }
        self.drop_unneeded();
    }

    /// Makes an edition the current one. False if its model was removed.
    pub(super) fn promote(&mut self, edition: Arc<Edition>) -> bool {
        let Some(slot) = self.slots.get_mut(edition.slot) else {
            return false;
        };
        if !slot.is_declared || slot.name != edition.info.name {
            return false;
        }
        slot.current = Some(Arc::clone(&edition));
        self.retained.push(RetainedEdition { edition, pins: 0 });
        self.drop_unneeded();
        true
    }

    /// Pins the current edition for a request.
    pub(super) fn pin(&mut self, id: EditionId) {
        if let Some(retained) = self
            .retained
            .iter_mut()
            .find(|retained| retained.edition.id == id)
        {
            retained.pins += 1;
        }
    }

    /// Releases a request's pin; returns whether the edition is no longer retained.
    pub(super) fn unpin(&mut self, id: EditionId) -> bool {
        let Some(at) = self
            .retained
            .iter()
            .position(|retained| retained.edition.id == id)
        else {
            return false;
        };
        self.retained[at].pins = self.retained[at].pins.saturating_sub(1);
        if self.retained[at].pins > 0 || self.is_current(&self.retained[at].edition) {
            return false;
        }
        self.retained.swap_remove(at);
        true
    }

    fn is_current(&self, edition: &Edition) -> bool {
        let current = self.current_of(edition.slot);
        current.is_some_and(|current| current.id == edition.id)
    }

    fn drop_unneeded(&mut self) {
        let mut retained = std::mem::take(&mut self.retained);
        retained.retain(|retained| retained.pins > 0 || self.is_current(&retained.edition));
        self.retained = retained;
    }
}

#[cfg(test)]
mod tests {
    use albacore_os::SharedMemory;

    use super::super::ModelInfo;
    use super::*;

    fn edition(catalog: &mut Catalog, name: &str, slot: usize) -> Arc<Edition> {
        Arc::new(Edition {
            id: catalog.next_id(),
            slot,
            info: ModelInfo {
                name: name.to_owned(),
                features: 1,
                ..ModelInfo::default()
            },
            kernels: Default::default(),
            image: SharedMemory::holding("test", b"image").unwrap(),
        })
    }

    fn retained(catalog: &Catalog) -> Vec<EditionId> {
        catalog.retained().map(|edition| edition.id).collect()
    }

    #[test]
    fn an_old_edition_lives_until_its_last_request_is_over() {
        let mut catalog = Catalog::default();
        let slot = catalog.declare("m").unwrap().slot;
        let old = edition(&mut catalog, "m", slot);
        assert!(catalog.promote(Arc::clone(&old)));
        catalog.pin(old.id);
        catalog.pin(old.id);
        let new = edition(&mut catalog, "m", slot);
        assert!(catalog.promote(Arc::clone(&new)));
        assert_eq!(retained(&catalog), [old.id, new.id]);
        assert!(!catalog.unpin(old.id));
        assert!(catalog.unpin(old.id), "the last one");
        assert_eq!(retained(&catalog), [new.id]);
        catalog.pin(new.id);
        assert!(!catalog.unpin(new.id), "it is current");
        assert!(!catalog.unpin(old.id), "it is gone");
    }

    #[test]
    fn a_removed_model_keeps_its_slot_until_its_requests_are_over() {
        let mut catalog = Catalog::default();
        let slot = catalog.declare("a").unwrap().slot;
        let a = edition(&mut catalog, "a", slot);
        catalog.promote(Arc::clone(&a));
        catalog.pin(a.id);
        catalog.keep_only(&["b"]);
        assert_eq!(catalog.slot_of("a"), None);
        assert_eq!(
            catalog.declare("b").unwrap(),
            Declared {
                slot: 1,
                is_new: true
            }
        );
        assert_eq!(
            catalog.declare("b").unwrap(),
            Declared {
                slot: 1,
                is_new: false
            }
        );
        assert!(
            !catalog.promote(edition(&mut Catalog::default(), "a", slot)),
            "removed"
        );
        assert!(catalog.unpin(a.id));
        assert_eq!(
            catalog.declare("c").unwrap(),
            Declared {
                slot: 0,
                is_new: true
            }
        );
        assert_eq!(catalog.declared().collect::<Vec<_>>(), [(0, "c"), (1, "b")]);
        assert_eq!(catalog.current().count(), 0);
    }

    #[test]
    fn slots_are_bounded() {
        let mut catalog = Catalog::default();
        for at in 0..SLOTS_MAX {
            let name = at.to_string();
            let slot = catalog.declare(&name).unwrap().slot;
            let edition = edition(&mut catalog, &name, slot);
            let id = edition.id;
            catalog.promote(edition);
            catalog.pin(id);
            catalog.keep_only(&[]);
        }
        assert_eq!(catalog.declare("more"), Err(NoSlot));
    }
}
