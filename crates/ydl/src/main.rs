use std::process::ExitCode;

fn main() -> ExitCode {
    let level = tracing::Level::INFO;
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .with_max_level(level)
        .init();
    let words: Vec<_> = std::env::args().collect();
    match words.get(1).map(String::as_str) {
        Some("keep") => ydl::agent::keeper::run(),
        Some("agent") => ydl::agent::run(words[2].clone().into()),
        Some("master") => ydl::master::run(words[2].clone().into()),
        _ => ExitCode::from(2),
    }
}
