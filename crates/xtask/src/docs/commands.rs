//! The command line reference of every program, from the output of `--help`.

use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

/// Package and name of the programs whose `--help` is printed.
pub const PROGRAMS: [(&str, &str); 6] = [
    ("albacore-cli", "albacore"),
    ("albacore-lab-commands", "albacore-lab"),
    ("albacore-server", "albacore-server"),
    ("albacore-controller", "albacore-controller"),
    ("albacore-agent", "albacore-agent"),
    ("albacore-params", "albacore-params"),
];

/// Started by `albacore` for the commands `bench`, `partition` and `simulate`, which print its
/// help.
const BEHIND_ALBACORE: &str = "albacore-lab";

/// One section for each program in `programs` and for each of its subcommands.
pub(super) fn all(programs: &Path) -> Result<String> {
    let mut text = String::new();
    for (_, program) in PROGRAMS.iter().filter(|(_, name)| *name != BEHIND_ALBACORE) {
        sections(&programs.join(program), program, &[], &mut text)?;
    }
    Ok(text)
}

fn sections(path: &Path, program: &str, commands: &[&str], text: &mut String) -> Result<()> {
    let help = help(path, commands)?;
    let words: Vec<&str> = std::iter::once(program)
        .chain(commands.iter().copied())
        .collect();
    let level = "#".repeat(2 + commands.len().min(2));
    text.push_str(&format!("{level} {}\n\n", words.join(" ")));
    text.push_str(&format!("```text\n{}\n```\n\n", help.trim_end()));
    for command in listed(&help) {
        let deeper: Vec<&str> = commands.iter().copied().chain([command]).collect();
        sections(path, program, &deeper, text)?;
    }
    Ok(())
}

fn help(path: &Path, commands: &[&str]) -> Result<String> {
    let mut command = Command::new(path);
    // The page must not depend on the width of the terminal.
    command.args(commands).arg("--help").env_remove("COLUMNS");
    let output = command
        .output()
        .with_context(|| path.display().to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(
            "{} {commands:?} --help: {}: {said}",
            path.display(),
            output.status
        );
    }
    let text = String::from_utf8(output.stdout)?;
    let lines: Vec<&str> = text.lines().map(str::trim_end).collect();
    Ok(lines.join("\n"))
}

/// Names in the section `Commands:` of a help text.
fn listed(help: &str) -> Vec<&str> {
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    let lines = lines.take_while(|line| line.starts_with("  "));
    // Continuation lines of a description are indented further.
    let entries = lines.filter_map(|line| line.strip_prefix("  "));
    let entries = entries.filter(|entry| !entry.starts_with(' '));
    let names = entries.filter_map(|entry| entry.split_whitespace().next());
    names.filter(|name| *name != "help").collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_listed_without_help_and_without_wrapped_lines() {
        let help = "X\n\nCommands:\n  plan   Decides\n           where\n  help   Print\n\nOptions:\n  -h\n";
        assert_eq!(listed(help), ["plan"]);
        assert!(listed("Options:\n  -h\n").is_empty());
    }
}
