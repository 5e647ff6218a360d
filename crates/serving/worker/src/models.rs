//! The open images of this worker, by revision. Each is mapped and used in place.

use std::os::fd::OwnedFd;
use std::sync::{RwLock, RwLockReadGuard};

use albacore_os::{ReadMapping, SharedMemory};
use albacore_trees::{ElementType, Predictor};
use self_cell::self_cell;

use crate::command::{RevisionId, WorkerCommand};
use crate::kind::KindSet;
use crate::layout::{OutputInfo, outputs_of};
use crate::ring::Segment;

pub(super) struct OpenModel<'a> {
    pub(super) predictor: Predictor<'a>,
    pub(super) outputs: Vec<OutputInfo>,
}

impl OpenModel<'_> {
    /// Bytes of a row of a segment.
    pub(super) fn row_bytes(&self, segment: &Segment) -> usize {
        let element = match segment.is_double {
            true => ElementType::F64,
            false => ElementType::F32,
        };
        self.predictor.features() * element.bytes()
    }

    /// The outputs of the model that are in `kinds`.
    pub(super) fn outputs_of(&self, kinds: KindSet) -> impl Iterator<Item = &OutputInfo> + Clone {
        let outputs = self.outputs.iter();
        outputs.filter(move |output| kinds.contains(output.kind))
    }
}

self_cell!(
    /// A mapping and the model that borrows from it.
    struct ModelMapping {
        owner: ReadMapping,
        #[covariant]
        dependent: OpenModel,
    }
);

/// The models of one worker. Rank 0 changes them between two batches, so the lock is never
/// contended while a batch runs.
#[derive(Default)]
pub(super) struct Models(RwLock<ImageTable>);

/// The images, sorted by revision.
#[derive(Default)]
pub(super) struct ImageTable(Vec<(RevisionId, ModelMapping)>);

impl Models {
    /// Locks the images for one batch.
    pub(super) fn table(&self) -> RwLockReadGuard<'_, ImageTable> {
        self.0.read().unwrap_or_else(|error| error.into_inner())
    }

    /// Closes and opens images as commanded; `image` was passed with the command.
    pub(super) fn execute(
        &self,
        command: &WorkerCommand,
        image: Option<OwnedFd>,
    ) -> Result<(), String> {
        {
            let mut table = self.0.write().unwrap_or_else(|error| error.into_inner());
            table.0.retain(|(id, _)| !command.closes.contains(id));
        }
        let Some((id, kinds)) = command.opens else {
            return Ok(());
        };
        let fd = image.ok_or("the command has no model image")?;
        let open = open(fd, KindSet::from_bits(kinds))?;
        let mut table = self.0.write().unwrap_or_else(|error| error.into_inner());
        table.0.retain(|(known, _)| *known != id);
        table.0.push((id, open));
        table.0.sort_by_key(|&(id, _)| id);
        Ok(())
    }
}

impl ImageTable {
    #[cfg(test)]
    pub(super) fn of(id: RevisionId, image: SharedMemory, kinds: KindSet) -> Result<Self, String> {
        let fd = std::os::fd::AsFd::as_fd(&image).try_clone_to_owned();
        let fd = fd.map_err(|error| error.to_string())?;
        Ok(Self(vec![(id, open(fd, kinds)?)]))
    }

    pub(super) fn revisions(&self) -> impl Iterator<Item = RevisionId> {
        self.0.iter().map(|&(id, _)| id)
    }

    pub(super) fn get(&self, id: RevisionId) -> Option<&OpenModel<'_>> {
        let index = self.0.binary_search_by_key(&id, |&(id, _)| id).ok()?;
        self.0.get(index).map(|(_, open)| open.borrow_dependent())
    }
}

fn open(fd: OwnedFd, kinds: KindSet) -> Result<ModelMapping, String> {
    let memory = SharedMemory::open(fd).map_err(|error| error.to_string())?;
    let mapping = memory.map_read().map_err(|error| error.to_string())?;
    ModelMapping::try_new(mapping, |mapping| {
        let predictor = Predictor::open(mapping.as_slice()).map_err(|error| error.to_string())?;
        Ok(OpenModel {
            outputs: outputs_of(&predictor, kinds),
            predictor,
        })
    })
}
