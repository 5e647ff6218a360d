//! A node to look at: starts one, puts programs of the workspace on it as images, and ends with its input.
//! `cargo run -p albacore-testbed --example node -- albacore-controller:65532 albacore-server:65532`

use std::io::Read as _;

use albacore_testbed::{Image, Node, NodeOptions, TestbedError, product};

fn main() -> Result<(), TestbedError> {
    let node = Node::start(&NodeOptions::default())?;
    for argument in std::env::args().skip(1) {
        let (package, user) = argument.split_once(':').unwrap_or((&argument, "65532"));
        let archive = node.folder().join(package).with_extension("tar");
        let image = Image {
            reference: format!(
                "registry.albacore.dev/albacore/{package}:{}",
                env!("CARGO_PKG_VERSION")
            ),
            program: product(package)?,
            user: user.parse().unwrap_or(65_532),
            ..Image::default()
        };
        image.write(&archive)?;
        node.import(&archive)?;
    }
    println!("folder: {}", node.folder().display());
    println!("shell in it: {}", node.entrance()?);
    println!("export KUBECONFIG={}", node.plane().kubeconfig().display());
    println!("It ends with the end of the input.");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    Ok(())
}
