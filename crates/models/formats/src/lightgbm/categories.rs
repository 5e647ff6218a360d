//! Categories of a model trained on pandas: a list for each categorical column, in the last line of
//! the file. The columns are given by `categorical_feature` of the parameters, or else by
//! `feature_infos`.

use super::Trailer;
use crate::categories::{ColumnCategories, check_count, repeated};
use crate::error::{ModelResult, excerpt};
use crate::json::JsonReader;
use crate::value_reader::ValueReader as _;

/// Reads the categories by column. Adds a notice if the columns of the lists are unknown.
pub(super) fn read(
    trailer: &Trailer<'_>,
    infos: &str,
    notices: &mut Vec<String>,
) -> ModelResult<Vec<ColumnCategories>> {
    let lists = match trailer.pandas_categories.map(str::trim) {
        None | Some("" | "null") => return Ok(Vec::new()),
        Some(text) => lists(text).map_err(|error| error.inside("pandas_categorical"))?,
    };
    if lists.is_empty() {
        return Ok(Vec::new());
    }
    let columns = columns(trailer, infos);
    if columns.len() != lists.len() {
        notices.push(unknown_columns_notice(&format!(
            "{} lists of categories for {} categorical columns",
            lists.len(),
            columns.len()
        )));
        return Ok(Vec::new());
    }
    let infos: Vec<&str> = infos.split_ascii_whitespace().collect();
    for (&column, list) in columns.iter().zip(&lists) {
        let info = infos.get(column).copied().unwrap_or_default();
        if !is_within(info, list.len()) {
            notices.push(unknown_columns_notice(&format!(
                "a list of {} categories for column {column}, which had more in training",
                list.len()
            )));
            return Ok(Vec::new());
        }
    }
    let mut categories = Vec::with_capacity(lists.len());
    for (column, texts) in columns.into_iter().zip(lists) {
        match repeated(&texts) {
            // Pandas distinguishes the number 1 from the text "1".
            Some(text) => notices.push(format!(
                "column {column} has two categories '{}': strings are refused in this column until \
                 \"categories\" of the model lists them; category numbers are accepted",
                excerpt(text)
            )),
            None if texts.is_empty() => {}
            None => categories.push(ColumnCategories { column, texts }),
        }
    }
    Ok(categories)
}

fn unknown_columns_notice(problem: &str) -> String {
    format!(
        "its file has {problem}, so their columns are unknown: strings are refused until \
         \"categories\" of the model lists them; category numbers are accepted"
    )
}

fn lists(text: &str) -> ModelResult<Vec<Vec<String>>> {
    let mut reader = JsonReader::new(text.as_bytes());
    let (mut lists, mut count) = (Vec::new(), 0);
    reader.array(&mut |reader, _| {
        let mut texts = Vec::new();
        reader.array(&mut |reader, _| {
            texts.push(reader.text()?);
            count += 1;
            check_count(count)
        })?;
        lists.push(texts);
        check_count(lists.len())
    })?;
    reader.finish()?;
    Ok(lists)
}

/// Returns the categorical columns in ascending order.
fn columns(trailer: &Trailer<'_>, infos: &str) -> Vec<usize> {
    let numbers = trailer.categorical_columns.map(|text| {
        let numbers = text.split(',').map(|number| number.trim().parse());
        numbers.collect::<Result<Vec<usize>, _>>()
    });
    if let Some(Ok(mut columns)) = numbers {
        columns.sort_unstable();
        columns.dedup();
        return columns;
    }
    let infos = infos.split_ascii_whitespace().enumerate();
    infos
        .filter(|(_, info)| super::type_of(info) == "categorical")
        .map(|(column, _)| column)
        .collect()
}

/// Returns whether the categories seen in training, `-1:3:1:2:0`, are below `count`; other entries
/// have none.
fn is_within(info: &str, count: usize) -> bool {
    if super::type_of(info) != "categorical" {
        return true;
    }
    let mut numbers = info.split(':').filter_map(|number| number.parse().ok());
    numbers.all(|number: i64| number < 0 || usize::try_from(number).is_ok_and(|it| it < count))
}
