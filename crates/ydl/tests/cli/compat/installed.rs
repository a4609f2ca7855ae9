//! Compat commands: help, links and their names.

use super::workspace::{CompatWorkspace, render, run_successfully};
use expect_test::expect;
use std::{fs, process::Command};

#[test]
fn every_compat_command_has_help() {
    let workspace = CompatWorkspace::new();
    for command in ydl::compat_commands() {
        for name in command.names {
            let help = workspace.output_of(&[name, "--help"]);
            assert!(help.contains(&format!("Usage: {name} ")), "{help}");
            assert!(help.ends_with("exit 0\n"), "{help}");
            // A tracker does not start a job.
            let is_job = !name.contains("tracker");
            assert_eq!(help.contains("--dry-run"), is_job, "{help}");
            let nothing = workspace.run(&[name]);
            assert_eq!(nothing.status.code(), Some(2), "{name}");
        }
    }
}

#[test]
fn a_link_named_like_a_compat_command_runs_it() {
    let workspace = CompatWorkspace::new();
    let link = workspace.path().join("dmlc-submit");
    std::os::unix::fs::symlink(ydl_testkit::ydl(), &link).unwrap();
    let mut command = Command::new(link);
    let args = ["--cluster", "local", "--num-workers", "1", "--show", "python", "train.py"];
    let output = command.current_dir(workspace.path()).args(args).output().unwrap();
    assert!(render(&output).contains("framework: xgboost\n"), "{}", render(&output));
}

#[test]
fn compat_links_are_installed_without_replacing_other_files() {
    let workspace = CompatWorkspace::new();
    let listed = workspace.output_of(&["compat"]);
    assert!(listed.contains("dmlc-yarn, dmlc-yarn.py, dmlc_yarn.py\n"), "{listed}");
    // Repeating the installation changes nothing.
    for _ in 0..2 {
        run_successfully(&workspace, "compat --install bin");
    }
    let link = workspace.path().join("bin/ydl-mx");
    let help = Command::new(&link).arg("--help").output().unwrap();
    assert!(render(&help).contains("Usage: ydl-mx --n N"), "{}", render(&help));
    // Links with a Python ending are scripts that run with Python and directly.
    for name in ["launch.py", "dmlc-yarn.py"] {
        let script = workspace.path().join("bin").join(name);
        let called = Command::new(&script).arg("--help").output().unwrap();
        let python = Command::new("python3").arg(&script).arg("--help").output();
        for help in [called, python.unwrap()] {
            let help = render(&help);
            assert!(help.contains(&format!("Usage: {name} -n N")), "{help}");
        }
    }
    // Unlisted names of older versions.
    for name in ["dmlc_submit.py", "yarn_tf.py", "dmlc_tracker.py"] {
        let help = workspace.output_of(&[name, "--help"]);
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
    }
    fs::remove_dir_all(workspace.path().join("bin")).unwrap();
    fs::create_dir(workspace.path().join("bin")).unwrap();
    fs::write(&link, "another's").unwrap();
    expect![[r#"
        error: `bin/ydl-mx` exists already

        hint: remove it, or choose another directory
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&["compat", "--install", "bin"]));
    let left = fs::read_dir(workspace.path().join("bin")).unwrap().count();
    assert_eq!(left, 1, "other files were created");
}
