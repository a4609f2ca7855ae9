//! Compat commands: help, links and their names.

use super::workspace::{Desk, runs, told};
use expect_test::expect;
use std::{fs, process::Command};

#[test]
fn every_door_has_help_and_none_is_missing_from_the_list() {
    let desk = Desk::new();
    for door in ydl::compat::all() {
        for name in door.names {
            let help = desk.said(&[name, "--help"]);
            assert!(help.contains(&format!("Usage: {name} ")), "{help}");
            assert!(help.ends_with("exit 0\n"), "{help}");
            // A tracker is no job.
            let is_job = !name.contains("tracker");
            assert_eq!(help.contains("--dry-run"), is_job, "{help}");
            let nothing = desk.run(&[name]);
            assert_eq!(nothing.status.code(), Some(2), "{name}");
        }
    }
}

#[test]
fn a_link_of_a_door_s_name_is_that_door() {
    let desk = Desk::new();
    let link = desk.path().join("dmlc-submit");
    std::os::unix::fs::symlink(ydl_testkit::ydl(), &link).unwrap();
    let mut command = Command::new(link);
    let words = ["--cluster", "local", "--num-workers", "1", "--show", "python", "train.py"];
    let output = command.current_dir(desk.path()).args(words).output().unwrap();
    assert!(told(&output).contains("framework: xgboost\n"), "{}", told(&output));
}

#[test]
fn links_are_made_for_every_door_and_nothing_of_others_is_replaced() {
    let desk = Desk::new();
    let listed = desk.said(&["compat"]);
    assert!(listed.contains("dmlc-yarn, dmlc-yarn.py, dmlc_yarn.py\n"), "{listed}");
    // A second time changes nothing.
    for _ in 0..2 {
        runs(&desk, "compat --install bin");
    }
    let link = desk.path().join("bin/ydl-mx");
    let help = Command::new(&link).arg("--help").output().unwrap();
    assert!(told(&help).contains("Usage: ydl-mx --n N"), "{}", told(&help));
    // What people call with Python is something that Python runs, and a shell, too.
    for name in ["launch.py", "dmlc-yarn.py"] {
        let script = desk.path().join("bin").join(name);
        let called = Command::new(&script).arg("--help").output().unwrap();
        let python = Command::new("python3").arg(&script).arg("--help").output();
        for help in [called, python.unwrap()] {
            let help = told(&help);
            assert!(help.contains(&format!("Usage: {name} -n N")), "{help}");
        }
    }
    // Unlisted names of older versions.
    for name in ["dmlc_submit.py", "yarn_tf.py", "dmlc_tracker.py"] {
        let help = desk.said(&[name, "--help"]);
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
    }
    fs::remove_dir_all(desk.path().join("bin")).unwrap();
    fs::create_dir(desk.path().join("bin")).unwrap();
    fs::write(&link, "another's").unwrap();
    expect![[r#"
        error: `bin/ydl-mx` exists already

        hint: remove it, or choose another directory
        exit 2
    "#]]
    .assert_eq(&desk.said(&["compat", "--install", "bin"]));
    let left = fs::read_dir(desk.path().join("bin")).unwrap().count();
    assert_eq!(left, 1, "nothing else was made");
}
