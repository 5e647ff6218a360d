//! Archives of `tests/data/models/versions`: small models of every kind with predictions, each
//! written by one version of a library (by `make.py` there).

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;

use zip::ZipArchive;

use super::{Array, folder, parse_npy};

/// A model of an archive.
pub(crate) struct Trained {
    /// Archive and name, such as `xgboost-3.2.0/softprob`.
    pub(crate) name: String,
    /// Facts recorded by `make.py`: objective, booster, what the library rejected.
    pub(crate) facts: serde_json::Value,
    /// Name (`model.json`) and bytes of the model in each format.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    arrays: HashMap<String, Array>,
}

impl Trained {
    /// Returns the array with this name, if the library provided it.
    pub(crate) fn array(&self, name: &str) -> Option<&Array> {
        self.arrays.get(name)
    }

    /// Returns the name within the archive.
    pub(crate) fn kind(&self) -> &str {
        self.name.split_once('/').expect("archive/name").1
    }
}

/// Returns the names of all archives of `versions`, without extension.
pub(crate) fn archives() -> Vec<String> {
    archives_of("versions")
}

/// Returns the names of all archives of a folder next to the zoo's models, without extension.
pub(crate) fn archives_of(of: &str) -> Vec<String> {
    let files = std::fs::read_dir(folder().join(of)).expect("the archives");
    let names = files.map(|file| {
        file.expect("a file")
            .file_name()
            .into_string()
            .expect("UTF-8")
    });
    let mut names: Vec<String> = names
        .filter_map(|name| name.strip_suffix(".zip").map(str::to_owned))
        .collect();
    names.sort();
    names
}

/// Returns the models of an archive of `versions`.
pub(crate) fn models(archive: &str) -> Vec<Trained> {
    models_of("versions", archive)
}

/// Returns the models of an archive of a folder next to the zoo's models.
pub(crate) fn models_of(of: &str, archive: &str) -> Vec<Trained> {
    let path = folder().join(of).join(format!("{archive}.zip"));
    let mut zip = ZipArchive::new(File::open(path).expect("archive")).expect("zip archive");
    let mut found: HashMap<String, Trained> = HashMap::new();
    let mut index = Vec::new();
    for member in 0..zip.len() {
        let mut member = zip.by_index(member).expect("listed member");
        let path = member.name().expect("member name").to_string();
        let mut bytes = Vec::new();
        member.read_to_end(&mut bytes).expect("readable member");
        let Some((name, file)) = path.split_once('/') else {
            index = serde_json::from_slice(&bytes).expect("a list of names");
            continue;
        };
        let trained = found.entry(name.to_owned()).or_insert_with(|| Trained {
            name: format!("{archive}/{name}"),
            facts: serde_json::Value::Null,
            files: Vec::new(),
            arrays: HashMap::new(),
        });
        match file.strip_suffix(".npy") {
            Some(array) => {
                let parsed = parse_npy(&bytes).unwrap_or_else(|| panic!("{path}"));
                trained.arrays.insert(array.to_owned(), parsed);
            }
            None if file == "facts.json" => {
                trained.facts = serde_json::from_slice(&bytes).expect("JSON");
            }
            None => trained.files.push((file.to_owned(), bytes)),
        }
    }
    let names: Vec<String> = index;
    let take = |name: &String| found.remove(name).unwrap_or_else(|| panic!("{name}"));
    names.iter().map(take).collect()
}
