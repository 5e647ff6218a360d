//! `xtask images`: container images without a container builder.
//!
//! Each program is compiled into a static file, the only one of its layer, and written as an
//! archive of the OCI image layout, with its bill of materials beside it. Equal sources and
//! compilers give equal bytes, so an image can be verified by building it again.
//!
//! No image holds root certificates: the HTTP client of the server has those of Mozilla compiled
//! in, and a cluster mounts its own for the controller. A kubeconfig without a certificate
//! authority fails in an image.

mod archive;
mod compile;
mod layer;
mod sbom;
mod source;

use std::path::Path;
use std::time::Instant;

use anyhow::{Context as _, Result};

pub use archive::{Written, write};
pub use layer::layer;
pub use sbom::bill;
pub use source::Source;

/// One image: a program and what a runtime must know to start it.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The package that holds the program; the image's name, too.
    pub package: &'static str,
    /// The program: the only file, at the root.
    pub program: &'static str,
    /// `uid:gid`, as numbers: `runAsNonRoot` of Kubernetes requires that.
    pub user: &'static str,
    /// TCP ports on which it listens by default.
    pub ports: &'static [u16],
    /// One sentence, a label of the image.
    pub description: &'static str,
}

/// A user that owns no file, neither in the image nor on a node.
const NOBODY: &str = "65532:65532";

/// Runtimes give a capability to root alone; the agent's pod drops all but one.
const ROOT: &str = "0:0";

/// Every image that is built.
pub const IMAGES: [Image; 5] = [
    Image {
        package: "albacore-server",
        program: "albacore-server",
        user: NOBODY,
        ports: &[8080, 8081],
        description: "Serves tree models over the Open Inference Protocol",
    },
    Image {
        package: "albacore-controller",
        program: "albacore-controller",
        user: NOBODY,
        ports: &[9090],
        description: "Turns InferenceDeployments into running services",
    },
    Image {
        package: "albacore-agent",
        program: "albacore-agent",
        user: ROOT,
        ports: &[],
        description: "Places the threads of serving pods on the cpus of its node",
    },
    Image {
        package: "albacore-params",
        program: "albacore-params",
        user: NOBODY,
        ports: &[8082, 9091],
        description: "Hands serving pods the parameters of their deployments",
    },
    Image {
        package: "albacore-cli",
        program: "albacore",
        user: NOBODY,
        ports: &[],
        description: "Plans, explains and reports placements",
    },
];

/// The registry of `charts/albacore/values.yaml`.
pub const REGISTRY: &str = "registry.albacore.dev/albacore";

impl Image {
    /// The name that runtimes and charts use: registry, repository and tag.
    #[must_use]
    pub fn reference(&self, source: &Source) -> String {
        format!("{REGISTRY}/{}:{}", self.package, source.version)
    }
}

/// Compiles every image's program from the checkout at `root` and writes archives, bills of
/// materials and the programs with their function names (`PACKAGE.symbols`) to `folder`.
///
/// # Errors
/// A missing target or C compiler, code that does not compile, a folder that cannot be written.
pub fn run(root: &Path, folder: &Path) -> Result<()> {
    let source = Source::read(root)?;
    let compiler = compile::Compiler::find(root)?;
    std::fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    let start = Instant::now();
    println!("[1/2] compiling {} programs in one build", IMAGES.len());
    let files = compiler.compile(&IMAGES)?;
    println!(
        "[2/2] writing {} images after {} s",
        IMAGES.len(),
        start.elapsed().as_secs()
    );
    for (image, file) in IMAGES.iter().zip(files) {
        let stripped = compiler.strip(&file)?;
        let program = std::fs::read(&stripped).with_context(|| stripped.display().to_string())?;
        let symbols = folder.join(format!("{}.symbols", image.package));
        std::fs::copy(&file, &symbols).with_context(|| symbols.display().to_string())?;
        let archive = folder.join(format!("{}.tar", image.package));
        let written = write(image, &source, &program)?;
        std::fs::write(&archive, &written.bytes).with_context(|| archive.display().to_string())?;
        let bill_file = folder.join(format!("{}.cdx.json", image.package));
        std::fs::write(&bill_file, bill(root, image, &source, &program)?)
            .with_context(|| bill_file.display().to_string())?;
        let mebibytes = written.bytes.len() as f64 / f64::from(1 << 20);
        println!("wrote {} ({mebibytes:.1} MiB)", archive.display());
        println!("      {}@{}", image.reference(&source), written.digest);
    }
    Ok(())
}
