//! Reports what preflight found.

use crate::{cli::GlobalArgs, client::preflight::Findings, terminal};
use ydl_core::JobSpec;
use ydl_os::report::{Exit, Report};

/// Prints every refusal at once, or the notes if there is none.
pub(crate) fn print_findings(findings: &Findings) -> Option<Exit> {
    if !findings.refusals.is_empty() {
        terminal::message(findings.to_string());
        return Some(Exit::BadInput);
    }
    for note in &findings.notes {
        terminal::message(format!("note: {note}"));
    }
    None
}

/// Reports whether the job could run, without changing anything.
pub(crate) fn dry_run(
    spec: &JobSpec,
    findings: &Findings,
    global: GlobalArgs,
) -> Result<Exit, Report> {
    let exit = print_findings(findings).unwrap_or(Exit::Success);
    if global.json {
        let refusals = findings.refusals.iter();
        let refusals: Vec<_> =
            refusals.map(|r| serde_json::json!({ "what": r.what, "hint": r.hint })).collect();
        terminal::print_json(
            &serde_json::json!({ "refusals": refusals, "notes": findings.notes }),
        )?;
    } else if exit == Exit::Success {
        terminal::message(format!(
            "the job could run: {} tasks and its master; nothing was submitted",
            spec.task_count()
        ));
    }
    Ok(exit)
}
