//! `ydl pack`: packs an environment as `submit` does, without submitting a job.

use crate::{
    cli::{self, GlobalArgs},
    terminal::{self, Cell, counted_bytes},
};
use serde_json::json;
use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};
use ydl_jobfile as jobfile;
use ydl_os::{
    env, reason,
    report::{Exit, Report},
};
use ydl_pack::{self as pack, Cache, PackedEnvironment};

/// Number of the largest packages shown.
const LARGEST: usize = 8;

/// Packs the environment and prints its layers.
pub(crate) fn run(args: cli::PackArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let source = args.source.map_or_else(default_environment, Ok)?;
    let environment = jobfile::named_environment(&source.to_string_lossy(), &args.interpreter);
    let environment = environment.map_err(|(what, hint)| {
        let report = Report::bad_input(what);
        match hint.is_empty() {
            true => report,
            false => report.hint(hint),
        }
    })?;
    if let Some(dir) = args.output.as_ref().filter(|dir| dir.exists() && !dir.is_dir()) {
        let what = format!("`{}` is a file, and `-o` needs a directory", dir.display());
        return Err(Report::bad_input(what).hint("name a directory, or leave `-o` out"));
    }
    let began = Instant::now();
    let environment = pack::build(&environment, &|message| terminal::message(message))?;
    let packed = pack::pack(&environment, &Cache::of_user()?.with_progress(terminal::message))?;
    let took = began.elapsed();
    let mut files = Vec::new();
    if let Some(dir) = &args.output {
        for layer in &packed.layers {
            let file = dir.join(format!("{}.tar.gz", layer.name));
            copy_layer(&layer.file, &file)?;
            files.push(file);
        }
    }
    for note in &packed.notes {
        terminal::message(format!("note: {note}"));
    }
    if global.json {
        let mut summary = json!({
            "layers": packed.layers,
            "manifest": packed.manifest,
            "notes": packed.notes,
            "seconds": took.as_secs_f64(),
        });
        for (n, file) in files.iter().enumerate() {
            summary["layers"][n]["file"] = json!(file);
        }
        terminal::print_json(&summary)?;
        return Ok(Exit::Success);
    }
    terminal::print(page(&packed))?;
    let fresh = packed.layers.iter().filter(|layer| !layer.cached).count();
    terminal::message(match fresh {
        0 => format!("every layer was cached ({:.2}s)", took.as_secs_f64()),
        _ => format!("packed in {:.1}s", took.as_secs_f64()),
    });
    Ok(Exit::Success)
}

/// Returns the active environment, or `.venv` or `venv` in the working directory.
fn default_environment() -> Result<PathBuf, Report> {
    let active = [env::VIRTUAL_ENV, env::CONDA_PREFIX].map(std::env::var_os);
    let active = active.into_iter().flatten().map(PathBuf::from);
    let local = [".venv", "venv"].map(PathBuf::from).into_iter();
    active.chain(local).find(|dir| dir.join("bin").is_dir()).ok_or_else(|| {
        let what = "no active environment, and no `.venv` or `venv` in the working directory";
        Report::bad_input(what).hint("name one: `ydl pack ./my-venv`")
    })
}

/// Copies a layer out of the cache, to a temporary file that is then renamed.
fn copy_layer(from: &Path, to: &Path) -> Result<(), Report> {
    let temporary = to.with_extension("part");
    let copied = to
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::copy(from, &temporary))
        .and_then(|_| fs::rename(&temporary, to));
    copied.map_err(|error| {
        // Removes the incomplete copy, if there is one.
        let _ = fs::remove_file(&temporary);
        let what = format!("cannot write `{}`: {}", to.display(), reason(&error));
        Report::internal(what)
    })
}

fn page(packed: &PackedEnvironment) -> String {
    let rows = packed.layers.iter().map(|layer| {
        let info = &layer.info;
        vec![
            Cell::from(layer.name.to_owned()),
            counted_bytes(info.bytes).into(),
            counted_bytes(info.unpacked).into(),
            info.files.to_string().into(),
            info.hash.get(..16).unwrap_or_default().to_owned().into(),
        ]
    });
    let head = ["LAYER", "PACKED", "UNPACKED", "FILES", "SHA-256"];
    let mut lines = terminal::table(&head, rows.collect(), None);
    let manifest = &packed.manifest;
    lines.push(String::new());
    if let Some(python) = &manifest.python {
        let origin = match python.bundled {
            true => "included in the layers",
            false => "which every node must have",
        };
        lines.push(format!("python {}, {origin}", python.version));
    }
    if let (Some((major, minor)), Some(file)) = (manifest.glibc, &manifest.glibc_file) {
        lines.push(format!("glibc {major}.{minor} or newer, because of {file}"));
    }
    let largest: Vec<_> = packed
        .largest(LARGEST)
        .iter()
        .map(|(name, bytes)| format!("{name} {}", counted_bytes(*bytes)))
        .collect();
    lines.push(format!("largest: {}", largest.join(", ")));
    lines.join("\n") + "\n"
}
