//! Initial RAM file system of a guest: a cpio archive in the format `newc`.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{BufWriter, Error, Result, Write};
use std::path::{Path, PathBuf};

const FOLDER: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;
const LINK: u32 = 0o120_777;

/// An archive under construction.
pub(super) struct Archive {
    out: BufWriter<File>,
    made: BTreeSet<PathBuf>,
}

impl Archive {
    pub(super) fn create(path: &Path) -> Result<Self> {
        Ok(Self {
            out: BufWriter::new(File::create(path)?),
            made: BTreeSet::new(),
        })
    }

    pub(super) fn folder(&mut self, path: &str) -> Result<()> {
        self.add(path, FOLDER, &[])
    }

    /// Adds a file of the host.
    pub(super) fn file(&mut self, path: &str, source: &Path) -> Result<()> {
        let bytes = std::fs::read(source)
            .map_err(|error| Error::new(error.kind(), format!("{}: {error}", source.display())))?;
        self.add(path, PROGRAM, &bytes)
    }

    pub(super) fn link(&mut self, path: &str, target: &str) -> Result<()> {
        self.add(path, LINK, target.as_bytes())
    }

    pub(super) fn end(mut self) -> Result<()> {
        self.entry("TRAILER!!!", 0, &[])?;
        self.out.flush()
    }

    /// Adds an entry with its parent folders; existing entries are kept.
    fn add(&mut self, path: &str, mode: u32, contents: &[u8]) -> Result<()> {
        let path = PathBuf::from(path.trim_start_matches('/'));
        let above: Vec<&Path> = path.ancestors().skip(1).collect();
        for folder in above.into_iter().rev() {
            if !folder.as_os_str().is_empty() && self.made.insert(folder.to_owned()) {
                self.entry(&folder.to_string_lossy(), FOLDER, &[])?;
            }
        }
        match self.made.insert(path.clone()) {
            true => self.entry(&path.to_string_lossy(), mode, contents),
            false => Ok(()),
        }
    }

    /// Writes thirteen hexadecimal numbers, the name, and the contents, the last two padded to four
    /// bytes.
    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) -> Result<()> {
        let size = u32::try_from(contents.len()).map_err(Error::other)?;
        let length = u32::try_from(name.len() + 1).map_err(Error::other)?;
        // Inode (equal inodes with a link count of one are not hard links), mode, owner, group,
        // links, time, size, devices, name, checksum.
        let numbers = [0, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, length, 0];
        let mut head = b"070701".to_vec();
        for number in numbers {
            head.extend_from_slice(format!("{number:08x}").as_bytes());
        }
        head.extend_from_slice(name.as_bytes());
        head.push(0);
        head.resize(head.len().next_multiple_of(4), 0);
        self.out.write_all(&head)?;
        self.out.write_all(contents)?;
        let padding = contents.len().next_multiple_of(4) - contents.len();
        self.out.write_all(&[0; 3][..padding])
    }
}
