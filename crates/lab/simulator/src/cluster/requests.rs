//! Requests that are not finished, and the batches that run.

use albacore_batching::Nanos;

/// Where a request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Between client and pods, or in a batch.
    Elsewhere,
    /// In the queue of this cell.
    Waiting { cell: usize },
}

#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) model: usize,
    /// When the client sent it.
    pub(super) sent: Nanos,
    pub(super) router: usize,
    /// The pod that its router counts it at.
    pub(super) routed: Option<usize>,
    pub(super) place: Place,
    pub(super) is_measured: bool,
    pub(super) is_forwarded: bool,
    pub(super) is_resent: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Batch {
    pub(super) cell: usize,
    pub(super) pod: usize,
    pub(super) requests: Vec<usize>,
    /// Its pod failed: it has no requests any more.
    pub(super) is_lost: bool,
}

/// Values with numbers that are used again.
#[derive(Debug)]
pub(super) struct Numbered<T> {
    values: Vec<Option<T>>,
    unused: Vec<usize>,
}

impl<T> Default for Numbered<T> {
    fn default() -> Self {
        Self {
            values: Vec::new(),
            unused: Vec::new(),
        }
    }
}

impl<T> Numbered<T> {
    pub(super) fn add(&mut self, value: T) -> usize {
        match self.unused.pop() {
            Some(number) => {
                self.values[number] = Some(value);
                number
            }
            None => {
                self.values.push(Some(value));
                self.values.len() - 1
            }
        }
    }

    pub(super) fn get(&self, number: usize) -> Option<&T> {
        self.values.get(number)?.as_ref()
    }

    pub(super) fn get_mut(&mut self, number: usize) -> Option<&mut T> {
        self.values.get_mut(number)?.as_mut()
    }

    pub(super) fn remove(&mut self, number: usize) -> Option<T> {
        let value = self.values.get_mut(number)?.take()?;
        self.unused.push(number);
        Some(value)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.values.len() == self.unused.len()
    }

    /// The numbers of the values that `is_asked` accepts.
    pub(super) fn numbers(&self, is_asked: impl Fn(&T) -> bool) -> Vec<usize> {
        let values = self.values.iter().enumerate();
        let asked = values.filter(|(_, value)| value.as_ref().is_some_and(&is_asked));
        asked.map(|(number, _)| number).collect()
    }
}
