//! Reference page of all commands, generated from their help.

use super::Cli;
use clap::CommandFactory;

const HEAD: &str = "\
# Commands

<!-- Generated from crates/ydl/src/cli by `UPDATE_EXPECT=1 cargo test -p ydl --test cli arguments`. -->

Data goes to stdout, everything else to stderr. With `--json` a command prints one JSON object per line. Exit codes
are listed in [exit-codes.md](exit-codes.md).
";

/// Renders `docs/reference/commands.md`: the help of every command.
pub fn reference() -> String {
    let mut page = HEAD.to_string();
    let mut program = Cli::command().term_width(100);
    program.build();
    for command in program.get_subcommands_mut().filter(|command| !command.is_hide_set()) {
        // Flags of every command are listed once, at the end.
        let name = command.get_name().to_string();
        let help = command.clone().mut_args(|arg| {
            let shared = ["json", "color", "cluster"].contains(&arg.get_id().as_str());
            arg.hide(shared)
        });
        page += &section(&format!("ydl {name}"), help);
        for inner in command.get_subcommands().filter(|_| name == "kv") {
            let help = inner.clone().mut_args(|arg| {
                let shared = ["json", "color", "cluster", "job"].contains(&arg.get_id().as_str());
                arg.hide(shared)
            });
            page += &section(&format!("ydl kv {}", inner.get_name()), help);
        }
    }
    page += &section("ydl", program);
    page
}

fn section(title: &str, mut command: clap::Command) -> String {
    let help = command.render_help().to_string();
    let lines: Vec<_> = help.lines().map(str::trim_end).collect();
    format!("\n## `{title}`\n\n```text\n{}\n```\n", lines.join("\n").trim_end())
}
