//! Messages for invalid arguments and unsupported features.

use super::workspace::{CompatWorkspace, run_successfully};
use expect_test::{Expect, expect};
use std::{fs, process::Command};

#[test]
fn errors_name_the_compat_command_and_its_flag() {
    let workspace = CompatWorkspace::new();
    let check = |line: &str, expected: Expect| {
        let args: Vec<_> = line.split_whitespace().collect();
        expected.assert_eq(&workspace.output_of(&args));
    };
    check(
        "dmlc-submit --cluster yarn --num-wrokers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: unknown flag `--num-wrokers`

            hint: did you mean `--num-workers`?
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster slurm --num-workers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: cluster type `slurm` is not supported

            hint: use `yarn`, or `local` for this machine
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster yarn --num-workers 2 --kube-namespace x python train.py",
        expect![[r#"
            error: dmlc-submit: flag `--kube-namespace` is not supported: it is for Kubernetes

            hint: remove it: ydl runs jobs on YARN or on this machine
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster local --num-workers two --worker-memory 5 --env A python train.py",
        expect![[r#"
            error: dmlc-submit --env A: missing `=`

            hint: write `NAME=VALUE`

            error: dmlc-submit --num-workers two: `roles.worker.instances`: `two` is not a count

            hint: write a whole number

            error: dmlc-submit --worker-memory 5: `roles.worker.memory`: the size `5` has no unit

            hint: write `5 GiB`
            exit 2
        "#]],
    );
    check(
        "dmlc-yarn -n 2 --max-atempts 3 python train.py",
        expect![[r#"
            error: dmlc-yarn: unknown flag `--max-atempts`

            hint: did you mean `--max-attempts`?
            exit 2
        "#]],
    );
    check(
        "dmlc-yarn -n 2",
        expect![[r#"
            error: dmlc-yarn: the command to run is missing

            hint: write `dmlc-yarn … python train.py`
            exit 2
        "#]],
    );
    check(
        "launch.py -n 2 --lancher yarn python train.py",
        expect![[r#"
            error: launch.py: unknown flag `--lancher`

            hint: did you mean `--launcher`?
            exit 2
        "#]],
    );
    check(
        "launch.py -n 2 --launcher ssh -H hosts python train.py",
        expect![[r#"
            error: launch.py: flag `-H` is not supported: it is for MPI and ssh

            hint: remove it: ydl runs jobs on YARN or on this machine
            exit 2
        "#]],
    );
    check(
        "ydl-mx --n 2 --jobnam x train.py",
        expect![[r#"
            error: ydl-mx: unknown flag `--jobnam`

            hint: did you mean `--jobname`?
            exit 2
        "#]],
    );
    check(
        "ydl-mx train.py",
        expect![[r#"
            error: ydl-mx: the number of workers is missing

            hint: add `--n N`
            exit 2
        "#]],
    );
    check(
        "ydl-mx --n 2 --native fortran train.py",
        expect![[r#"
            error: ydl-mx: unknown language `fortran`

            hint: write `--native python`, `scala`, `java` or `cpp`
            exit 2
        "#]],
    );
    check(
        "yarn-tf --num_trainer 2 --shell_command date",
        expect![[r#"
            error: yarn-tf: unknown flag `--num_trainer`

            hint: did you mean `--num_trainers`?
            exit 2
        "#]],
    );
    check(
        "yarn-tf --num_trainers 2 date",
        expect![[r#"
            error: yarn-tf: unexpected argument `date`

            hint: see `yarn-tf --help`
            exit 2
        "#]],
    );
    check(
        "yarn-tf --num_trainers 2",
        expect![[r#"
            error: yarn-tf: the command to run is missing

            hint: write `--shell_command 'python trainer.py'`, or `--shell_script FILE`
            exit 2
        "#]],
    );
    check(
        "yarn-tf --num_trainers 2 --shell_command date --mounts /data:/data --output model:s3://x/y ../x:y z",
        expect![[r#"
            error: yarn-tf --mounts /data:/data: cannot mount at `/data` without an image

            hint: use a path below the task's directory, or name an image with `--docker_image`

            error: yarn-tf --output ../x:y: `../x` is not in the task's directory

            hint: name a path below the directory in which the program runs

            error: yarn-tf --output model:s3://x/y: `outputs.model.to`: outputs to `s3://` are not supported

            hint: use a path in HDFS, such as `hdfs:///user/me/out`

            error: yarn-tf --output z: `z` has no destination

            hint: write `SOURCE:DESTINATION`
            exit 2
        "#]],
    );
    check(
        "launch.py -n 1 --detach --download out python train.py",
        expect![[r#"
            error: launch.py: `--download` and `--detach` exclude each other

            hint: remove one of them; `ydl fetch JOB DIR` downloads at any time
            exit 2
        "#]],
    );
    check(
        "dmlc-tracker --num-worker 2 --num-srevers 1",
        expect![[r#"
            error: dmlc-tracker: unknown flag `--num-srevers`

            hint: did you mean `--num-servers`?
            exit 2
        "#]],
    );
    check(
        "dmlc-tracker --num-workers 2 --num-servers 1",
        expect![[r#"
            error: dmlc-tracker: a stand-alone tracker supports no parameter servers

            hint: use `dmlc-submit --num-servers N`
            exit 2
        "#]],
    );
    check(
        "dmlc-tracker --num-workers 0",
        expect![[r#"
            error: dmlc-tracker: a tracker supports 1 to 65536 workers, not 0
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster local --num-workers 1 --worker-memory 1x python train.py",
        expect![[r#"
            error: dmlc-submit --worker-memory 1x: `roles.worker.memory`: `x` is not a unit of size

            hint: sizes are in `MiB`, `GiB`, `TiB` (`m`, `g`, `t` for short), or in `MB`, `GB`, `TB`
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster local --num-workers 1 --auto-file-cache maybe python train.py",
        expect![[r#"
            error: dmlc-submit --auto-file-cache maybe: expected `true` or `false`
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --placement_spec x",
        expect![[r#"
            error: yarn-tf: flag `--placement_spec` is not supported: it is for DistributedShell

            hint: use `placement` in a job file
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster yarn --num-workers 1 python train.py",
        expect![[r#"
            note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
            error: dmlc-submit: no Hadoop configuration found

            hint: set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --num-workers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: the cluster type is missing

            hint: add `--cluster yarn`, or `--cluster local` for this machine, or set `DMLC_SUBMIT_CLUSTER`
            exit 2
        "#]],
    );
    assert!(!workspace.path().join("state").exists(), "files were created");
}

#[test]
fn a_missing_program_is_rejected_before_submission() {
    let workspace = CompatWorkspace::new();
    workspace.file("lib/inner.py").file("code.tar");
    let run_args = |line: &str| {
        let args: Vec<_> = line.split_whitespace().collect();
        workspace.output_of(&args)
    };
    expect![[r#"
        error: ydl-mx: program `nofile.py` not found on this machine

        hint: name a file on this machine, which is shipped, or the absolute path of a program on the nodes
        exit 2
    "#]]
    .assert_eq(&run_args("ydl-mx --n 2 --launcher yarn nofile.py"));
    for line in [
        "ydl-mx local nofile.py --n 3",
        "dmlc-submit --cluster local --num-workers 1 python -u nofile.py",
        "dmlc-submit --cluster local --num-workers 1 A=/x python3 nofile.py",
        "dmlc-yarn -n 1 ./nofile --epochs 3",
        "launch.py -n 1 --launcher local sh nofile.sh",
    ] {
        let output = run_args(line);
        assert!(output.contains("not found on this machine\n"), "{line}: {output}");
        assert!(output.ends_with("exit 2\n"), "{line}: {output}");
    }
    // Programs that may exist on the nodes are not checked.
    for line in [
        "ydl-mx --show --n 2 --launcher local /opt/nofile.py",
        "ydl-mx --show --n 2 --launcher yarn --archives code.tar nofile.py",
        "ydl-mx --show --n 2 --launcher local lib/inner.py",
        "ydl-mx --show --n 2 --launcher yarn --files lib lib/inner.py",
        "ydl-mx --show --n 2 --launcher yarn --files lib/inner.py#nofile.py nofile.py",
        "dmlc-submit --show --cluster local --num-workers 1 --auto-file-cache 0 python nofile.py",
        "dmlc-submit --show --cluster local --num-workers 1 python -m nofile",
        "dmlc-submit --show --cluster local --num-workers 1 java Main",
        "dmlc-submit --show --cluster local --num-workers 1 nofile",
    ] {
        let output = run_args(line);
        assert!(output.ends_with("exit 0\n"), "{line}: {output}");
    }
    assert!(!workspace.path().join("state").exists(), "files were created");
}

#[test]
fn a_file_that_is_not_an_archive_is_rejected() {
    let workspace = CompatWorkspace::new();
    for name in ["bad.tar", "bad.tar.gz", "bad.zip"] {
        fs::write(workspace.path().join(name), "just some text\n".repeat(100)).unwrap();
        let args = ["yarn-tf", "--cluster", "local", "--shell_command", "date"];
        let output = workspace.output_of(&[&args[..], &["--tar", name]].concat());
        let expected = format!(
            "error: yarn-tf --tar {name}: `{name}` is not a valid archive\n\n\
             hint: create one with `tar -cf code.tar …`\nexit 2\n"
        );
        assert_eq!(output, expected);
    }
    for format in ["v7", "ustar", "gnu", "pax"] {
        let format = format!("--format={format}");
        let made = Command::new("tar")
            .args([format.as_str(), "-cf", "good.tar", "train.py"])
            .current_dir(workspace.path())
            .status();
        assert!(made.unwrap().success(), "{format}");
        let output = run_successfully(
            &workspace,
            "yarn-tf --show --cluster local --shell_command date --tar good.tar",
        );
        assert!(output.contains("files: [good.tar]"), "{output}");
    }
}

#[test]
fn flags_without_effect_and_missing_mounts_are_reported() {
    let workspace = CompatWorkspace::new();
    let output = run_successfully(
        &workspace,
        "ydl-mx --show --launcher local --n 2 --serve --s 1 --label x --results m/ --archives a.tar train.py",
    );
    for note in [
        "# note: `--s` has no effect: serving tasks have no parameter servers\n",
        "# note: `--label` has no effect: this machine has no labels\n",
        "# note: `--results` has no effect: on this machine tasks write to the current directory\n",
        "# note: `--archives a.tar` has no effect: on this machine tasks run in the current directory\n",
    ] {
        assert!(output.contains(note), "{output}");
    }
    let output = run_successfully(
        &workspace,
        "yarn-tf --show --cluster local --shell_command date --output model:/somewhere/x",
    );
    let note = "# note: `model` goes to `/somewhere/x` on this machine, because `--cluster local` has no HDFS\n";
    assert!(output.contains(note), "{output}");
    let args = "yarn-tf --cluster local --shell_command date --mounts /nonexist:data";
    let args: Vec<_> = args.split_whitespace().collect();
    expect![[r#"
        error: yarn-tf --mounts /nonexist:data: `/nonexist` does not exist on this machine

        hint: create it, or name another path
        exit 2
    "#]]
    .assert_eq(&workspace.output_of(&args));
}
