//! Revisions live as long as requests need them; views reflect each change.

use super::super::ModelInfo;
use super::*;
use crate::model::Usage;

fn revision(catalog: &mut Catalog, name: &str, slot: usize) -> Arc<ModelRevision> {
    Arc::new(ModelRevision {
        id: catalog.next_id(),
        slot,
        info: ModelInfo {
            name: name.to_owned(),
            features: 1,
            ..ModelInfo::default()
        },
        kernels: Default::default(),
        image: Arc::new(crate::image::PlacedImage::on(None)),
        usage: Usage::default(),
    })
}

fn retained(catalog: &Catalog) -> Vec<RevisionId> {
    catalog.retained().map(|revision| revision.id).collect()
}

#[test]
fn an_old_revision_lives_until_its_last_request_is_over() {
    let mut catalog = Catalog::default();
    let slot = catalog.declare("m").unwrap().slot;
    let old = revision(&mut catalog, "m", slot);
    assert!(catalog.promote(Arc::clone(&old)));
    assert!(old.usage.pin() && old.usage.pin());
    let new = revision(&mut catalog, "m", slot);
    assert!(catalog.promote(Arc::clone(&new)));
    assert_eq!(retained(&catalog), [old.id, new.id]);
    assert!(!old.usage.unpin() && !catalog.drop_unneeded());
    assert!(old.usage.unpin(), "the last one");
    assert!(catalog.drop_unneeded());
    assert_eq!(retained(&catalog), [new.id]);
    assert!(new.usage.pin());
    assert!(!new.usage.unpin(), "it is current");
    assert!(!old.usage.pin(), "it is retired");
}

#[test]
fn a_removed_model_keeps_its_slot_until_its_requests_are_over() {
    let mut catalog = Catalog::default();
    let slot = catalog.declare("a").unwrap().slot;
    let a = revision(&mut catalog, "a", slot);
    catalog.promote(Arc::clone(&a));
    assert!(a.usage.pin());
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
        !catalog.promote(revision(&mut Catalog::default(), "a", slot)),
        "removed"
    );
    assert!(a.usage.unpin() && catalog.drop_unneeded());
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
fn the_view_reflects_each_change_and_lists_models_that_are_not_loaded() {
    let mut catalog = Catalog::default();
    assert!(catalog.changed_view().is_none());
    let slot = catalog.declare("m").unwrap().slot;
    let view = catalog.changed_view().unwrap();
    let why = |view: &CatalogView, name| view.find(name).map(|_| ()).unwrap_err();
    assert_eq!(why(&view, "m"), ModelLookupError::NotLoaded);
    assert_eq!(why(&view, "n"), ModelLookupError::Unknown);
    let first = revision(&mut catalog, "m", slot);
    catalog.promote(Arc::clone(&first));
    let view = catalog.changed_view().unwrap();
    assert_eq!(view.find("m").unwrap().id, first.id);
    assert!(catalog.changed_view().is_none());
    catalog.keep_only(&[]);
    assert_eq!(
        why(&catalog.changed_view().unwrap(), "m"),
        ModelLookupError::Unknown
    );
    assert!(
        !first.usage.pin(),
        "a view that is out of date gives nothing"
    );
}

#[test]
fn an_unloaded_model_keeps_its_slot_and_its_running_requests() {
    let mut catalog = Catalog::default();
    let slot = catalog.declare("m").unwrap().slot;
    let first = revision(&mut catalog, "m", slot);
    catalog.promote(Arc::clone(&first));
    assert!(first.usage.pin());
    let before = catalog.changed_view().unwrap();
    catalog.unload("m");
    catalog.unload("nobody");
    assert!(before.find("m").is_ok() && !first.usage.pin());
    let view = catalog.changed_view().unwrap();
    let unloaded = Some(ModelLookupError::Unloaded);
    assert_eq!(view.find("m").err(), unloaded);
    assert_eq!(catalog.find("m").err(), unloaded);
    assert_eq!(retained(&catalog), [first.id], "requests run");
    assert!(!first.usage.unpin() && first.usage.unpin());
    assert!(catalog.drop_unneeded());
    assert_eq!(retained(&catalog), []);
    // Applying settings again changes nothing.
    assert!(!catalog.declare("m").unwrap().is_new);
    catalog.keep_only(&["m"]);
    assert_eq!(catalog.find("m").err(), unloaded);
    let second = revision(&mut catalog, "m", slot);
    assert!(catalog.promote(Arc::clone(&second)));
    assert_eq!(catalog.find("m").unwrap().id, second.id);
    catalog.unload("m");
    catalog.keep_only(&[]);
    catalog.declare("m").unwrap();
    assert_eq!(catalog.find("m").err(), Some(ModelLookupError::NotLoaded));
}

#[test]
fn slots_are_bounded() {
    let mut catalog = Catalog::default();
    for at in 0..SLOTS_MAX {
        let name = at.to_string();
        let slot = catalog.declare(&name).unwrap().slot;
        let revision = revision(&mut catalog, &name, slot);
        assert!(revision.usage.pin());
        catalog.promote(revision);
        catalog.keep_only(&[]);
    }
    assert_eq!(catalog.declare("more"), Err(ModelSlotsExhausted));
}
