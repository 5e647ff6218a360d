//! The way of one request through the engine: reserve, fill, submit, reply.

use std::{future::Future, time::Duration};

use super::{ElementType, Failure, Kind, KindSet, ModelIndex, ModelInfo, Refusal, Stats};

/// The engine: owns memory, queues, batches and workers.
#[derive(Debug)]
pub struct Engine {
    models: Vec<ModelInfo>,
    stats: Stats,
}

impl Engine {
    /// The loaded models, in the order of the command line.
    #[must_use]
    pub fn models(&self) -> &[ModelInfo] {
        &self.models
    }

    /// The index of the model called `name`.
    #[must_use]
    pub fn model_index(&self, name: &str) -> Option<ModelIndex> {
        self.models
            .iter()
            .position(|model| model.name == name)
            .map(ModelIndex)
    }

    /// Takes room for `rows` rows of `element` ([`ElementType::F32`] or [`ElementType::F64`]) and for
    /// the outputs `kinds`, and counts the rows against the queue's bound.
    ///
    /// # Errors
    /// A [`Refusal`]; nothing is kept then.
    pub fn reserve(
        &self,
        model: ModelIndex,
        rows: usize,
        element: ElementType,
        kinds: KindSet,
    ) -> Result<Reservation, Refusal> {
        let _ = (model, rows, element, kinds);
        Err(Refusal::NoWorkers {
            retry_after: Duration::from_secs(1),
        })
    }

    /// Whether requests can be answered: every worker was up once, at least one is, no drain.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        false
    }

    /// A snapshot for `/metrics`.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats.clone()
    }
}

/// Room for one request's rows and results. Dropping it gives the room back.
#[derive(Debug)]
pub struct Reservation {
    input: Vec<u8>,
}

impl Reservation {
    /// The rows, row-major, little-endian elements; all of it must be written before `submit`.
    /// Starts at a multiple of 64 bytes.
    pub fn input_mut(&mut self) -> &mut [u8] {
        &mut self.input
    }

    /// Queues the rows (at once, not at the first poll) and resolves to the reply.
    ///
    /// Dropping the future is safe: the rows leave the queue, or their results are thrown away.
    pub fn submit(self) -> impl Future<Output = Result<Reply, Failure>> + Send + 'static {
        std::future::ready(Err(Failure::Stopped))
    }
}

/// How long the parts of a reply took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Timing {
    /// Submit to dispatch.
    pub queue: Duration,
    /// In the worker's compute threads.
    pub compute: Duration,
}

/// The results of one request, in shared memory. Dropping it gives the memory back.
#[derive(Debug)]
pub struct Reply {
    timing: Timing,
}

impl Reply {
    /// The output of `kind`, row-major, little-endian elements as [`super::OutputInfo`] describes;
    /// `None` if the request did not ask for it.
    #[must_use]
    pub fn output(&self, kind: Kind) -> Option<&[u8]> {
        let _ = kind;
        None
    }

    /// How long the parts took.
    #[must_use]
    pub fn timing(&self) -> Timing {
        self.timing
    }
}
