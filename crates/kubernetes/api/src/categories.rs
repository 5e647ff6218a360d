//! Schema of the categories of a model's columns.

use schemars::{Schema, SchemaGenerator, json_schema};

use crate::limits;

/// Lists of texts by column name, within the bounds of the server's settings.
pub(crate) fn schema(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": limits::CATEGORY_COLUMNS_MAX,
        "additionalProperties": {
            "description": "Texts of a column, in the order of their numbers.",
            "type": "array",
            "minItems": 1,
            "maxItems": limits::CATEGORIES_MAX,
            "items": { "type": "string", "maxLength": limits::CATEGORY_CHARS_MAX },
        },
    })
}
