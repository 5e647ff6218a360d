//! What a request asks for, once for both protocols: model, version, rows, outputs.
//!
//! One input tensor `input` of shape `[rows, features]`; outputs by name, `output` alone when none
//! is named. A tensor of shape `[features]` is refused, not guessed at: for a model of one feature
//! it could be one row or many.

use super::datatype::Datatype;
use super::refused::{Cause, Refused};
use albacore_engine::{Absent, Engine, Kind, KindSet, ModelHandle, ModelInfo, OutputInfo};

/// The only input tensor.
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
        Absent::NotLoaded => {
            let message = format!("model {name:?} is not loaded yet: send the request again later");
            Refused::new(Cause::Unavailable, message)
        }
        Absent::Unknown => {
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
    /// Its name.
    pub(super) name: &'a str,
    /// The name of its data type.
    pub(super) datatype: &'a str,
    /// Its shape.
    pub(super) shape: &'a [i64],
}

/// Checks the input tensor; gives its data type and its rows (at least one).
pub(super) fn check_input(
    model: &ModelInfo,
    declared: &Declared<'_>,
) -> Result<(Datatype, usize), Refused> {
    if declared.name != INPUT {
        return Err(Refused::invalid(format!(
            "input {:?} is unknown: model {:?} has one input, {INPUT:?}",
            brief(declared.name),
            model.name
        )));
    }
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
    /// What it holds.
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

/// The start of a text that a client sent, short enough for an error message.
pub(super) fn brief(text: &str) -> String {
    const SHOWN_CHARS: usize = 64;
    text.chars().take(SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use albacore_engine::ElementType;

    fn model() -> ModelInfo {
        let output = |kind, row_shape: &[usize]| OutputInfo {
            kind,
            element: ElementType::F32,
            row_shape: row_shape.to_vec(),
        };
        ModelInfo {
            name: "m".to_owned(),
            platform: "xgboost_ubj".to_owned(),
            features: 3,
            outputs: vec![output(Kind::Value, &[]), output(Kind::Contribs, &[4])],
        }
    }

    fn check(name: &str, datatype: &str, shape: &[i64]) -> Result<(Datatype, usize), Refused> {
        check_input(
            &model(),
            &Declared {
                name,
                datatype,
                shape,
            },
        )
    }

    #[test]
    fn only_two_dimensions_with_rows_are_taken() {
        assert_eq!(check("input", "FP32", &[2, 3]), Ok((Datatype::Fp32, 2)));
        for shape in [
            &[3][..],
            &[],
            &[0, 3],
            &[-1, 3],
            &[2, 4],
            &[2, 3, 1],
            &[i64::MAX, 3],
            &[i64::MIN, 3],
        ] {
            let said = check("input", "FP32", shape).unwrap_err().to_string();
            assert!(said.contains("takes [rows, 3]"), "{said}");
        }
    }

    #[test]
    fn names_and_types_are_case_sensitive() {
        assert!(
            check("Input", "FP32", &[1, 3])
                .unwrap_err()
                .message
                .contains("one input")
        );
        for datatype in ["fp32", "BYTES", "", "FP8"] {
            assert!(
                check("input", datatype, &[1, 3])
                    .unwrap_err()
                    .message
                    .contains("it takes")
            );
        }
    }

    #[test]
    fn outputs_keep_their_order_and_value_is_the_default() {
        let model = model();
        let mut wants = Wants::of(&model);
        wants.add("contribs", true).unwrap();
        wants.add("output", false).unwrap();
        assert!(wants.add("output", false).is_err());
        assert!(wants.add("leaf", false).is_err());
        let (wanted, kinds) = wants.or_value(false);
        assert_eq!(
            wanted[0],
            Wanted {
                kind: Kind::Contribs,
                binary: true
            }
        );
        assert_eq!(wanted.len(), 2);
        assert!(kinds.contains(Kind::Value) && !kinds.contains(Kind::Leaf));
        let (wanted, _) = Wants::of(&model).or_value(true);
        assert_eq!(
            wanted,
            [Wanted {
                kind: Kind::Value,
                binary: true
            }]
        );
    }
}
