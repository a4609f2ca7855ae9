//! Jobs of doors that run on this machine.

use super::workspace::{Desk, runs, told};
use expect_test::{Expect, expect};
use std::{fs, process::Command};

#[test]
fn a_door_runs_a_job_here() {
    let desk = Desk::new();
    let words = "dmlc-submit --cluster local --num-workers 2 python3 train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(told(&output).contains("worker:1 | trained"), "{}", told(&output));
}

#[test]
fn archives_are_unpacked_and_mounts_linked_where_tasks_run() {
    let desk = Desk::new();
    desk.file("inside.py").file("disk/data.txt");
    let show = "import os; print(sorted(os.listdir('.')), os.listdir('data') if os.path.exists('data') else '')\n";
    fs::write(desk.path().join("inside.py"), show).unwrap();
    let made = |program: &str, words: &[&str]| {
        let made = Command::new(program).args(words).current_dir(desk.path()).output();
        assert!(made.unwrap().status.success(), "{program} {words:?}");
    };
    made("tar", &["-czf", "code.tar.gz", "inside.py"]);
    made("python3", &["-m", "zipfile", "-c", "more.zip", "train.py"]);
    fs::remove_file(desk.path().join("inside.py")).unwrap();
    fs::rename(desk.path().join("train.py"), desk.path().join("other.py")).unwrap();
    let said = runs(
        &desk,
        "dmlc-submit --cluster local --num-workers 1 --archives code.tar.gz --archives more.zip python3 inside.py",
    );
    let listed = "['code.tar.gz', 'inside.py', 'more.zip', 'train.py']";
    assert!(said.contains(listed), "{said}");
    let disk = desk.path().join("disk");
    let said = runs(
        &desk,
        &format!(
            "yarn-tf --cluster local --num_containers 2 --tar code.tar.gz --mounts {}:data --shell_command python3 \
             --shell_args inside.py",
            disk.display()
        ),
    );
    assert!(
        said.contains("worker:1 | ['code.tar.gz', 'data', 'inside.py'] ['data.txt']"),
        "{said}"
    );
    assert!(disk.join("data.txt").exists(), "a link is removed, and not what it leads to");
}

#[test]
fn mounts_that_lie_in_each_other_are_refused_and_nothing_is_copied_where_it_cannot_be_written() {
    let desk = Desk::new();
    let check = |line: &str, expected: Expect| {
        let words: Vec<_> = line.split_whitespace().collect();
        expected.assert_eq(&desk.said(&words));
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
fn on_one_machine_outputs_go_to_the_disk_itself() {
    let desk = Desk::new();
    desk.shows(
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
fn arguments_are_one_line_of_a_shell_as_they_always_were() {
    let desk = Desk::new();
    let said = |words: &[&str]| {
        let said = desk.said(&[&["yarn-tf", "--cluster", "local"], words].concat());
        let lines = said.lines().filter_map(|line| line.strip_prefix("worker:0 | "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let print = "printf '%s\\n'";
    let words = ["--shell_command", print, "--shell_args", "a=1 b=2", "'c d'", "e"];
    assert_eq!(said(&words), ["a=1", "b=2", "c d", "e"]);
    // What only a shell understands is left to the one that it was written for.
    let words = ["--shell_command", print, "--shell_args", "--in", "$YDL_ROLE x", "{1..2}"];
    assert_eq!(said(&words), ["--in", "worker", "x", "1", "2"]);
    let open = desk.said(&["yarn-tf", "--shell_command", "date", "--shell_args", "it's"]);
    assert!(open.contains("error: yarn-tf: unterminated quote in `date it's`"), "{open}");
    // Those of dmlc-core were one line, too.
    for command in [&["python3 train.py"][..], &["A=1", "python3", "train.py"]] {
        let words = ["dmlc-submit", "--cluster", "local", "--num-workers", "1"];
        let said = desk.said(&[&words, command].concat());
        assert!(said.contains("worker:0 | trained"), "{said}");
    }
}

#[test]
fn a_node_without_a_path_has_the_usual_one() {
    let desk = Desk::new();
    let words = "dmlc-submit --cluster local --num-workers 1 python3 train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.command(&words).env_remove("PATH").output().unwrap();
    assert!(told(&output).contains("worker:0 | trained"), "{}", told(&output));
}

#[test]
fn programs_that_speak_of_hdfs_find_hadoop_s_classes() {
    let desk = Desk::new();
    desk.file("xgboost");
    fs::write(desk.path().join("mushroom.conf"), "data = \"hdfs:///data/train\"\n").unwrap();
    let shown = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        desk.said(&words)
    };
    let begin = "dmlc-submit --show --cluster yarn --num-workers 1";
    for words in [
        "./xgboost mushroom.conf",
        "python train.py --data hdfs://nn/data",
        "--env LIBHDFS_OPTS=-Xmx128m python train.py",
    ] {
        let page = shown(&format!("{begin} {words}"));
        assert!(page.contains("LIBHDFS_OPTS: \"-Xmx128m\"\n"), "{page}");
        assert!(page.contains("classpath --glob"), "{page}");
    }
    let page = shown(&format!("{begin} python train.py"));
    assert!(!page.contains("CLASSPATH"), "{page}");
    // A node's own command is asked, wherever its variables say that it is.
    let hadoop = desk.path().join("hadoop/bin/hadoop");
    fs::create_dir_all(hadoop.parent().unwrap()).unwrap();
    fs::write(&hadoop, "#!/bin/sh\necho $*-of-hadoop\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&hadoop, mode).unwrap();
    let words = [
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
    let mut command = desk.command(&words);
    let output = command.env("HADOOP_COMMON_HOME", desk.path().join("hadoop")).output();
    let said = told(&output.unwrap());
    assert!(said.contains("worker:0 | :classpath --glob-of-hadoop -Xmx64m"), "{said}");
}

#[test]
fn results_of_several_workers_do_not_meet() {
    let desk = Desk::new();
    let script = "import os\nfor name in 'model', 'logs':\n    os.mkdir(name)\n    \
         open(name + '/own', 'w').write(os.environ['DMLC_TASK_ID'])\n";
    fs::write(desk.path().join("make.py"), script).unwrap();
    let said = runs(
        &desk,
        "ydl-mx --cluster local --native cpp --serve --n 2 --results model/ --results logs/ --env DMLC_TASK_ID=x \
         python3 make.py",
    );
    assert!(said.contains("note: `model/` of each worker goes to"), "{said}");
    let results = desk.path().join("results");
    let job = fs::read_dir(results).unwrap().next().unwrap().unwrap();
    for name in ["model/worker-0", "model/worker-1", "logs/worker-0", "logs/worker-1"] {
        let own = job.path().join(name).join("own");
        assert!(own.is_file(), "{}", own.display());
    }
}
