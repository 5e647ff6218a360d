//! Generates the Rust code of `crates/serving/proto/proto/*.proto` in pure Rust: `protox` parses,
//! `prost` generates.
//!
//! This is not a build script, so that builds of the product need not compile it and the generated
//! code can be read in the repository. A test compares the committed code with the generated code.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use protox::prost::Message as _;
use tonic_prost_build::FileDescriptorSet;

/// Directory of the proto crate, relative to the workspace root.
const CRATE_DIR: &str = "crates/serving/proto";

/// First lines of a generated file.
const HEAD: &str =
    "//! Written by `cargo run -p albacore-xtask -- proto` from the proto files. Do not edit.\n";

/// Maximum width of comments in this repository.
const WIDTH: usize = 100;

/// A generated file.
pub struct Written {
    /// Path relative to the workspace root.
    pub path: PathBuf,
    pub bytes: Vec<u8>,
}

/// Generates all files in memory: the Rust module of each package and the descriptors for gRPC
/// reflection.
///
/// # Errors
/// A proto file cannot be read or parsed; the parser's message contains its name.
pub fn generate(root: &Path) -> Result<Vec<Written>> {
    let protos = root.join(CRATE_DIR).join("proto");
    let inference = compile(&protos, "inference.proto")?;
    let mut bare = inference.clone();
    for descriptor in &mut bare.file {
        descriptor.source_code_info = None; // comments: of no use on the wire
    }
    let src = Path::new(CRATE_DIR).join("src");
    Ok(vec![
        Written {
            path: src.join("inference.rs"),
            bytes: print(inference, "inference")?,
        },
        Written {
            path: src.join("inference.bin"),
            bytes: bare.encode_to_vec(),
        },
        Written {
            path: src.join("params.rs"),
            bytes: print(compile(&protos, "params.proto")?, "albacore.params.v1")?,
        },
        Written {
            path: src.join("orca.rs"),
            bytes: print(compile(&protos, "orca.proto")?, "xds.service.orca.v3")?,
        },
    ])
}

fn compile(protos: &Path, file: &str) -> Result<FileDescriptorSet> {
    let mut compiler = protox::Compiler::new([protos])
        .with_context(|| format!("{}: no such folder of proto files", protos.display()))?;
    compiler.include_source_info(true).include_imports(true);
    let file = protos.join(file);
    compiler
        .open_file(&file)
        .with_context(|| format!("cannot compile {}", file.display()))?;
    Ok(compiler.file_descriptor_set())
}

/// Generates the Rust module of a package.
fn print(documented: FileDescriptorSet, package: &str) -> Result<Vec<u8>> {
    let out = tempfile::tempdir().context("cannot create a temporary folder")?;
    tonic_prost_build::configure()
        .out_dir(out.path())
        // Sorted maps, so that equal reports are encoded to equal bytes.
        .btree_map(".xds.service.orca.v3")
        .bytes(".inference.ModelInferRequest.raw_input_contents")
        .bytes(".inference.ModelInferResponse.raw_output_contents")
        .compile_fds(documented)
        .context("cannot generate the Rust code")?;
    let printed = fs::read_to_string(out.path().join(format!("{package}.rs")))
        .with_context(|| format!("the generator wrote no {package}.rs"))?;
    let wrapped: String = format!("{HEAD}{printed}").lines().map(wrap).collect();
    Ok(wrapped.into_bytes())
}

/// Wraps a line if it is a comment wider than [`WIDTH`].
fn wrap(line: &str) -> String {
    let comment = line.trim_start();
    let Some(text) = ["/// ", "//! "]
        .iter()
        .find_map(|of| comment.strip_prefix(of))
    else {
        return format!("{line}\n");
    };
    let prefix = &line[..line.len() - text.len()];
    let mut lines = vec![prefix.to_owned()];
    for word in text.split(' ') {
        let last = lines
            .last_mut()
            .filter(|last| last.len() == prefix.len() || last.len() + 1 + word.len() <= WIDTH);
        match last {
            Some(last) if last.len() > prefix.len() => *last += &format!(" {word}"),
            Some(last) => *last += word,
            None => lines.push(format!("{prefix}{word}")),
        }
    }
    lines.join("\n") + "\n"
}

/// Writes the files of [`generate`].
///
/// # Errors
/// Same as [`generate`]; or a file cannot be written.
pub fn write(root: &Path) -> Result<()> {
    for file in generate(root)? {
        let path = root.join(&file.path);
        fs::write(&path, &file.bytes)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Compares the committed files with those of [`generate`].
///
/// # Errors
/// The first file that differs, with the command that regenerates it.
pub fn check(root: &Path) -> Result<()> {
    for file in generate(root)? {
        let path = root.join(&file.path);
        let committed =
            fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
        if committed != file.bytes {
            bail!(
                "{}: differs from its proto file; run `cargo run -p albacore-xtask -- proto`",
                path.display()
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    #[test]
    fn committed_code_is_what_the_proto_files_say() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        super::check(&root).unwrap();
    }
}
