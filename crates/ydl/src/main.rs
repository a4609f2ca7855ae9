use std::process::ExitCode;

fn main() -> ExitCode {
    match std::env::args().nth(1).as_deref() {
        Some("keep") => ydl::agent::keeper::run(),
        _ => ExitCode::from(2),
    }
}
