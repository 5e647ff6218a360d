//! What a request asks for, once for both protocols: model, version, rows, outputs.
//!
//! One input tensor `input` of shape `[rows, features]`; outputs by name, `output` alone when none
//! is named. A tensor of shape `[features]` is refused, not guessed at: for a model of one feature
//! it could be one row or many.

use super::datatype::Datatype;
use super::limits::TEXT_PER_BYTE;
use super::refused::{Cause, Refused};
use albacore_connections::limits::REPLY_BYTES_MAX;
use albacore_engine::{
    Engine, Kind, KindSet, ModelHandle, ModelInfo, ModelLookupError, OutputInfo,
};

/// The name of the only input tensor in metadata; a request may give it any.
pub(super) const INPUT: &str = "input";

/// The only version of every model.
pub(super) const VERSION: &str = "1";

/// The tensor that carries outputs of `kind`.
pub(super) const fn output_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Value => "output",
        Kind::Margin => "margin",
        Kind::Contribs => "contribs",
        Kind::Interactions => "interactions",
        Kind::Leaf => "leaf",
    }
}

/// The type that rows have when nothing says otherwise: that of the model's own value.
pub(super) fn input_datatype(model: &ModelInfo) -> Datatype {
    model
        .output(Kind::Value)
        .map_or(Datatype::Fp32, |value| Datatype::of(value.element))
}

/// The model of this name and version; an empty version is any.
pub(super) fn find(engine: &Engine, name: &str, version: &str) -> Result<ModelHandle, Refused> {
    let model = engine.model(name).map_err(|absent| match absent {
        ModelLookupError::NotLoaded => {
            let message = format!("model {name:?} is not loaded yet: send the request again later");
            Refused::new(Cause::Unavailable, message)
        }
        ModelLookupError::Unknown => {
            let (name, names) = (brief(name), engine.names());
            let message = format!("model {name:?} is not served here; there is {names:?}");
            Refused::new(Cause::NotFound, message)
        }
    })?;
    if version.is_empty() || version == VERSION {
        return Ok(model);
    }
    Err(Refused::new(
        Cause::NotFound,
        format!(
            "model {name:?} has no version {:?}; there is \"{VERSION}\"",
            brief(version)
        ),
    ))
}

/// The declared input tensor, apart from its data.
pub(super) struct Declared<'a> {
    /// The name of its data type.
    pub(super) datatype: &'a str,
    pub(super) shape: &'a [i64],
}

/// Checks the input tensor; gives its data type and its rows (at least one). Its name is not looked
/// at: there is one, and clients written for another server call it otherwise.
pub(super) fn check_input(
    model: &ModelInfo,
    declared: &Declared<'_>,
) -> Result<(Datatype, usize), Refused> {
    let datatype = Datatype::named(declared.datatype).ok_or_else(|| {
        let names: Vec<_> = Datatype::ALL
            .iter()
            .map(|datatype| datatype.name())
            .collect();
        Refused::invalid(format!(
            "input {INPUT:?} has datatype {:?}; it takes {}",
            brief(declared.datatype),
            names.join(" ")
        ))
    })?;
    let features = model.features;
    let rows = match *declared.shape {
        [rows, columns] if i64::try_from(features) == Ok(columns) => usize::try_from(rows).ok(),
        _ => None,
    };
    match rows {
        Some(rows) if rows > 0 && rows.checked_mul(features.max(1) * 8).is_some() => {
            Ok((datatype, rows))
        }
        _ => Err(Refused::invalid(format!(
            "input {INPUT:?} has shape {:?}; model {:?} takes [rows, {features}] with at least one \
             row",
            declared.shape, model.name
        ))),
    }
}

/// One wanted output, in the order of the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// As bytes rather than as text or typed lists.
    pub(super) binary: bool,
}

/// The outputs of a request, collected one by one and checked.
pub(super) struct Wants<'a> {
    model: &'a ModelInfo,
    wanted: Vec<Wanted>,
    kinds: KindSet,
}

impl<'a> Wants<'a> {
    /// No output of `model` yet.
    pub(super) fn of(model: &'a ModelInfo) -> Self {
        Self {
            model,
            wanted: Vec::new(),
            kinds: KindSet::EMPTY,
        }
    }

    /// Adds the output called `name`.
    pub(super) fn add(&mut self, name: &str, binary: bool) -> Result<(), Refused> {
        let model = self.model;
        let found = model
            .outputs
            .iter()
            .find(|output| output_name(output.kind) == name);
        let Some(&OutputInfo { kind, .. }) = found else {
            let names: Vec<_> = model.outputs.iter().map(|o| output_name(o.kind)).collect();
            return Err(Refused::invalid(format!(
                "output {:?} is unknown: model {:?} gives {names:?}",
                brief(name),
                model.name
            )));
        };
        if self.kinds.contains(kind) {
            return Err(Refused::invalid(format!(
                "output {name:?} is asked for twice"
            )));
        }
        self.kinds = self.kinds.with(kind);
        self.wanted.push(Wanted { kind, binary });
        Ok(())
    }

    /// What was added, or the value alone when nothing was.
    pub(super) fn or_value(mut self, binary: bool) -> (Vec<Wanted>, KindSet) {
        if self.wanted.is_empty() {
            self.wanted.push(Wanted {
                kind: Kind::Value,
                binary,
            });
            self.kinds = KindSet::only(Kind::Value);
        }
        (self.wanted, self.kinds)
    }
}

/// Refuses what would make a reply larger than any client should get.
pub(super) fn check_reply(
    model: &ModelInfo,
    rows: usize,
    wanted: &[Wanted],
) -> Result<(), Refused> {
    let sizes = wanted.iter().map(|wanted| {
        let text = if wanted.binary { 1 } else { TEXT_PER_BYTE };
        let row = model.output(wanted.kind).map_or(0, OutputInfo::row_bytes);
        row.saturating_mul(rows).saturating_mul(text)
    });
    let bytes = sizes.fold(0, usize::saturating_add);
    if bytes <= REPLY_BYTES_MAX {
        return Ok(());
    }
    Err(Refused::new(
        Cause::TooLarge,
        format!(
            "the reply to {rows} rows would have some {bytes} bytes, more than {REPLY_BYTES_MAX}: \
             send fewer rows at once, or ask for binary data, which takes a third"
        ),
    ))
}

/// The start of a text that a client sent, short enough for an error message.
pub(super) fn brief(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;
