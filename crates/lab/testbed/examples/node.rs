//! An interactive node: starts it, imports programs of the workspace as images, and exits at the
//! end of standard input. `cargo run -p albacore-testbed --example node --
//! albacore-controller:65532 albacore-server:65532` With `emulated` as the first argument the node
//! is an emulated machine, and its commands are read from standard input, one per line.

use albacore_testbed::{Image, Machine, Node, NodeOptions, TestbedError, product};

fn main() -> Result<(), TestbedError> {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let is_emulated = arguments.first().is_some_and(|word| word == "emulated");
    let mut options = NodeOptions::default();
    if is_emulated {
        options.machine = Machine::Emulated;
        arguments.remove(0);
    }
    let node = Node::start(&options)?;
    for argument in arguments {
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
    if !is_emulated {
        println!("shell in it: {}", node.shell_command()?);
    }
    println!("export KUBECONFIG={}", node.plane().kubeconfig().display());
    println!("The node stops at the end of the input.");
    for line in std::io::stdin().lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if !words.is_empty() {
            let output = node.exec(&words)?;
            print!("{}", String::from_utf8_lossy(&output.stdout));
            eprint!("{}", String::from_utf8_lossy(&output.stderr));
        }
    }
    Ok(())
}
