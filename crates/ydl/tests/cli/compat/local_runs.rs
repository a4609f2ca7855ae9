//! Jobs of compat commands that run on this machine.

use super::workspace::{CompatWorkspace, render, run_successfully};
use expect_test::{Expect, expect};
use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt,
    process::Command,
};

#[test]
fn a_compat_command_runs_a_local_job() {
    let workspace = CompatWorkspace::new();
    let args = "dmlc-submit --cluster local --num-workers 2 python3 train.py";
    let args: Vec<_> = args.split_whitespace().collect();
    let output = workspace.run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", render(&output));
    assert!(render(&output).contains("worker:1 | trained"), "{}", render(&output));
}

#[test]
fn a_local_program_is_found_in_the_current_directory_first() {
    let workspace = CompatWorkspace::new();
    let script = "#!/bin/sh\necho \"here: $*\"\n";
    for name in ["model_recover", "train.py", "date"] {
        let path = workspace.path().join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        for flag in ["true", "false"] {
            let args = "dmlc-submit --cluster local --num-workers 1 --auto-file-cache";
            let args = args.split_whitespace().chain([flag, name, "10", "mock=0,0,1,0"]);
            let text = workspace.output_of(&args.collect::<Vec<_>>());
            assert!(text.contains("worker:0 | here: 10 mock=0,0,1,0"), "{name} {flag}: {text}");
        }
    }
}

#[test]
fn archives_are_unpacked_and_mounts_linked_in_the_task_directory() {
    let workspace = CompatWorkspace::new();
    workspace.file("inside.py").file("disk/data.txt");
    let show = "import os; print(sorted(os.listdir('.')), os.listdir('data') if os.path.exists('data') else '')\n";
    fs::write(workspace.path().join("inside.py"), show).unwrap();
    let made = |program: &str, args: &[&str]| {
        let made = Command::new(program).args(args).current_dir(workspace.path()).output();
        assert!(made.unwrap().status.success(), "{program} {args:?}");
    };
    made("tar", &["-czf", "code.tar.gz", "inside.py"]);
    fs::remove_file(workspace.path().join("inside.py")).unwrap();
    let disk = workspace.path().join("disk");
    let text = run_successfully(
        &workspace,
        &format!(
            "yarn-tf --cluster local --num_containers 2 --tar code.tar.gz --mounts {}:data --shell_command python3 \
             --shell_args inside.py",
            disk.display()
        ),
    );
    assert!(
        text.contains("worker:1 | ['code.tar.gz', 'data', 'inside.py'] ['data.txt']"),
        "{text}"
    );
    assert!(disk.join("data.txt").exists(), "the target of a link was removed");
}

#[test]
fn overlapping_mounts_and_read_only_destinations_are_rejected() {
    let workspace = CompatWorkspace::new();
    let check = |line: &str, expected: Expect| {
        let args: Vec<_> = line.split_whitespace().collect();
        expected.assert_eq(&workspace.output_of(&args));
    };
    check(
        "yarn-tf --shell_command date --mounts /a:data,/b:data/sub /c:./data /d:x//y",
        expect![[r#"
            error: yarn-tf --mounts /a:data,/b:data/sub: mount targets `data/sub` and `data` overlap

            hint: use separate targets

            error: yarn-tf --mounts /c:./data: mount targets `data` and `data` overlap

            hint: use separate targets

            error: yarn-tf --mounts /d:x//y: `x//y` is not a valid mount target

            hint: use an absolute path in an image, or a path below the task's directory
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --docker_image x:1 --mounts /data:/mnt:ro --output out:/mnt/out,log:a,log:b",
        expect![[r#"
            error: yarn-tf --output out:/mnt/out,log:a,log:b: `/mnt` is mounted read-only

            hint: mount it without `:ro`, or name another destination

            error: yarn-tf --output out:/mnt/out,log:a,log:b: output `log` has a destination already

            hint: list each output once, and copy it afterwards
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker --container_retry_policy often",
        expect![[r#"
            error: yarn-tf --container_retry_policy often: unknown retry policy `often`

            hint: use 0 (never), 1 (always) or 2 (on certain codes)

            error: yarn-tf --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker: `YARN_CONTAINER_RUNTIME_TYPE` is `docker`, but no image is set

            hint: set `YARN_CONTAINER_RUNTIME_DOCKER_IMAGE`
            exit 2
        "#]],
    );
}

#[test]
fn local_outputs_go_to_the_source_of_a_mount() {
    let workspace = CompatWorkspace::new();
    workspace.shows(
        "yarn-tf --cluster local --shell_command date --docker_image x:1 --shell_env \
         YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS=/tmp:/other:rw --mounts /usr:/mnt:rw --output out:/mnt/out,log:/other/log",
        expect![[r##"
            # yarn-tf --cluster local --shell_command date --docker_image x:1 --shell_env YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS=/tmp:/other:rw --mounts /usr:/mnt:rw --output 'out:/mnt/out,log:/other/log'
            name: date
            environment: {mounts: ["/tmp:/other:rw", "/usr:/mnt:rw"], docker: "x:1"}
            roles:
              worker: {instances: 1, run: [date]}
            outputs:
              out: {to: /usr/out, from: "worker:0"}
              log: {to: /tmp/log, from: "worker:0"}
            exit 0
        "##]],
    );
}

#[test]
fn shell_arguments_are_joined_into_one_shell_line() {
    let workspace = CompatWorkspace::new();
    let run_args = |args: &[&str]| {
        let output = workspace.output_of(&[&["yarn-tf", "--cluster", "local"], args].concat());
        let lines = output.lines().filter_map(|line| line.strip_prefix("worker:0 | "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let print = "printf '%s\\n'";
    let args = ["--shell_command", print, "--shell_args", "a=1 b=2", "'c d'", "e"];
    assert_eq!(run_args(&args), ["a=1", "b=2", "c d", "e"]);
    // Shell syntax in arguments is left to the task's shell.
    let args = ["--shell_command", print, "--shell_args", "--in", "$YDL_ROLE x", "{1..2}"];
    assert_eq!(run_args(&args), ["--in", "worker", "x", "1", "2"]);
    let open = workspace.output_of(&["yarn-tf", "--shell_command", "date", "--shell_args", "it's"]);
    assert!(open.contains("error: yarn-tf: unterminated quote in `date it's`"), "{open}");
    // dmlc-core also joined its arguments into one line.
    for command in [&["python3 train.py"][..], &["A=1", "python3", "train.py"]] {
        let args = ["dmlc-submit", "--cluster", "local", "--num-workers", "1"];
        let output = workspace.output_of(&[&args, command].concat());
        assert!(output.contains("worker:0 | trained"), "{output}");
    }
}

#[test]
fn an_empty_path_variable_gets_a_default() {
    let workspace = CompatWorkspace::new();
    let args = "dmlc-submit --cluster local --num-workers 1 python3 train.py";
    let args: Vec<_> = args.split_whitespace().collect();
    let output = workspace.command(&args).env_remove("PATH").output().unwrap();
    assert!(render(&output).contains("worker:0 | trained"), "{}", render(&output));
}

#[test]
fn programs_that_use_hdfs_get_hadoop_s_class_path() {
    let workspace = CompatWorkspace::new();
    workspace.file("xgboost");
    fs::write(workspace.path().join("mushroom.conf"), "data = \"hdfs:///data/train\"\n").unwrap();
    let output_of = |line: &str| {
        let args: Vec<_> = line.split_whitespace().collect();
        workspace.output_of(&args)
    };
    let begin = "dmlc-submit --show --cluster yarn --num-workers 1";
    for args in [
        "./xgboost mushroom.conf",
        "python train.py --data hdfs://nn/data",
        "--env LIBHDFS_OPTS=-Xmx128m python train.py",
    ] {
        let page = output_of(&format!("{begin} {args}"));
        assert!(page.contains("LIBHDFS_OPTS: \"-Xmx128m\"\n"), "{page}");
        assert!(page.contains("classpath --glob"), "{page}");
    }
    let page = output_of(&format!("{begin} python train.py"));
    assert!(!page.contains("CLASSPATH"), "{page}");
    // The class path comes from the `hadoop` command of the node, found by its variables.
    let hadoop = workspace.path().join("hadoop/bin/hadoop");
    fs::create_dir_all(hadoop.parent().unwrap()).unwrap();
    fs::write(&hadoop, "#!/bin/sh\necho $*-of-hadoop\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&hadoop, mode).unwrap();
    let args = [
        "dmlc-submit",
        "--cluster",
        "local",
        "--num-workers",
        "1",
        "--env",
        "DMLC_HDFS_OPTS=-Xmx64m",
        "sh",
        "-c",
        "echo $CLASSPATH $LIBHDFS_OPTS",
    ];
    let mut command = workspace.command(&args);
    let output = command.env("HADOOP_COMMON_HOME", workspace.path().join("hadoop")).output();
    let text = render(&output.unwrap());
    assert!(text.contains("worker:0 | :classpath --glob-of-hadoop -Xmx64m"), "{text}");
}

#[test]
fn results_of_several_workers_go_to_separate_directories() {
    let workspace = CompatWorkspace::new();
    let script = "import os\nfor name in 'model', 'logs':\n    os.mkdir(name)\n    \
         open(name + '/own', 'w').write(os.environ['DMLC_TASK_ID'])\n";
    fs::write(workspace.path().join("make.py"), script).unwrap();
    let output = run_successfully(
        &workspace,
        "yarn-tf --cluster local --num_containers 2 --output model/:out/model,logs/:out/logs --localize_files make.py \
         --shell_env DMLC_TASK_ID=x --shell_command python3 --shell_args make.py",
    );
    assert!(output.contains("note: `model/` of each worker goes to"), "{output}");
    for name in ["model/worker-0", "model/worker-1", "logs/worker-0", "logs/worker-1"] {
        let own = workspace.path().join("out").join(name).join("own");
        assert!(own.is_file(), "{}", own.display());
    }
}

/// Script in a directory with a package and data above it, as the examples of MXNet and XGBoost.
const SCRIPT: &str = "import os\nfrom common import fit\n\
    me = os.environ['DMLC_TASK_ID']\n\
    print('read', open('../demo/data/train.csv').read(), fit.name, os.environ.get('OMP_NUM_THREADS'))\n\
    open('mnist-' + me, 'w').close()\n";

#[test]
fn local_tasks_run_in_the_launch_directory() {
    let workspace = CompatWorkspace::new();
    workspace.file("demo/data/train.csv").file("app/common/__init__.py").file("other/x.txt");
    let app = workspace.path().join("app");
    fs::write(workspace.path().join("demo/data/train.csv"), "1,2").unwrap();
    fs::write(app.join("common/fit.py"), "name = 'fitted'\n").unwrap();
    fs::write(app.join("digits.py"), SCRIPT).unwrap();
    // One file that the program would find on a cluster, and one that it finds here, too.
    for line in [
        "dmlc-submit --cluster local --num-workers 2 --files ../other/x.txt --files common python3 digits.py",
        "launch.py -n 2 -s 0 python3 digits.py",
        "ydl-mx --n 2 --s 0 --native cpp local python3 digits.py",
    ] {
        let mut shown: Vec<_> = line.split_whitespace().collect();
        shown.insert(1, "--show");
        let run = |args: &[&str]| {
            let output = render(&workspace.command(args).current_dir(&app).output().unwrap());
            assert!(output.ends_with("exit 0\n"), "{line}: {output}");
            output
        };
        let output = run(&line.split_whitespace().collect::<Vec<_>>());
        assert_eq!(output.matches(" | read 1,2 fitted None\n").count(), 2, "{line}: {output}");
        let note = "note: `--files x.txt` has no effect: on this machine tasks run in the current directory\n";
        assert_eq!(output.matches("note: `--files").count(), output.matches(note).count());
        assert_eq!(output.contains(note), line.contains("--files"), "{output}");
        // The shown job file does the same.
        let mut results = ["mnist-0", "mnist-1"].map(|name| app.join(name)).into_iter();
        results.clone().for_each(|path| fs::remove_file(path).unwrap());
        let job = workspace.command(&shown).current_dir(&app).output().unwrap();
        fs::write(app.join("job.yaml"), job.stdout).unwrap();
        run(&["submit", "--cluster", "local", "job.yaml"]);
        assert!(results.all(|path| fs::remove_file(path).is_ok()), "{line}");
    }
}

#[test]
fn more_local_tasks_run_than_the_machine_has_room_for() {
    let workspace = CompatWorkspace::new();
    let args = "dmlc-submit --cluster local --num-workers 3 --worker-memory 99000g --worker-cores 99000 python3 train.py";
    let output = run_successfully(&workspace, args);
    let warning = "warning: a task of role `worker` needs 99000 GiB of memory, but only ";
    assert!(output.contains(warning), "{output}");
    assert!(output.contains(" is available; all tasks are started anyway\n"), "{output}");
    assert_eq!(output.matches(" | trained\n").count(), 3, "{output}");
}

#[test]
fn outputs_of_tasks_in_a_given_directory_are_relative_to_it() {
    let workspace = CompatWorkspace::new();
    fs::create_dir(workspace.path().join("here")).unwrap();
    let job = "local: {directory: here}\noutputs: {model: copied}\nfiles: [train.py]\n\
        roles: {worker: {shell: \"python3 -m train > model\"}}\n";
    fs::write(workspace.path().join("job.yaml"), job).unwrap();
    run_successfully(&workspace, "submit --cluster local job.yaml");
    for name in ["here/model", "copied"] {
        let text = fs::read_to_string(workspace.path().join(name)).unwrap();
        assert_eq!(text, "trained\n", "{name}");
    }
    fs::write(workspace.path().join("job.yaml"), job.replace("here", "gone")).unwrap();
    let output = workspace.output_of(&["submit", "--cluster", "local", "job.yaml"]);
    assert!(output.contains("`local.directory`: `gone` cannot be used: no such file"), "{output}");
}

#[test]
fn a_failed_import_names_the_flag_that_ships_the_module() {
    let workspace = CompatWorkspace::new();
    workspace.file("model.py");
    fs::write(workspace.path().join("train.py"), "import sys\n__import__(sys.argv[1])\n").unwrap();
    let hint = |args: &[&str]| {
        let output = workspace.output_of(args);
        let hints = output.lines().find_map(|line| line.strip_prefix("hint: "));
        hints.unwrap_or_else(|| panic!("no hint in {output}")).to_owned()
    };
    let submit = ["submit", "--cluster", "local", "--files", "train.py", "--", "python3"];
    let shipped = hint(&[&submit[..], &["train.py", "model"]].concat());
    assert!(shipped.contains("or add `--files model.py` to the command line"), "{shipped}");
    let unknown = hint(&[&submit[..], &["train.py", "no_such_module"]].concat());
    assert!(unknown.contains("module `no_such_module` is neither among"), "{unknown}");
    assert!(unknown.contains("`--environment ./venv`"), "{unknown}");
    let script = hint(&[&submit[..], &["other.py"]].concat());
    assert!(script.contains("other.py` is not among the shipped files"), "{script}");
    let compat = "dmlc-submit --cluster local --num-workers 1 python3 train.py no_such_module";
    let local = hint(&compat.split_whitespace().collect::<Vec<_>>());
    assert!(local.contains("`--environment ./venv`") && !local.contains("--files"), "{local}");
}
