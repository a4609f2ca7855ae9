//! File systems that a job names for their tokens.

use super::check::Findings;
use yarn_native::config::Config;
use ydl_storage::hdfs::token_systems;

/// Checks that the configuration knows the file systems of a job. Without security there are no tokens, so unknown
/// ones are no error.
pub fn check_file_systems(
    named: &[String],
    config: &Config,
    is_secure: bool,
    findings: &mut Findings,
) {
    if named.is_empty() {
        return;
    }
    if !is_secure {
        findings.note(
            "`file_systems` has no effect: this cluster has no security, so its file systems need no tokens",
        );
        return;
    }
    for url in named {
        if let Err(error) = token_systems(config, url) {
            let what = format!("`file_systems`: {}", error.what);
            findings.refuse(what, error.hint.unwrap_or_default());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use yarn_native::config::Environment;

    fn findings(is_secure: bool) -> Findings {
        let named = ["viewfs://root", "viewfs://nowhere", "s3a://bucket", "hdfs://other"];
        let mut config = Config::defaults(Environment::default());
        config.set("fs.viewfs.mounttable.root.link./user", "hdfs://one/user", "a test");
        let mut findings = Findings::default();
        check_file_systems(&named.map(str::to_owned), &config, is_secure, &mut findings);
        findings
    }

    #[test]
    fn unknown_file_systems_are_rejected_only_with_security() {
        let insecure = findings(false);
        assert_eq!((insecure.refusals.len(), insecure.notes.len()), (0, 1));
        let secure = findings(true);
        let refused: Vec<_> = secure.refusals.iter().map(|problem| problem.what.as_str()).collect();
        assert_eq!(refused.len(), 2, "{refused:?}");
        assert!(refused[0].starts_with("`file_systems`: cannot resolve `viewfs://nowhere`: "));
        assert_eq!(refused[1], "`file_systems`: no token can be fetched for `s3a://bucket`");
        assert!(secure.notes.is_empty() && secure.refusals.iter().all(|it| !it.hint.is_empty()));
    }
}
