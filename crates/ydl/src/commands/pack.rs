//! `ydl pack`: what `submit` packs, by itself.

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

/// Packs, and says what came of it.
pub fn run(args: cli::PackArgs, global: GlobalArgs) -> Result<Exit, Report> {
    let source = args.source.map_or_else(usual, Ok)?;
    let environment = jobfile::named_environment(&source.to_string_lossy(), &args.interpreter);
    let environment = environment.map_err(|(what, hint)| {
        let report = Report::bad_input(what);
        match hint.is_empty() {
            true => report,
            false => report.hint(hint),
        }
    })?;
    if let Some(dir) = args.output.as_ref().filter(|dir| dir.exists() && !dir.is_dir()) {
        let what = format!("`{}` is a file, and layers are put into a directory", dir.display());
        return Err(Report::bad_input(what).hint("name another place, or leave `-o` out"));
    }
    let began = Instant::now();
    let environment = pack::build(&environment, &|said| terminal::message(said))?;
    let packed = pack::pack(&environment, &Cache::of_user()?.with_progress(terminal::message))?;
    let took = began.elapsed();
    let mut files = Vec::new();
    if let Some(dir) = &args.output {
        for layer in &packed.layers {
            let file = dir.join(format!("{}.tar.gz", layer.name));
            put(&layer.file, &file)?;
            files.push(file);
        }
    }
    for note in &packed.notes {
        terminal::message(format!("note: {note}"));
    }
    if global.json {
        let mut about = json!({
            "layers": packed.layers,
            "manifest": packed.manifest,
            "notes": packed.notes,
            "seconds": took.as_secs_f64(),
        });
        for (at, file) in files.iter().enumerate() {
            about["layers"][at]["file"] = json!(file);
        }
        terminal::print_json(&about)?;
        return Ok(Exit::Success);
    }
    terminal::print(page(&packed))?;
    let fresh = packed.layers.iter().filter(|layer| !layer.cached).count();
    terminal::message(match fresh {
        0 => format!("nothing changed since it was packed ({:.2}s)", took.as_secs_f64()),
        _ => format!("packed in {:.1}s", took.as_secs_f64()),
    });
    Ok(Exit::Success)
}

/// The environment that is meant if none is named.
fn usual() -> Result<PathBuf, Report> {
    let active = [env::VIRTUAL_ENV, env::CONDA_PREFIX].map(std::env::var_os);
    let active = active.into_iter().flatten().map(PathBuf::from);
    let mut here = [".venv", "venv"].map(PathBuf::from).into_iter();
    active.chain(here.by_ref()).find(|dir| dir.join("bin").is_dir()).ok_or_else(|| {
        let what = "no environment is active, and there is neither `.venv` nor `venv` here";
        Report::bad_input(what).hint("name one: `ydl pack ./my-venv`")
    })
}

/// Copies a layer out of the cache: written aside, then renamed.
fn put(from: &Path, to: &Path) -> Result<(), Report> {
    let aside = to.with_extension("aside");
    let copied = to
        .parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::copy(from, &aside))
        .and_then(|_| fs::rename(&aside, to));
    copied.map_err(|error| {
        // Half of it is of no use. What cannot be removed either is not worth another word.
        let _ = fs::remove_file(&aside);
        let what = format!("cannot write `{}`: {}", to.display(), reason(&error));
        Report::internal(what)
    })
}

fn page(packed: &PackedEnvironment) -> String {
    let rows = packed.layers.iter().map(|layer| {
        let known = &layer.known;
        vec![
            Cell::from(layer.name.to_owned()),
            counted_bytes(known.bytes).into(),
            counted_bytes(known.unpacked).into(),
            known.files.to_string().into(),
            known.hash.get(..16).unwrap_or_default().to_owned().into(),
        ]
    });
    let head = ["LAYER", "PACKED", "UNPACKED", "FILES", "SHA-256"];
    let mut lines = terminal::table(&head, rows.collect(), None);
    let manifest = &packed.manifest;
    lines.push(String::new());
    if let Some(python) = &manifest.python {
        let from = match python.bundled {
            true => "which travels along",
            false => "which every node must have",
        };
        lines.push(format!("python {}, {from}", python.version));
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
