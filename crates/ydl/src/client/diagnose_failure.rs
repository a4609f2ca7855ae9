//! Diagnoses of failures: why a job ended without a result, from YARN's diagnostics of its master's containers, and what a
//! program did not find.

mod missing;

pub(crate) use missing::missing_file_hint;

use crate::backend::yarn::exec_failure_reason;

/// Cause of a failure in one sentence, and a hint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Diagnosis {
    pub what: String,
    pub hint: String,
}

/// Returns the cause if the diagnostics show a known one.
pub(crate) fn diagnose(diagnostics: &str) -> Option<Diagnosis> {
    let diagnosis = |cause: String, hint: &str| {
        let hint = hint.to_owned();
        Some(Diagnosis { what: cause, hint })
    };
    let line = |marker: &str| diagnostics.lines().find(|line| line.contains(marker));
    if let Some(why) = exec_failure_reason(diagnostics) {
        return diagnosis(
            format!("the master's node cannot execute `ydl`: {why}"),
            "compare `uname -m` on this machine and on the nodes; ask an administrator whether the nodes' `yarn.nodemanager.local-dirs` are mounted `noexec`",
        );
    }
    if let Some(line_text) = line("File does not exist: ") {
        let file = word_after(line_text, "File does not exist: ");
        return diagnosis(
            format!("the master's node could not fetch `{file}`: the file was deleted"),
            "submit the job again",
        );
    }
    if let Some(line_text) = line(" changed on src filesystem") {
        let file = line_text.split(" changed on src filesystem").next();
        let file = file.and_then(|before| before.split_whitespace().next_back());
        return diagnosis(
            format!(
                "the master's node could not fetch `{}`: the file was changed after the job was submitted",
                file.unwrap_or_default()
            ),
            "submit the job again",
        );
    }
    if let Some(line_text) = line("Current usage: ") {
        let usage = rest_after(line_text, "Current usage: ");
        let usage = usage.split(" Killing").next().unwrap_or(usage);
        return diagnosis(
            format!("the master exceeded its memory limit: {}", usage.trim_end_matches('.')),
            "raise `master.memory`",
        );
    }
    if line("ApplicationMaster for attempt")
        .is_some_and(|line_text| line_text.contains(" timed out"))
    {
        return diagnosis(
            "the master was started, and its heartbeats to the ResourceManager timed out"
                .to_owned(),
            "check the load of the master's node and its network to the ResourceManager; then submit the job again",
        );
    }
    if line("No space left on device").is_some() {
        return diagnosis(
            "the disk of the master's node is full".to_owned(),
            "submit the job again, or report the node to an administrator",
        );
    }
    None
}

/// Returns the word after a marker.
fn word_after<'a>(line: &'a str, marker: &str) -> &'a str {
    let rest = rest_after(line, marker);
    rest.split_whitespace().next().unwrap_or_default()
}

/// Returns the text after a marker.
fn rest_after<'a>(line: &'a str, marker: &str) -> &'a str {
    line.split_once(marker).map_or("", |(_, rest)| rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cause(diagnostics: &str) -> Option<String> {
        diagnose(diagnostics).map(|diagnosis| diagnosis.what)
    }

    #[test]
    fn yarn_diagnostics_of_a_master_are_diagnosed() {
        let exec = "Application application_1_0001 failed 2 times due to AM Container for appattempt_1_0001_000002 exited with  exitCode: 126\n\
            Failing this attempt.Diagnostics: [2026-11-16 00:20:11.101]Exception from container-launch.\n\
            [2026-11-16 00:20:11.103]Container exited with a non-zero exit code 126. Error file: prelaunch.err.\n\
            Last 4096 bytes of master.stderr :\n/bin/bash: line 1: /nm/ydl: cannot execute binary file: Exec format error\n";
        assert_eq!(
            cause(exec).as_deref(),
            Some(
                "the master's node cannot execute `ydl`: it is made for another kind of processor"
            )
        );
        let gone = "Failing this attempt.Diagnostics: [2026-11-16 00:20:11.101]File does not exist: hdfs://nn:8020/user/a/.ydl/content/1.file\n\
            java.io.FileNotFoundException: File does not exist: hdfs://nn:8020/user/a/.ydl/content/1.file\n\tat x";
        assert_eq!(
            cause(gone).as_deref(),
            Some(
                "the master's node could not fetch `hdfs://nn:8020/user/a/.ydl/content/1.file`: the file was deleted"
            )
        );
        let memory = "[2026-11-16 00:20:11.101]Container [pid=1,containerID=c] is running 10B beyond the 'PHYSICAL' memory limit. \
            Current usage: 200.1 MB of 128 MB physical memory used; 2.3 GB of 268.8 MB virtual memory used. Killing container.";
        assert_eq!(
            cause(memory).as_deref(),
            Some(
                "the master exceeded its memory limit: 200.1 MB of 128 MB physical memory used; 2.3 GB of 268.8 MB virtual memory used"
            )
        );
        let late = "Application application_1_0001 failed 2 times due to ApplicationMaster for attempt \
            appattempt_1_0001_000002 timed out. Failing the application.";
        assert_eq!(
            cause(late).as_deref(),
            Some("the master was started, and its heartbeats to the ResourceManager timed out")
        );
        assert_eq!(cause("Application a was killed by user root at 127.0.0.1"), None);
        for truncated in
            ["", "File does not exist: ", "Current usage: ", " changed on src filesystem"]
        {
            // Truncated text must not cause a panic.
            let _ = diagnose(truncated);
        }
    }
}
