//! `xtask images`: builds container images without a container builder.
//!
//! Each program is compiled into a static file. The programs of an image, usually one, are its only
//! layer. The image is written as an archive in the OCI image layout, with a bill of materials per
//! architecture next to it. The same sources and compilers produce the same bytes, so an image can
//! be verified by building it again.
//!
//! Images contain no root certificates: the server's HTTP client has Mozilla's compiled in, and a
//! cluster mounts its own for the controller. A kubeconfig without a certificate authority does not
//! work in an image.

mod architecture;
mod archive;
mod compile;
mod layer;
mod sbom;
mod source;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

pub use architecture::Architecture;
pub(crate) use archive::{Contents, hex, labels, pack};
pub use archive::{Variant, Written, write};
pub(crate) use layer::Layer;
pub use layer::layer;
pub(crate) use layer::{gzip, tar};
pub use sbom::bill;
pub use source::Source;
pub(crate) use source::rfc3339;

/// An image: its programs and the data that a runtime needs to start it.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    pub name: &'static str,
    /// The files in the root directory. The first one is the entrypoint.
    pub programs: &'static [Program],
    /// `uid:gid` as numbers, which `runAsNonRoot` of Kubernetes requires.
    pub user: &'static str,
    /// TCP ports on which it listens by default.
    pub ports: &'static [u16],
    /// Description in one sentence, a label of the image.
    pub description: &'static str,
}

/// A program of the workspace.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Program {
    pub package: &'static str,
    pub name: &'static str,
}

/// A program with the name of its package.
const fn program(name: &'static str) -> Program {
    Program {
        package: name,
        name,
    }
}

const CLI: Program = Program {
    package: "albacore-cli",
    name: "albacore",
};

const LABORATORY: Program = Program {
    package: "albacore-lab-commands",
    name: "albacore-lab",
};

/// A user that owns no files, neither in the image nor on a node.
const NOBODY: &str = "65532:65532";

/// Runtimes grant capabilities only to root; the agent's pod drops all but one.
const ROOT: &str = "0:0";

/// Every image that is built.
pub const IMAGES: [Image; 6] = [
    Image {
        name: "albacore-server",
        programs: &[program("albacore-server")],
        user: NOBODY,
        ports: &[8080, 8081],
        description: "Serves tree models over the Open Inference Protocol",
    },
    Image {
        name: "albacore-controller",
        programs: &[program("albacore-controller")],
        user: NOBODY,
        ports: &[9090],
        description: "Turns InferenceDeployments into running services",
    },
    Image {
        name: "albacore-agent",
        programs: &[program("albacore-agent")],
        user: ROOT,
        ports: &[],
        description: "Places the threads of serving pods on the cpus of its node",
    },
    Image {
        name: "albacore-params",
        programs: &[program("albacore-params")],
        user: NOBODY,
        ports: &[8082, 9091],
        description: "Hands serving pods the parameters of their deployments",
    },
    Image {
        name: "albacore-cli",
        programs: &[CLI],
        user: NOBODY,
        ports: &[],
        description: "Plans, explains and reports placements",
    },
    Image {
        name: "albacore-experiment",
        // starts the others
        programs: &[
            LABORATORY,
            CLI,
            program("albacore-server"),
            program("albacore-params"),
        ],
        user: NOBODY,
        ports: &[],
        description: "Compares policies of placement on a node",
    },
];

/// The registry in `charts/albacore/values.yaml`.
pub const REGISTRY: &str = "registry.albacore.dev/albacore";

impl Image {
    /// The image reference for runtimes and charts: registry, repository and tag.
    #[must_use]
    pub fn reference(&self, source: &Source) -> String {
        format!("{REGISTRY}/{}:{}", self.name, source.version)
    }
}

/// All programs of all images, without duplicates.
#[must_use]
pub fn programs() -> Vec<Program> {
    let mut all: Vec<Program> = Vec::new();
    for program in IMAGES.iter().flat_map(|image| image.programs) {
        if !all.contains(program) {
            all.push(*program);
        }
    }
    all
}

/// Stripped programs of one architecture, by name.
pub type Programs = BTreeMap<&'static str, Vec<u8>>;

/// Result of a build.
pub struct Built {
    pub programs: BTreeMap<Architecture, Programs>,
    /// References of the images and their digests.
    pub digests: Vec<(String, String)>,
}

/// Compiles every program of the checkout at `root` for each of `architectures`, and writes
/// archives, bills of materials (`IMAGE-ARCHITECTURE.cdx.json`) and the programs with symbols
/// (`symbols/PACKAGE-ARCHITECTURE`) to `folder`.
///
/// # Errors
/// A target or the C compiler is missing, the code does not compile, or the directory is not
/// writable.
pub fn run(root: &Path, folder: &Path, architectures: &[Architecture]) -> Result<Built> {
    let source = Source::read(root)?;
    std::fs::create_dir_all(folder.join("symbols"))
        .with_context(|| folder.display().to_string())?;
    let mut compiled = BTreeMap::new();
    for &architecture in architectures {
        compiled.insert(architecture, compile_all(root, folder, architecture)?);
    }
    println!("writing {} images", IMAGES.len());
    let mut digests = Vec::new();
    for image in &IMAGES {
        let contents: Vec<(Architecture, Vec<&[u8]>)> = compiled
            .iter()
            .map(|(&architecture, programs)| (architecture, of_image(image, programs)))
            .collect();
        let variants: Vec<Variant<'_>> = contents
            .iter()
            .map(|(architecture, programs)| Variant {
                architecture: *architecture,
                programs,
            })
            .collect();
        let archive = folder.join(format!("{}.tar", image.name));
        let written = write(image, &source, &variants)?;
        std::fs::write(&archive, &written.bytes).with_context(|| archive.display().to_string())?;
        for variant in &variants {
            let name = format!("{}-{}.cdx.json", image.name, variant.architecture.oci());
            let file = folder.join(name);
            std::fs::write(&file, bill(root, image, &source, variant)?)
                .with_context(|| file.display().to_string())?;
        }
        let mebibytes = written.bytes.len() as f64 / f64::from(1 << 20);
        println!("wrote {} ({mebibytes:.1} MiB)", archive.display());
        println!("      {}@{}", image.reference(&source), written.digest);
        digests.push((image.reference(&source), written.digest));
    }
    Ok(Built {
        programs: compiled,
        digests,
    })
}

fn of_image<'a>(image: &Image, programs: &'a Programs) -> Vec<&'a [u8]> {
    let named = image.programs.iter();
    named
        .map(|program| programs.get(program.name).map_or(&[][..], Vec::as_slice))
        .collect()
}

/// Compiles and strips every program for `architecture`; writes the programs with symbols to
/// `folder`.
fn compile_all(root: &Path, folder: &Path, architecture: Architecture) -> Result<Programs> {
    let compiler = compile::Compiler::find(root, architecture)?;
    let (start, name) = (Instant::now(), architecture.oci());
    let programs = programs();
    println!("compiling {} programs for {name}", programs.len());
    let files = compiler.compile(&programs)?;
    println!("compiled after {} s", start.elapsed().as_secs());
    let mut contents = Programs::new();
    for (program, file) in programs.iter().zip(files) {
        let stripped = compiler.strip(&file)?;
        let bytes = std::fs::read(&stripped).with_context(|| stripped.display().to_string())?;
        contents.insert(program.name, bytes);
        let symbols = folder.join(format!("symbols/{}-{name}", program.package));
        std::fs::copy(&file, &symbols).with_context(|| symbols.display().to_string())?;
    }
    Ok(contents)
}
