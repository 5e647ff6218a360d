//! Validates what a request asks for, over both protocols: model, version, rows, outputs.
//!
//! A request has one input tensor of shape `[rows, features]`, and names its outputs; `output` is
//! the default. A tensor of shape `[features]` is refused, since it is ambiguous for a model with
//! one feature: one row or many.

use super::limits::TEXT_PER_BYTE;
use super::request_error::{ErrorKind, RequestError};
use albacore_connections::limits::REPLY_BYTES_MAX;
use albacore_engine::{
    Engine, Kind, KindSet, LoopIndex, ModelHandle, ModelInfo, ModelLookupError, OutputInfo,
};
use albacore_rows::ColumnOrder;
use albacore_rows::datatype::Datatype;
use albacore_rows::labels::{self, LABEL};

/// The name of the only input tensor in metadata; a request may give it any.
pub(super) const INPUT: &str = "input";

/// The only version of every model.
pub(super) const VERSION: &str = "1";

/// The name of the tensor of `kind`.
pub(super) const fn output_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Value => "output",
        Kind::Margin => "margin",
        Kind::Contribs => "contribs",
        Kind::Interactions => "interactions",
        Kind::Leaf => "leaf",
    }
}

/// The default data type of rows: that of the model's value.
pub(super) fn input_datatype(model: &ModelInfo) -> Datatype {
    model.output(Kind::Value).map_or(Datatype::Fp32, |value| {
        Datatype::from_element(value.element)
    })
}

/// Looks up a model for a request of `event_loop`; an empty version matches any.
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
            ModelLookupError::Unknown => {
                let (name, names) = (excerpt(name), engine.names());
                let message = format!("model {name:?} is not served here; there is {names:?}");
                RequestError::new(ErrorKind::NotFound, message)
            }
        })?;
    if version.is_empty() || version == VERSION {
        return Ok(model);
    }
    Err(RequestError::new(
        ErrorKind::NotFound,
        format!(
            "model {name:?} has no version {:?}; there is \"{VERSION}\"",
            excerpt(version)
        ),
    ))
}

/// The input tensor as the request declares it, without its data.
pub(super) struct DeclaredTensor<'a> {
    pub(super) datatype: &'a str,
    pub(super) shape: &'a [i64],
}

/// Checks the input tensor, which has the model's columns or those of `order`; returns its data
/// type and its number of rows (at least one). Its name is ignored: there is only one, and clients
/// of other servers use other names.
pub(super) fn check_input(
    model: &ModelInfo,
    declared: &DeclaredTensor<'_>,
    order: Option<&ColumnOrder>,
) -> Result<(Datatype, usize), RequestError> {
    let datatype = Datatype::from_name(declared.datatype).ok_or_else(|| {
        let names = Datatype::NAMES.map(|(_, name)| name);
        RequestError::invalid(format!(
            "input {INPUT:?} has datatype {:?}; it takes {}",
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

/// One output of the reply, in the order of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestedOutput {
    pub(super) kind: Kind,
    /// The names of the classes that the value means, rather than the value.
    pub(super) is_label: bool,
    /// As bytes rather than as text or typed lists.
    pub(super) binary: bool,
}

/// Collects and checks the outputs of a request.
pub(super) struct OutputSelection<'a> {
    model: &'a ModelInfo,
    outputs: Vec<RequestedOutput>,
    kinds: KindSet,
}

impl<'a> OutputSelection<'a> {
    /// Without any output of `model`.
    pub(super) fn new(model: &'a ModelInfo) -> Self {
        Self {
            model,
            outputs: Vec::new(),
            kinds: KindSet::EMPTY,
        }
    }

    /// Adds the output called `name`.
    pub(super) fn add(&mut self, name: &str, binary: bool) -> Result<(), RequestError> {
        let model = self.model;
        if name == LABEL && model.class_names.is_some() {
            return self.push(name, Kind::Value, true, binary);
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
                "output {:?} is unknown: model {:?} gives {names:?}",
                excerpt(name),
                model.name
            )));
        };
        self.push(name, kind, false, binary)
    }

    fn push(
        &mut self,
        name: &str,
        kind: Kind,
        is_label: bool,
        binary: bool,
    ) -> Result<(), RequestError> {
        let is_same = |other: &RequestedOutput| (other.kind, other.is_label) == (kind, is_label);
        if self.outputs.iter().any(is_same) {
            return Err(RequestError::invalid(format!(
                "output {name:?} is requested twice"
            )));
        }
        self.kinds = self.kinds.with(kind);
        self.outputs.push(RequestedOutput {
            kind,
            is_label,
            binary,
        });
        Ok(())
    }

    /// The outputs that were added, or if there are none the value, and its label where the model's
    /// classes have names.
    pub(super) fn or_default(self, binary: bool) -> (Vec<RequestedOutput>, KindSet) {
        let has_label = self.outputs.is_empty() && self.model.class_names.is_some();
        let (mut outputs, kinds) = self.or_value(binary);
        if has_label {
            outputs.push(RequestedOutput {
                kind: Kind::Value,
                is_label: true,
                binary,
            });
        }
        (outputs, kinds)
    }

    /// The outputs that were added, or the value if there are none.
    pub(super) fn or_value(mut self, binary: bool) -> (Vec<RequestedOutput>, KindSet) {
        if self.outputs.is_empty() {
            self.outputs.push(RequestedOutput {
                kind: Kind::Value,
                is_label: false,
                binary,
            });
            self.kinds = KindSet::only(Kind::Value);
        }
        (self.outputs, self.kinds)
    }
}

/// Refuses a request whose reply would be too large.
pub(super) fn check_reply_size(
    model: &ModelInfo,
    rows: usize,
    outputs: &[RequestedOutput],
) -> Result<(), RequestError> {
    let sizes = outputs.iter().map(|output| {
        let text = if output.binary { 1 } else { TEXT_PER_BYTE };
        let row = match &model.class_names {
            Some(classes) if output.is_label => labels::row_bytes_max(classes),
            _ => model.output(output.kind).map_or(0, OutputInfo::row_bytes),
        };
        row.saturating_mul(rows).saturating_mul(text)
    });
    let bytes = sizes.fold(0, usize::saturating_add);
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    Err(RequestError::new(
        ErrorKind::TooLarge,
        format!(
            "the reply to {rows} rows would have some {bytes} bytes, more than {REPLY_BYTES_MAX}: \
             send fewer rows at once, or ask for binary data, which takes a third"
        ),
    ))
}

/// The beginning of a client's text, short enough for an error message.
pub(super) fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
