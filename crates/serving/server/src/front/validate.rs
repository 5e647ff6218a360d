//! Validates requests of both protocols: model, version, rows, outputs.
//!
//! A request has one input tensor of shape `[rows, features]` and names its outputs; the default is
//! `output`. A tensor of shape `[features]` is rejected, because it is ambiguous for a model with
//! one feature: one row or many rows.

use super::limits::{BODY_BYTES_MAX, TEXT_PER_BYTE};
use super::request_error::{ErrorKind, RequestError};
use albacore_connections::limits::REPLY_BYTES_MAX;
use albacore_engine::{
    Engine, Kind, KindSet, LoopIndex, ModelHandle, ModelInfo, ModelLookupError, OutputInfo, Reply,
};
pub(super) use albacore_extensions::tensors::{INPUT, VERSION, input_datatype, output_name};
use albacore_extensions::{Classification, RegionSlice, SharedMemoryRegions};
use albacore_rows::columns::{BinarySize, ColumnKind};
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::{self, LABEL};
use albacore_rows::{ColumnOrder, InvalidRows};
use albacore_values::sentence;

/// Looks up a model for a request in `event_loop`; an empty version matches any.
pub(super) fn find_model(
    engine: &Engine,
    event_loop: LoopIndex,
    name: &str,
    version: &str,
) -> Result<ModelHandle, RequestError> {
    let model = engine
        .model_on(event_loop, name)
        .map_err(|absent| match absent {
            ModelLookupError::NotLoaded => {
                let message =
                    format!("model {name:?} is not loaded yet: send the request again later");
                RequestError::new(ErrorKind::Unavailable, message)
            }
            ModelLookupError::Unloaded => {
                let message = format!("model {name:?} is unloaded; load it first");
                RequestError::new(ErrorKind::NotFound, message)
            }
            ModelLookupError::Unknown => {
                let (name, names) = (excerpt(name), engine.names());
                let message =
                    format!("model {name:?} is not served here: this server has {names:?}");
                RequestError::new(ErrorKind::NotFound, message)
            }
        })?;
    if version.is_empty() || version == VERSION {
        return Ok(model);
    }
    Err(RequestError::new(
        ErrorKind::NotFound,
        format!(
            "model {name:?} has no version {:?}; the only version is \"{VERSION}\"",
            excerpt(version)
        ),
    ))
}

/// The input tensor as declared in the request, without its data.
pub(super) struct DeclaredTensor<'a> {
    pub(super) datatype: &'a str,
    pub(super) shape: &'a [i64],
}

/// Checks the input tensor, whose columns are those of the model or of `order`; returns its data
/// type and number of rows (at least one). Its name is ignored: there is only one input, and
/// clients of other servers use other names.
pub(super) fn check_input(
    model: &ModelInfo,
    declared: &DeclaredTensor<'_>,
    order: Option<&ColumnOrder>,
) -> Result<(Datatype, usize), RequestError> {
    let datatype = Datatype::from_name(declared.datatype).ok_or_else(|| {
        let names = Datatype::NAMES.map(|(_, name)| name);
        RequestError::invalid(format!(
            "input {INPUT:?} has datatype {:?}; supported are {}; send category strings as \
             separate inputs, one for each column",
            excerpt(declared.datatype),
            names.join(" ")
        ))
    })?;
    let features = model.features;
    let width = order.map_or(features, ColumnOrder::width);
    let rows = match *declared.shape {
        [rows, columns] if i64::try_from(width) == Ok(columns) => usize::try_from(rows).ok(),
        _ => None,
    };
    match rows {
        Some(rows) if rows > 0 && rows.checked_mul(features.max(1) * 8).is_some() => {
            Ok((datatype, rows))
        }
        _ => Err(RequestError::invalid(format!(
            "input {INPUT:?} has shape {:?}; {} takes [rows, {width}] with at least one row",
            declared.shape,
            match order {
                Some(_) => "a tensor of named columns".to_owned(),
                None => format!("model {:?}", model.name),
            }
        ))),
    }
}

/// A requested output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequestedOutput {
    pub(super) kind: Kind,
    /// As bytes rather than as JSON text or typed lists.
    pub(super) binary: bool,
    pub(super) form: OutputForm,
}

impl RequestedOutput {
    /// Name of the output in the reply.
    fn name(&self) -> &'static str {
        match self.form {
            OutputForm::Labels => LABEL,
            _ => output_name(self.kind),
        }
    }
}

/// Form of an output in the reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum OutputForm {
    Values,
    /// This number of most likely classes per row.
    Classes(usize),
    /// The name of the predicted class of each row.
    Labels,
    /// Values are written to this slice of shared memory.
    Region(RegionSlice),
}

/// Collects and checks the requested outputs.
pub(super) struct OutputSelection<'a> {
    model: &'a ModelInfo,
    outputs: Vec<RequestedOutput>,
    kinds: KindSet,
}

impl<'a> OutputSelection<'a> {
    /// An empty selection.
    pub(super) fn new(model: &'a ModelInfo) -> Self {
        Self {
            model,
            outputs: Vec::new(),
            kinds: KindSet::EMPTY,
        }
    }

    /// Adds the values of the output called `name`.
    pub(super) fn add(&mut self, name: &str, binary: bool) -> Result<(), RequestError> {
        self.add_as(name, binary, OutputForm::Values)
    }

    /// Adds the output called `name` in the given form.
    pub(super) fn add_as(
        &mut self,
        name: &str,
        binary: bool,
        form: OutputForm,
    ) -> Result<(), RequestError> {
        let model = self.model;
        if name == LABEL && model.class_names.is_some() {
            return match form {
                OutputForm::Values => self.push(Kind::Value, binary, OutputForm::Labels),
                _ => Err(RequestError::invalid(format!(
                    "output {LABEL:?} is text: it has no classification and is not written to \
                     shared memory"
                ))),
            };
        }
        let found = model
            .outputs
            .iter()
            .find(|output| output_name(output.kind) == name);
        let Some(&OutputInfo { kind, .. }) = found else {
            let names = model.outputs.iter().map(|o| output_name(o.kind));
            let label = model.class_names.is_some().then_some(LABEL);
            let names: Vec<_> = names.chain(label).collect();
            return Err(RequestError::invalid(format!(
                "output {:?} is unknown: model {:?} has {names:?}",
                excerpt(name),
                model.name
            )));
        };
        self.push(kind, binary, form)
    }

    fn push(&mut self, kind: Kind, binary: bool, form: OutputForm) -> Result<(), RequestError> {
        let added = RequestedOutput { kind, binary, form };
        let is_same = |other: &RequestedOutput| other.name() == added.name();
        if self.outputs.iter().any(is_same) {
            return Err(RequestError::invalid(format!(
                "output {:?} is requested twice",
                added.name()
            )));
        }
        self.kinds = self.kinds.with(kind);
        self.outputs.push(added);
        Ok(())
    }

    /// Returns the selected outputs. The default is the value, and the label if the classes of the
    /// model have names.
    pub(super) fn or_default(self, binary: bool) -> (Vec<RequestedOutput>, KindSet) {
        let has_label = self.outputs.is_empty() && self.model.class_names.is_some();
        let (mut outputs, kinds) = self.or_value(binary);
        if has_label {
            outputs.push(RequestedOutput {
                kind: Kind::Value,
                binary,
                form: OutputForm::Labels,
            });
        }
        (outputs, kinds)
    }

    /// Returns the selected outputs; the default is the value.
    pub(super) fn or_value(mut self, binary: bool) -> (Vec<RequestedOutput>, KindSet) {
        if self.outputs.is_empty() {
            self.outputs.push(RequestedOutput {
                kind: Kind::Value,
                binary,
                form: OutputForm::Values,
            });
            self.kinds = KindSet::only(Kind::Value);
        }
        (self.outputs, self.kinds)
    }
}

/// Rejects a request whose reply would be too large.
pub(super) fn check_reply_size(
    model: &ModelInfo,
    rows: usize,
    outputs: &[RequestedOutput],
) -> Result<(), RequestError> {
    let mut bytes = 0_usize;
    for requested in outputs {
        let Some(output) = model.output(requested.kind) else {
            continue;
        };
        let text = if requested.binary { 1 } else { TEXT_PER_BYTE };
        let row = match &requested.form {
            OutputForm::Values => output.row_bytes().saturating_mul(text),
            OutputForm::Classes(limit) => {
                let count = Classification::count(output, *limit);
                Classification::row_bytes(model, output, count)
            }
            OutputForm::Labels => {
                let classes = model.class_names.as_ref();
                classes
                    .map_or(0, labels::row_bytes_max)
                    .saturating_mul(text)
            }
            OutputForm::Region(slice) => {
                check_region(output, rows, slice)?;
                output.row_bytes()
            }
        };
        bytes = bytes.saturating_add(row.saturating_mul(rows));
    }
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    Err(RequestError::new(
        ErrorKind::TooLarge,
        format!(
            "the reply to {rows} rows would have about {bytes} bytes, more than {REPLY_BYTES_MAX}: \
             send fewer rows at once, or ask for binary data, which takes a third"
        ),
    ))
}

/// Rejects an output that does not fit into its slice of shared memory.
fn check_region(output: &OutputInfo, rows: usize, slice: &RegionSlice) -> Result<(), RequestError> {
    let (need, have) = (output.row_bytes().saturating_mul(rows), slice.len());
    if need <= have {
        return Ok(());
    }
    Err(RequestError::invalid(format!(
        "output {:?} of {rows} rows has {need} bytes, but its shared_memory_byte_size in region \
         {:?} is {have}",
        output_name(output.kind),
        slice.region()
    )))
}

/// Writes the outputs requested in shared memory.
pub(super) fn write_regions(
    outputs: &[RequestedOutput],
    reply: &Reply,
) -> Result<(), RequestError> {
    for output in outputs {
        if let OutputForm::Region(slice) = &output.form {
            slice.write(reply.output(output.kind).unwrap_or_default())?;
        }
    }
    Ok(())
}

/// Shared memory parameters of a tensor.
#[derive(Default)]
pub(super) struct RegionParameters<'a> {
    pub(super) region: Option<&'a str>,
    pub(super) byte_size: Option<u64>,
    pub(super) offset: Option<u64>,
}

impl RegionParameters<'_> {
    /// Finds the slice; `None` if no region is named. `tensor` is the name for errors.
    pub(super) fn find(
        &self,
        regions: &SharedMemoryRegions,
        tensor: &str,
    ) -> Result<Option<RegionSlice>, RequestError> {
        let Some(region) = self.region else {
            return Ok(None);
        };
        let of_tensor =
            |problem: &dyn std::fmt::Display| format!("{:?}: {problem}", excerpt(tensor));
        let bytes = self.byte_size.ok_or_else(|| {
            let problem = "shared_memory_region needs shared_memory_byte_size";
            RequestError::invalid(of_tensor(&problem))
        })?;
        let slice = regions.slice(region, self.offset.unwrap_or_default(), bytes);
        slice.map(Some).map_err(|error| {
            let error = RequestError::from(error);
            RequestError {
                message: of_tensor(&error.message).into(),
                ..error
            }
        })
    }
}

/// Rejects an input in shared memory that is not of size `need`, or that also has data in the
/// request. The event loop reads it, so it must not be larger than a body.
pub(super) fn check_shared(
    need: BinarySize,
    has_data: bool,
    slice: &RegionSlice,
) -> Result<(), RequestError> {
    let have = slice.len();
    let (BinarySize::Exact(least) | BinarySize::AtLeast(least)) = need;
    if least.max(have) > BODY_BYTES_MAX {
        return Err(RequestError::body_too_large(least.max(have) as u64));
    }
    match (has_data, need.admits(have)) {
        (false, true) => Ok(()),
        (true, _) => Err(RequestError::invalid(
            "an input has both data and shared_memory_region; send one of them",
        )),
        (false, false) => Err(RequestError::invalid(format!(
            "an input needs {need} bytes for its shape; its shared_memory_byte_size in region {:?} \
             is {have}",
            slice.region()
        ))),
    }
}

/// Reads the values of a tensor in shared memory.
pub(super) fn write_shared(
    slice: &RegionSlice,
    kind: &ColumnKind,
    memory: &mut [u8],
) -> Result<(), InvalidRows> {
    let bytes = slice
        .read()
        .map_err(|error| InvalidRows::new(sentence(&error)))?;
    kind.write_bytes(&bytes, memory)
}

/// Form of an output according to its parameters. `classes` is the value of `classification`, if
/// present; its inner value is `None` if it is not an integer.
pub(super) fn output_form(
    name: &str,
    classes: Option<Option<u64>>,
    slice: Option<RegionSlice>,
) -> Result<OutputForm, RequestError> {
    let refusal = |problem| {
        let name = excerpt(name);
        RequestError::invalid(format!("output {name:?}: {problem}"))
    };
    match (classes, slice) {
        (None, None) => Ok(OutputForm::Values),
        (None, Some(slice)) => Ok(OutputForm::Region(slice)),
        (Some(_), Some(_)) => Err(refusal(
            "classes are not written to shared memory; ask for either classification or \
             shared_memory_region",
        )),
        (Some(Some(limit)), None) if limit > 0 => Ok(OutputForm::Classes(
            usize::try_from(limit).unwrap_or(usize::MAX),
        )),
        (Some(_), None) => Err(refusal(
            "parameter \"classification\" is not a number of classes: send a whole number from 1",
        )),
    }
}

/// Returns the beginning of a client's text, short enough for an error message.
pub(super) fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
