//! A model that is only asked whether a request of it could be in time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::hold::Shared;
use super::request::ModelHandle;
use super::{Absent, Refusal};

/// A model as it is at this moment. Keeps nothing open in the workers, so that it costs less than a [`ModelHandle`], and
/// no request can be made of it.
#[derive(Debug)]
pub struct Glance(ModelHandle);

impl Glance {
    pub(super) fn new(shared: &Arc<Shared>, name: &str) -> Result<Self, Absent> {
        let edition = shared.state().catalog.served(name)?;
        Ok(Self(ModelHandle::unpinned(shared, edition)))
    }

    /// As [`ModelHandle::within`].
    #[must_use]
    pub fn within(self, time: Duration) -> Self {
        Self(self.0.within(time))
    }

    /// As [`ModelHandle::since`].
    #[must_use]
    pub fn since(self, arrival: Instant) -> Self {
        Self(self.0.since(arrival))
    }

    /// As [`ModelHandle::knock`].
    ///
    /// # Errors
    /// [`Refusal::Late`]; it is counted.
    pub fn knock(&self) -> Result<(), Refusal> {
        self.0.knock()
    }
}
