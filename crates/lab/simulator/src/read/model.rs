//! Parses the profile of a model: its cost model and its objective.

use albacore_batching::Nanos;
use albacore_batching::deadlines::Cost;

use super::fields::Fields;
use super::invalid::{Invalid, Place};
use super::node::Node;
use crate::scenario::Model;

/// Maximum value of a profile or objective, ms: a day.
const PROFILE_MS_MAX: f64 = 86_400_000.0;

/// Validates alpha, beta and objective in ms, each with its key and location.
pub(super) fn check(
    name: &str,
    [alpha, beta, slo]: [f64; 3],
    keys: &[(String, Place); 3],
) -> Result<Model, Invalid> {
    for (number, (key, place)) in [alpha, beta, slo].into_iter().zip(keys) {
        if !(0.0..=PROFILE_MS_MAX).contains(&number) {
            let problem = format!("{number} is not between 0 and {PROFILE_MS_MAX} ms");
            return Err(Invalid::new(place.clone(), key, problem));
        }
    }
    let cost = Cost::new(alpha * 1e6, beta * 1e6);
    let objective = Nanos((slo * 1e6).round() as u64);
    let one = cost.of(1);
    let [(alpha_key, alpha_place), _, (slo_key, slo_place)] = keys;
    if one.0 == 0 {
        let problem = format!("{name}: a row must take some time, here or in beta");
        return Err(Invalid::new(alpha_place.clone(), alpha_key, problem));
    }
    if objective < one {
        let problem = format!(
            "{name}: {slo} ms is below l(1) = {} ms: not even one row alone can be in time",
            one.0 as f64 / 1e6
        );
        return Err(Invalid::new(slo_place.clone(), slo_key, problem));
    }
    Ok(Model {
        name: name.to_owned(),
        cost,
        objective,
    })
}

/// Parses an item of `models`.
pub(super) fn read(node: Node, path: &str) -> Result<Model, Invalid> {
    let mut fields = Fields::of(node, path)?;
    let missing = |fields: &Fields, key| fields.missing(key, "write name, alpha, beta and slo");
    let Some(name) = fields.take("name") else {
        return Err(missing(&fields, "name"));
    };
    let name = name.text()?;
    let (mut numbers, mut keys) = ([0.0; 3], Vec::new());
    for (number, key) in numbers.iter_mut().zip(["alpha", "beta", "slo"]) {
        let Some(field) = fields.take(key) else {
            return Err(missing(&fields, key));
        };
        *number = field.number(f64::NEG_INFINITY, f64::INFINITY)?;
        keys.push((field.key, field.node.place));
    }
    fields.end()?;
    let keys = <[_; 3]>::try_from(keys).unwrap_or_else(|_| {
        let none = || (String::new(), Place::Line(0));
        [none(), none(), none()]
    });
    check(&name, numbers, &keys)
}
