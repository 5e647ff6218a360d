//! Categories of columns in files of XGBoost and LightGBM (`tests/data/categories`), and errors for
//! invalid ones.
// Helper functions are test code, too.
#![allow(clippy::unwrap_used)]

use std::path::Path;

use albacore_formats::{ColumnCategories, Model};

const COLORS: [&str; 6] = ["red", "a, b", "blue", "[x]", "q\"\\", "green"];
const SIZES: [&str; 3] = ["10", "30", "20"];

fn file(name: &str) -> Vec<u8> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../tests/data/categories");
    std::fs::read(folder.join(name)).unwrap()
}

/// Returns the file with one occurrence of `from` replaced; `from` must be present.
fn edited(name: &str, from: &str, to: &str) -> Vec<u8> {
    let text = String::from_utf8(file(name)).unwrap();
    assert!(text.contains(from), "{name} without {from}");
    text.replacen(from, to, 1).into_bytes()
}

fn categories(bytes: &[u8]) -> Vec<ColumnCategories> {
    Model::parse(bytes).unwrap().parts().categories.clone()
}

fn notices(bytes: &[u8]) -> String {
    Model::parse(bytes).unwrap().parts().notices.join("\n")
}

fn column(column: usize, texts: &[&str]) -> ColumnCategories {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    ColumnCategories { column, texts }
}

#[test]
fn files_list_the_categories_of_their_columns() {
    let expected = [column(1, &COLORS), column(3, &SIZES)];
    for name in ["xgboost.json", "xgboost.ubj", "lightgbm.txt"] {
        assert_eq!(categories(&file(name)), expected, "{name}");
        assert_eq!(notices(&file(name)), "", "{name}");
    }
}

#[test]
fn models_without_tables_have_no_categories() {
    let none = "\"cats\":{\"enc\":[],\"feature_segments\":[],\"sorted_idx\":[]},\"was\":{";
    assert_eq!(categories(&edited("xgboost.json", "\"cats\":{", none)), []);
    assert_eq!(
        categories(&edited("xgboost.json", "\"cats\"", "\"was\"")),
        []
    );
    for none in ["null", "[]", ""] {
        let line = format!("pandas_categorical:{none}\nwas:");
        let file = edited("lightgbm.txt", "pandas_categorical:", &line);
        assert_eq!(categories(&file), [], "{none}");
        assert_eq!(notices(&file), "", "{none}");
    }
}

const SEGMENTS: &str = "\"feature_segments\":[0,0,6,6,9]";
const OFFSETS: &str = "\"offsets\":[0,3,7,11,14,17,22]";
const NUMBERS: &str = "\"values\":[10,30,20]";

/// Text to replace in the file, its replacement, and parts of the error.
type Case<'a> = (&'a str, &'a str, &'a [&'a str]);

fn assert_rejected(cases: &[Case<'_>]) {
    for (from, to, parts) in cases {
        let message = Model::parse(&edited("xgboost.json", from, to)).unwrap_err();
        let message = message.to_string();
        for part in *parts {
            assert!(message.contains(part), "{to:.80}: {message}");
        }
    }
}

#[test]
fn errors_of_inconsistent_xgboost_segments_name_the_field() {
    let at = "cats.feature_segments";
    assert_rejected(&[
        (
            SEGMENTS,
            "\"feature_segments\":[0,0,6,6]",
            &[at, "4 numbers"],
        ),
        (
            SEGMENTS,
            "\"feature_segments\":[0,0,6,6,8]",
            &[at, "2 categories for column 3, which"],
        ),
        (
            SEGMENTS,
            "\"feature_segments\":[0,6,0,6,9]",
            &[at, "6 categories for column 0, which"],
        ),
        (SEGMENTS, "\"feature_segments\":[-9,0,6,6,9]", &[at]),
        (SEGMENTS, "\"x\":[]", &[at, "missing"]),
        (SEGMENTS, "\"feature_segments\":[0.5]", &[at]),
        (SEGMENTS, "\"enc\":[]", &["cats.enc", "twice"]),
    ]);
}

#[test]
fn errors_of_inconsistent_xgboost_category_names_name_the_field() {
    let long = format!("\"offsets\":[0,{}3,7,11,14,17,22]", "3,".repeat(1 << 22));
    let (offsets, values) = ("cats.enc[1].offsets", "cats.enc[3].values");
    let more = "{\"enc\":[{\"offsets\":[],\"values\":[]},";
    assert_rejected(&[
        (
            OFFSETS,
            "\"offsets\":[0,3,7,11,17,14,22]",
            &[offsets, "from 0 to 22, the number of bytes"],
        ),
        (OFFSETS, "\"offsets\":[0,3,7,11,14,17,23]", &[offsets]),
        (OFFSETS, "\"offsets\":[-1,3,7,11,14,17,22]", &[offsets]),
        (
            OFFSETS,
            "\"offsets\":[]",
            &[
                offsets,
                "the list is empty, but there are 22 bytes of values",
            ],
        ),
        (
            OFFSETS,
            "\"offsets\":[0,3,7,11,14,22]",
            &["6 categories for column 1, which has 5"],
        ),
        (
            OFFSETS,
            "\"offsets\":[0,0,0,11,14,17,22]",
            &["'' appears twice in column 1"],
        ),
        (OFFSETS, &long, &[offsets, "4194305"]),
        (
            "[114,101,",
            "[114,256,",
            &["cats.enc[1].values", "256 is not a byte"],
        ),
        (
            NUMBERS,
            "\"values\":[10,30,10]",
            &["'10' appears twice in column 3"],
        ),
        (NUMBERS, "\"x\":0", &[values, "missing"]),
        (NUMBERS, "\"values\":[10,30,\"20\"]", &[values]),
        (
            "{\"enc\":[",
            more,
            &["cats.enc", "5 entries for 4 features"],
        ),
        ("{\"enc\":[", "{\"enc\":[7,", &["cats.enc[0]"]),
    ]);
}

#[test]
fn non_ascii_category_names_are_read_from_versions_that_write_them_completely() {
    // "red" becomes "ré" or, truncated within a character, invalid UTF-8.
    let whole = ("[114,101,100,", "[114,-61,-87,");
    let cut = ("[114,101,100,", "[114,101,-61,");
    for (version, (from, to), is_read) in [
        ("[3,2,0]", whole, false),
        ("[3,2,0]", cut, false),
        ("[3,4,0]", whole, true),
        ("[3,4,0]", cut, false),
    ] {
        let text = String::from_utf8(edited("xgboost.json", from, to)).unwrap();
        let bytes = text.replacen("\"version\":[3,2,0]", &format!("\"version\":{version}"), 1);
        let mut colors = COLORS;
        colors[0] = "r\u{e9}";
        let all_columns = [column(1, &colors), column(3, &SIZES)];
        let expected = if is_read {
            &all_columns[..]
        } else {
            &all_columns[1..]
        };
        assert_eq!(categories(bytes.as_bytes()), expected, "{version} {to}");
        let message = notices(bytes.as_bytes());
        assert_eq!(
            message.contains("column 1 has categories outside of ASCII"),
            !is_read,
            "{message}"
        );
    }
}

const LISTS: &str =
    "[[\"red\", \"a, b\", \"blue\", \"[x]\", \"q\\\"\\\\\", \"green\"], [10, 30, 20]]";

#[test]
fn lightgbm_columns_are_derived_from_parameters_or_feature_infos() {
    let expected = [column(1, &COLORS), column(3, &SIZES)];
    let parameter = "[categorical_feature: 1,3]";
    for other in [
        "[categorical_feature: ]",
        "[x: 1]",
        "[categorical_feature: name:color]",
    ] {
        let file = edited("lightgbm.txt", parameter, other);
        assert_eq!(categories(&file), expected, "{other}");
    }
    let lists = r#"[["\ud83d\ude00", "\u00e9", 1.5, true, -2, "x"], [10, 30, 20]]"#;
    let texts = categories(&edited("lightgbm.txt", LISTS, lists))[0]
        .texts
        .clone();
    assert_eq!(texts, ["\u{1f600}", "\u{e9}", "1.5", "true", "-2", "x"]);
}

#[test]
fn lightgbm_lists_without_known_columns_are_ignored_with_a_notice() {
    for (from, to, part) in [
        (
            LISTS,
            "[[10, 30, 20]]",
            "1 lists of categories for 2 categorical columns",
        ),
        (
            "[categorical_feature: 1,3]",
            "[categorical_feature: 3]",
            "2 lists of categories for 1",
        ),
        (
            "[categorical_feature: 1,3]",
            "[categorical_feature: 0,1]",
            "a list of 3 categories for column 1",
        ),
    ] {
        let file = edited("lightgbm.txt", from, to);
        assert_eq!(categories(&file), [], "{to}");
        let message = notices(&file);
        assert!(
            message.contains(part) && message.contains("strings are refused"),
            "{to}: {message}"
        );
    }
    // Pandas distinguishes the number 1 from the text "1".
    let lists = "[[\"1\", 1, 2, 3, 4, 5], [10, 30, 20]]";
    let file = edited("lightgbm.txt", LISTS, lists);
    assert_eq!(categories(&file), [column(3, &SIZES)]);
    let message = notices(&file);
    assert!(
        message.contains("column 1 has two categories '1'"),
        "{message}"
    );
    for (lists, part) in [
        ("[[\"red\"", "pandas_categorical"),
        ("{}", "pandas_categorical"),
        ("[7]", "pandas_categorical[0]"),
        ("[[[]]]", "pandas_categorical[0][0]"),
        ("[] []", "pandas_categorical"),
    ] {
        let message = Model::parse(&edited("lightgbm.txt", LISTS, lists))
            .unwrap_err()
            .to_string();
        assert!(message.contains(part), "{lists}: {message}");
    }
    let beyond = edited(
        "lightgbm.txt",
        "[categorical_feature: 1,3]",
        "[categorical_feature: 1,99]",
    );
    let message = Model::parse(&beyond).unwrap_err().to_string();
    assert!(
        message.contains("not ascending, or not below 4"),
        "{message}"
    );
}
