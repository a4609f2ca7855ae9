//! The doors of older systems: what a command line stands for, and what is said to a wrong one.

use expect_test::{Expect, expect};
use std::{
    fs,
    path::Path,
    process::{Command, Output},
};
use tempfile::TempDir;

/// A user's directory with a program in it.
struct Desk {
    dir: TempDir,
}

impl Desk {
    fn new() -> Desk {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("train.py"), "print('trained')\n").unwrap();
        Desk { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str) -> &Desk {
        let path = self.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        // A tar with nothing in it is an empty file, too.
        let bytes: &[u8] = match name.ends_with(".zip") {
            true => b"PK\x05\x06\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
            false => b"",
        };
        fs::write(path, bytes).unwrap();
        self
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ydl"));
        command
            .args(words)
            .current_dir(self.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", self.path())
            .env("USER", "alice")
            .env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// What it says and how it ends, with this desk's own path hidden.
    fn said(&self, words: &[&str]) -> String {
        let said = told(&self.run(words));
        said.replace(&self.path().display().to_string(), "HERE")
    }

    /// The job file that a command line stands for. It is one that `ydl submit` takes as it is.
    fn shows(&self, line: &str, expected: Expect) {
        let mut words: Vec<_> = line.split_whitespace().collect();
        words.insert(1, "--show");
        let shown = self.run(&words);
        let page = self.said(&words);
        expected.assert_eq(&page.replace("--show ", ""));
        fs::write(self.path().join("shown.yaml"), &shown.stdout).unwrap();
        let mut again = self.command(&["submit", "--show", "shown.yaml"]);
        // Clusters are asked for nothing; only that there is one must be known.
        if !line.contains("local") {
            let site = "<configuration><property><name>yarn.resourcemanager.address</name>\
                <value>127.0.0.1:1</value></property></configuration>";
            fs::write(self.path().join("core-site.xml"), site).unwrap();
            fs::write(self.path().join("yarn-site.xml"), site).unwrap();
            again.env("HADOOP_CONF_DIR", self.path());
        }
        let again = again.output().unwrap();
        assert_eq!(again.status.code(), Some(0), "{}", told(&again));
    }
}

fn told(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let code = output.status.code().unwrap();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("{out}{err}exit {code}\n")
}

#[test]
fn dmlc_submit_is_a_job_with_parameter_servers_or_one_of_rabit() {
    let desk = Desk::new();
    desk.file("lib/data.txt")
        .file("code.tar.gz")
        .file("more.zip");
    desk.shows(
        "dmlc-submit --cluster yarn --num-workers 2 --num-servers 1 --worker-mem 1.5g --server-cores 2 --queue ml \
         --hdfs-tempdir /tmp --files lib/data.txt#named --archives code.tar.gz --archives=more.zip --env A=1 --host-ip auto \
         --yarn-app-dir jars python train.py --lr 0.1 --jobname digits",
        expect![[r##"
            # dmlc-submit --cluster yarn --num-workers 2 --num-servers 1 --worker-mem 1.5g --server-cores 2 --queue ml --hdfs-tempdir /tmp --files 'lib/data.txt#named' --archives code.tar.gz --archives=more.zip --env A=1 --host-ip auto --yarn-app-dir jars python train.py --lr 0.1 --jobname digits
            # note: `--host-ip` changes nothing: the tracker is in the job's master, which everybody finds
            # note: `--yarn-app-dir` changes nothing: ydl needs no jar, no class path and no build on this machine
            # note: `--jobname` behind the command is taken as dmlc-submit's own, as it always was; `--` before the command leaves it there
            name: digits
            framework: mxnet
            files: [{named: lib/data.txt}, code.tar.gz, more.zip, train.py]
            roles:
              worker:
                instances: 2
                memory: 1.5g
                run:
                  - /bin/sh
                  - "-c"
                  - "room() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then echo \"$0: $1 has $it, and $top is one of the job's files\" >&2; return 1; fi; rm -f \"./$top\"; done; }; tar -tf ./code.tar.gz | room code.tar.gz && tar -xf ./code.tar.gz && { unzip -Z1 ./more.zip 2>/dev/null || python3 -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep=\"\\n\")' ./more.zip; } | room more.zip && { unzip -qo ./more.zip || python3 -m zipfile -e ./more.zip .; } && exec \"$@\""
                  - dmlc-submit
                  - python
                  - ./train.py
                  - "--lr"
                  - 0.1
              server: {instances: 1, vcores: 2}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1536
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 2
              DMLC_JOB_CLUSTER: yarn
              DMLC_JOB_ARCHIVES: "code.tar.gz:more.zip"
              A: 1
            blame: {failures: 1, forgive_after: 30d}
            queue: ml
            staging: /tmp/ydl-alice
            exit 0
        "##]],
    );
    desk.shows(
        "dmlc-submit --cluster local --num-workers 3 --local-num-attempt 2 python train.py",
        expect![[r#"
            # dmlc-submit --cluster local --num-workers 3 --local-num-attempt 2 python train.py
            name: train
            framework: xgboost
            files: [train.py]
            roles:
              worker: {instances: 3, run: [python, ./train.py]}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: local
            exit 0
        "#]],
    );
}

#[test]
fn dmlc_yarn_s_short_flags_of_several_letters_are_understood() {
    let desk = Desk::new();
    desk.file("a.txt").file("b.txt");
    desk.shows(
        "dmlc-yarn.py -hip 192.168.1.1 -n 1 -s 1 --yarn-scripts xxx/mxnet/dmlc-core/yarn/ python train.py",
        expect![[r#"
            # dmlc-yarn.py -hip 192.168.1.1 -n 1 -s 1 --yarn-scripts xxx/mxnet/dmlc-core/yarn/ python train.py
            # note: `-hip` changes nothing: the cluster is the one that HADOOP_CONF_DIR leads to, and the tracker is in the job's master
            # note: `--yarn-scripts` changes nothing: ydl needs no jar, no class path and no build on this machine
            name: train
            framework: mxnet
            files: [train.py]
            roles:
              worker: {instances: 1, run: [python, ./train.py]}
              server: {instances: 1}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: yarn
            blame: {failures: 1, forgive_after: 30d}
            exit 0
        "#]],
    );
    desk.shows(
        "dmlc-yarn -n2 -q ml -ac 0 -f a.txt#b.txt -mem 2048 --vcores 2 --tempdir /tmp/ --libhdfs-opts=-Xmx64m -hb hadoop \
         --max-attempts 5 python train.py",
        expect![[r##"
            # dmlc-yarn -n2 -q ml -ac 0 -f 'a.txt#b.txt' -mem 2048 --vcores 2 --tempdir /tmp/ --libhdfs-opts=-Xmx64m -hb hadoop --max-attempts 5 python train.py
            # note: `-hb` changes nothing: ydl speaks with Hadoop itself
            name: train
            framework: xgboost
            files: [a.txt, b.txt]
            roles:
              worker:
                instances: 2
                vcores: 2
                memory: 2048m
                run:
                  - /bin/sh
                  - "-c"
                  - "{ for hadoop in \"$HADOOP_HOME\" \"$HADOOP_PREFIX\" \"$HADOOP_COMMON_HOME\" \"$HADOOP_HDFS_HOME\" /usr; do hadoop=$hadoop/bin/hadoop; [ ! -x \"$hadoop\" ] || break; done; [ -x \"$hadoop\" ] || hadoop=$(command -v hadoop) || echo \"$0: this node has no hadoop command: libhdfs finds no classes\" >&2; [ -z \"$hadoop\" ] || export CLASSPATH=\"$CLASSPATH:$(\"$hadoop\" classpath --glob)\"; } && export LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:./:$HADOOP_HDFS_HOME/lib/native:$HADOOP_HOME/lib/native:$JAVA_HOME/lib/server:$JAVA_HOME/jre/lib/amd64/server\" && exec \"$@\""
                  - dmlc-yarn
                  - python
                  - train.py
            restart: {limit: 4}
            env:
              DMLC_WORKER_MEMORY_MB: 2048
              DMLC_WORKER_CORES: 2
              DMLC_SERVER_MEMORY_MB: 2048
              DMLC_SERVER_CORES: 2
              DMLC_JOB_CLUSTER: yarn
              DMLC_HDFS_OPTS: "-Xmx64m"
              LIBHDFS_OPTS: "-Xmx64m"
            blame: {failures: 1, forgive_after: 30d}
            queue: ml
            staging: /tmp/ydl-alice
            exit 0
        "##]],
    );
}

#[test]
fn launch_py_has_as_many_servers_as_workers() {
    let desk = Desk::new();
    desk.shows(
        "launch.py -n 2 --launcher yarn --env-server A:1 --env-worker B:2 --env USER --p3 --worker-memory 2g python train.py",
        expect![[r#"
            # launch.py -n 2 --launcher yarn --env-server A:1 --env-worker B:2 --env USER --p3 --worker-memory 2g python train.py
            name: train
            framework: mxnet
            files: [train.py]
            roles:
              worker:
                instances: 2
                memory: 2g
                env: {B: 2}
                run: [python, ./train.py]
              server:
                instances: 2
                env: {A: 1}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 2048
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: yarn
              DMLC_PS_VAN_TYPE: p3
              DMLC_PS_WATER_MARK: 10
              USER: alice
            blame: {failures: 1, forgive_after: 30d}
            exit 0
        "#]],
    );
}

#[test]
fn ydl_mx_is_python_with_as_many_servers_as_workers() {
    let desk = Desk::new();
    desk.shows(
        "ydl-mx --n 2 --jobname MXNetOnYarn --jar ydl-mx.jar train.py --kv-store sync --data-dir .",
        expect![[r##"
            # ydl-mx --n 2 --jobname MXNetOnYarn --jar ydl-mx.jar train.py --kv-store sync --data-dir .
            # note: `--jar` changes nothing: ydl needs no jar, no class path and no build on this machine
            # note: no virtual environment is active: `python` is what the nodes have; `--environment ./venv` takes one along
            name: MXNetOnYarn
            framework: mxnet
            files: [train.py]
            roles:
              worker: {instances: 2, run: [python, ./train.py, "--kv-store", sync, "--data-dir", .]}
              server: {instances: 2}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
            blame: {failures: 1, forgive_after: 30d}
            exit 0
        "##]],
    );
    desk.shows(
        "ydl-mx --n 2 --s 1 --docker registry/mxnet:1.9 --gpus 1 --results model/ --queue ml train.py --n 7",
        expect![[r##"
            # ydl-mx --n 2 --s 1 --docker registry/mxnet:1.9 --gpus 1 --results model/ --queue ml train.py --n 7
            # note: `model/` of each worker goes to `results/{job}/{role}-{index}`: two of them may have files of one name
            name: train
            framework: mxnet
            environment: {docker: "registry/mxnet:1.9"}
            files: [train.py]
            roles:
              worker: {instances: 2, gpus: 1, run: [python, ./train.py, "--n", 7]}
              server: {instances: 1}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
            blame: {failures: 1, forgive_after: 30d}
            outputs:
              model/: {to: "results/{job}/{role}-{index}", from: worker}
            queue: ml
            exit 0
        "##]],
    );
    desk.file("train");
    desk.shows(
        "ydl-mx --n 2 --label mxnet --native scala ./train --network mlp",
        expect![[r##"
            # ydl-mx --n 2 --label mxnet --native scala ./train --network mlp
            name: train
            framework: mxnet
            files: [./train]
            roles:
              worker: {instances: 2, run: [./train, "--network", mlp]}
              server: {instances: 2}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
            node_label: mxnet
            blame: {failures: 1, forgive_after: 30d}
            exit 0
        "##]],
    );
    desk.shows("ydl-mx --n 3 --serve train.py", expect![[r#"
        # ydl-mx --n 3 --serve train.py
        # note: no virtual environment is active: `python` is what the nodes have; `--environment ./venv` takes one along
        name: train
        framework: none
        files: [train.py]
        roles:
          worker: {instances: 3, ports: [http], run: [python, ./train.py]}
        restart: {limit: 2}
        env:
          DMLC_WORKER_MEMORY_MB: 1024
          DMLC_WORKER_CORES: 1
          DMLC_SERVER_MEMORY_MB: 1024
          DMLC_SERVER_CORES: 1
        gang: true
        blame: {failures: 1, forgive_after: 30d}
        exit 0
    "#]]);
    desk.shows("ydl-mx local train.py", expect![[r#"
        # ydl-mx local train.py
        # note: no virtual environment is active: `python` is what the nodes have; `--environment ./venv` takes one along
        name: train
        framework: mxnet
        files: [train.py]
        roles:
          worker: {instances: 2, run: [python, ./train.py]}
          server: {instances: 2}
        restart: {limit: 0}
        env:
          DMLC_WORKER_MEMORY_MB: 1024
          DMLC_WORKER_CORES: 1
          DMLC_SERVER_MEMORY_MB: 1024
          DMLC_SERVER_CORES: 1
          DMLC_JOB_CLUSTER: local
        exit 0
    "#]]);
}

#[test]
fn yarn_tf_is_tensorflow_told_by_flags() {
    let desk = Desk::new();
    desk.file("code.tar").file("run.sh");
    desk.shows(
        "yarn-tf -num_parameter_servers 2 --num_trainers=2 --tar code.tar --mounts /data/mnist:data --output \
         model:hdfs:///user/alice/model,logs/:data/logs --appname digits --container_memory 2048 --container_resources \
         yarn.io/gpu=1 --timeout 600000 --jar tf.jar --shell_env A=1 B=2 --shell_command python --shell_args trainer.py --lr 0.1",
        expect![[r##"
            # yarn-tf -num_parameter_servers 2 --num_trainers=2 --tar code.tar --mounts /data/mnist:data --output 'model:hdfs:///user/alice/model,logs/:data/logs' --appname digits --container_memory 2048 --container_resources yarn.io/gpu=1 --timeout 600000 --jar tf.jar --shell_env A=1 B=2 --shell_command python --shell_args trainer.py --lr 0.1
            # note: `--jar` changes nothing: ydl needs no jar
            # note: `yarn.io/gpu` is for workers alone: parameter servers compute nothing
            # note: `logs/` of each worker goes to `file:///data/mnist/logs/{role}-{index}`: two of them may have files of one name
            name: digits
            framework: tensorflow
            cluster_flags: true
            files: [code.tar]
            roles:
              worker:
                instances: 2
                memory: 2048m
                gpus: 1
                run:
                  - /bin/sh
                  - "-c"
                  - "room() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then echo \"$0: $1 has $it, and $top is one of the job's files\" >&2; return 1; fi; rm -f \"./$top\"; done; }; { [ ! -L ./data ] || rm -f ./data; } && tar -tf ./code.tar | room code.tar && tar -xf ./code.tar && rm -rf ./data && ln -s /data/mnist ./data && exec \"$@\""
                  - yarn-tf
                  - python
                  - trainer.py
                  - "--lr"
                  - 0.1
              ps: {instances: 2, memory: 2048m}
            deadlines: {run: 600000ms}
            env: {A: 1, B: 2}
            outputs:
              model: {to: "hdfs:///user/alice/model", from: "worker:0"}
              logs/: {to: "file:///data/mnist/logs/{role}-{index}", from: worker}
            exit 0
        "##]],
    );
    desk.shows(
        "yarn-tf --num_parameter_servers 1 --num_trainers 1 --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker \
         YARN_CONTAINER_RUNTIME_DOCKER_IMAGE=tensorflow/tensorflow:1.15.5 --mounts /data:/mnt/data:rw --output out:/mnt/data/out \
         --container_retry_policy 1 --container_max_retries 2 --master_memory 512 --node_label_expression gpu \
         --application_tags a,b --shell_script run.sh",
        expect![[r##"
            # yarn-tf --num_parameter_servers 1 --num_trainers 1 --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker YARN_CONTAINER_RUNTIME_DOCKER_IMAGE=tensorflow/tensorflow:1.15.5 --mounts /data:/mnt/data:rw --output out:/mnt/data/out --container_retry_policy 1 --container_max_retries 2 --master_memory 512 --node_label_expression gpu --application_tags 'a,b' --shell_script run.sh
            name: run
            framework: tensorflow
            cluster_flags: true
            environment: {docker: "tensorflow/tensorflow:1.15.5", mounts: ["/data:/mnt/data:rw"]}
            files: [run.sh]
            roles:
              worker: {instances: 1, run: [/bin/bash, ./run.sh]}
              ps: {instances: 1}
            restart: {limit: 2}
            master: {memory: 512m}
            node_label: gpu
            tags: [a, b]
            outputs:
              out: {to: "file:///mnt/data/out", from: "worker:0"}
            exit 0
        "##]],
    );
    desk.shows(
        "yarn-tf --num_containers 3 --shell_command date|cat",
        expect![[r##"
            # yarn-tf --num_containers 3 --shell_command 'date|cat'
            name: date-cat
            roles:
              worker: {instances: 3, run: [/bin/bash, "-c", "date|cat \"$@\"", yarn-tf]}
            exit 0
        "##]],
    );
}

#[test]
fn wrong_words_are_told_in_the_door_s_own_name() {
    let desk = Desk::new();
    let check = |line: &str, expected: Expect| {
        let words: Vec<_> = line.split_whitespace().collect();
        expected.assert_eq(&desk.said(&words));
    };
    check(
        "dmlc-submit --cluster yarn --num-wrokers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: there is no flag `--num-wrokers`

            hint: did you mean `--num-workers`?
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster slurm --num-workers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: jobs do not run by `slurm`

            hint: they run on `yarn` or `local`, which is this machine
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster yarn --num-workers 2 --kube-namespace x python train.py",
        expect![[r#"
            error: dmlc-submit: `--kube-namespace` is for Kubernetes

            hint: leave it out: jobs of ydl run on YARN or on this machine
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster local --num-workers two --worker-memory 5 --env A python train.py",
        expect![[r#"
            error: dmlc-submit --env A: there is no `=` in it

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
            error: dmlc-yarn: there is no flag `--max-atempts`

            hint: did you mean `--max-attempts`?
            exit 2
        "#]],
    );
    check(
        "dmlc-yarn -n 2",
        expect![[r#"
        error: dmlc-yarn: there is no command to run

        hint: write `dmlc-yarn … python train.py`
        exit 2
    "#]],
    );
    check(
        "launch.py -n 2 --lancher yarn python train.py",
        expect![[r#"
            error: launch.py: there is no flag `--lancher`

            hint: did you mean `--launcher`?
            exit 2
        "#]],
    );
    check(
        "launch.py -n 2 --launcher ssh -H hosts python train.py",
        expect![[r#"
            error: launch.py: `-H` is for MPI and ssh

            hint: leave it out: jobs of ydl run on YARN or on this machine
            exit 2
        "#]],
    );
    check(
        "ydl-mx --n 2 --jobnam x train.py",
        expect![[r#"
        error: ydl-mx: there is no flag `--jobnam`

        hint: did you mean `--jobname`?
        exit 2
    "#]],
    );
    check(
        "ydl-mx train.py",
        expect![[r#"
        error: ydl-mx: it is not said how many workers there are

        hint: write `--n N`
        exit 2
    "#]],
    );
    check(
        "ydl-mx --n 2 --native fortran train.py",
        expect![[r#"
        error: ydl-mx: `fortran` is no language of MXNet's

        hint: write `--native python`, `scala`, `java` or `cpp`
        exit 2
    "#]],
    );
    check(
        "yarn-tf --num_trainer 2 --shell_command date",
        expect![[r#"
            error: yarn-tf: there is no flag `--num_trainer`

            hint: did you mean `--num_trainers`?
            exit 2
        "#]],
    );
    check(
        "yarn-tf --num_trainers 2 date",
        expect![[r#"
        error: yarn-tf: `date` belongs to no flag

        hint: see `yarn-tf --help`
        exit 2
    "#]],
    );
    check(
        "yarn-tf --num_trainers 2",
        expect![[r#"
        error: yarn-tf: there is nothing to run

        hint: write `--shell_command 'python trainer.py'`, or `--shell_script FILE`
        exit 2
    "#]],
    );
    check(
        "yarn-tf --num_trainers 2 --shell_command date --mounts /data:/data --output model:s3://x/y ../x:y z",
        expect![[r#"
            error: yarn-tf --mounts /data:/data: without an image nothing can be mounted at `/data` of a node

            hint: name a place below the task's directory, or an image with `--docker_image`

            error: yarn-tf --output ../x:y: `../x` is not in the task's directory

            hint: name what the program makes where it runs

            error: yarn-tf --output model:s3://x/y: `outputs.model.to`: outputs cannot go to `s3://`

            hint: name a place in HDFS, such as `hdfs:///user/me/out`

            error: yarn-tf --output z: `z` does not say where it goes

            hint: write `SOURCE:DESTINATION`
            exit 2
        "#]],
    );
    check(
        "launch.py -n 1 --detach --download out python train.py",
        expect![[r#"
            error: launch.py: `--download` waits for the job's end, and `--detach` does not

            hint: leave one of them out; `ydl fetch JOB DIR` downloads at any time
            exit 2
        "#]],
    );
    check(
        "dmlc-tracker --num-worker 2 --num-srevers 1",
        expect![[r#"
        error: dmlc-tracker: there is no flag `--num-srevers`

        hint: did you mean `--num-servers`?
        exit 2
    "#]],
    );
    check(
        "dmlc-tracker --num-workers 2 --num-servers 1",
        expect![[r#"
            error: dmlc-tracker: a job with parameter servers has no stand-alone tracker

            hint: `dmlc-submit --num-servers N` runs it
            exit 2
        "#]],
    );
    check(
        "dmlc-tracker --num-workers 0",
        expect![[r#"
        error: dmlc-tracker: a tracker has 1 to 65536 workers, not 0
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
            error: dmlc-submit --auto-file-cache maybe: this is neither `true` nor `false`
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --placement_spec x",
        expect![[r#"
            error: yarn-tf: `--placement_spec` is for DistributedShell

            hint: `placement` in a job file says where tasks go
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --cluster yarn --num-workers 1 python train.py",
        expect![[r#"
            error: dmlc-submit: there is no Hadoop configuration that leads to a cluster

            hint: set `HADOOP_CONF_DIR` to the directory with `core-site.xml` and `yarn-site.xml`
            exit 2
        "#]],
    );
    check(
        "dmlc-submit --num-workers 2 python train.py",
        expect![[r#"
            error: dmlc-submit: it is not said where the job runs

            hint: write `--cluster yarn`, or `--cluster local` for this machine, or set `DMLC_SUBMIT_CLUSTER`
            exit 2
        "#]],
    );
    assert!(!desk.path().join("state").exists(), "nothing was touched");
}

#[test]
fn a_program_that_is_not_here_is_refused_before_anything_is_submitted() {
    let desk = Desk::new();
    desk.file("lib/inner.py").file("code.tar");
    let said = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        desk.said(&words)
    };
    expect![[r#"
        error: ydl-mx: the program `nofile.py` is not here

        hint: name a file of this machine, which travels; what every node has is called by its whole path
        exit 2
    "#]]
    .assert_eq(&said("ydl-mx --n 2 --jobname X nofile.py"));
    for line in [
        "ydl-mx local nofile.py --n 3",
        "dmlc-submit --cluster local --num-workers 1 python -u nofile.py",
        "dmlc-submit --cluster local --num-workers 1 A=/x python3 nofile.py",
        "dmlc-yarn -n 1 ./nofile --epochs 3",
        "launch.py -n 1 --launcher local sh nofile.sh",
    ] {
        let told = said(line);
        assert!(told.contains("is not here\n"), "{line}: {told}");
        assert!(told.ends_with("exit 2\n"), "{line}: {told}");
    }
    // What may be there all the same is left to the task.
    for line in [
        "ydl-mx --show --n 2 --launcher local /opt/nofile.py",
        "ydl-mx --show --n 2 --launcher local --archives code.tar nofile.py",
        "ydl-mx --show --n 2 --launcher local --files lib lib/inner.py",
        "ydl-mx --show --n 2 --launcher local --files lib/inner.py#nofile.py nofile.py",
        "dmlc-submit --show --cluster local --num-workers 1 --auto-file-cache 0 python nofile.py",
        "dmlc-submit --show --cluster local --num-workers 1 python -m nofile",
        "dmlc-submit --show --cluster local --num-workers 1 java Main",
        "dmlc-submit --show --cluster local --num-workers 1 nofile",
    ] {
        let told = said(line);
        assert!(told.ends_with("exit 0\n"), "{line}: {told}");
    }
    assert!(!desk.path().join("state").exists(), "nothing was touched");
}

#[test]
fn what_only_calls_itself_an_archive_is_refused() {
    let desk = Desk::new();
    for name in ["bad.tar", "bad.tar.gz", "bad.zip"] {
        fs::write(desk.path().join(name), "just some text\n".repeat(100)).unwrap();
        let words = ["yarn-tf", "--cluster", "local", "--shell_command", "date"];
        let told = desk.said(&[&words[..], &["--tar", name]].concat());
        let expected = format!(
            "error: yarn-tf --tar {name}: `{name}` is no archive, whatever its name says\n\n\
             hint: make one with `tar -cf code.tar …`\nexit 2\n"
        );
        assert_eq!(told, expected);
    }
    for format in ["v7", "ustar", "gnu", "pax"] {
        let format = format!("--format={format}");
        let made = Command::new("tar")
            .args([format.as_str(), "-cf", "good.tar", "train.py"])
            .current_dir(desk.path())
            .status();
        assert!(made.unwrap().success(), "{format}");
        let told = runs(
            &desk,
            "yarn-tf --show --cluster local --shell_command date --tar good.tar",
        );
        assert!(told.contains("files: [good.tar]"), "{told}");
    }
}

#[test]
fn what_changes_nothing_or_is_not_here_is_said() {
    let desk = Desk::new();
    let told = runs(
        &desk,
        "ydl-mx --show --launcher local --n 2 --serve --s 1 --label x train.py",
    );
    for note in [
        "# note: `--s` changes nothing: what serves has no parameter servers\n",
        "# note: `--label` chooses nothing here: this machine has no labels\n",
    ] {
        assert!(told.contains(note), "{told}");
    }
    let told = runs(
        &desk,
        "yarn-tf --show --cluster local --shell_command date --output model:/somewhere/x",
    );
    let note = "# note: `model` goes to `/somewhere/x` of this machine: with `--cluster local` there is no HDFS\n";
    assert!(told.contains(note), "{told}");
    let words = "yarn-tf --cluster local --shell_command date --mounts /nonexist:data";
    let words: Vec<_> = words.split_whitespace().collect();
    expect![[r#"
        error: yarn-tf --mounts /nonexist:data: there is no `/nonexist` on this machine

        hint: make it first, or name another place
        exit 2
    "#]]
    .assert_eq(&desk.said(&words));
}

#[test]
fn what_this_machine_offers_can_be_said_to_a_door() {
    let desk = Desk::new();
    let line = "dmlc-submit --cluster local --num-workers 2 --dry-run --worker-memory 2g";
    let said = |offer: &str| {
        let words = line.split_whitespace();
        let words: Vec<_> = words
            .chain(["--offer", offer, "python", "train.py"])
            .collect();
        desk.said(&words)
    };
    expect![[r#"
        error: dmlc-submit: a task of role `worker` needs 2 GiB memory, and 1 GiB are offered

        hint: raise `--offer`, or ask for less
        exit 2
    "#]]
    .assert_eq(&said("memory=1GiB,vcores=4"));
    let enough = said("memory=999GiB,vcores=999");
    assert!(enough.contains("the job could run"), "{enough}");
}

#[test]
fn every_door_has_help_and_none_is_missing_from_the_list() {
    let desk = Desk::new();
    for door in ydl::doors::ALL {
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
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ydl"), &link).unwrap();
    let mut command = Command::new(link);
    let words = [
        "--cluster",
        "local",
        "--num-workers",
        "1",
        "--show",
        "python",
        "train.py",
    ];
    let output = command
        .current_dir(desk.path())
        .args(words)
        .output()
        .unwrap();
    assert!(
        told(&output).contains("framework: xgboost\n"),
        "{}",
        told(&output)
    );
}

#[test]
fn a_door_runs_a_job_here() {
    let desk = Desk::new();
    let words = "dmlc-submit --cluster local --num-workers 2 python3 train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.run(&words);
    assert_eq!(output.status.code(), Some(0), "{}", told(&output));
    assert!(
        told(&output).contains("worker:1 | trained"),
        "{}",
        told(&output)
    );
}

/// Runs a line to its end, which must be a good one; what it said.
fn runs(desk: &Desk, line: &str) -> String {
    let words: Vec<_> = line.split_whitespace().collect();
    let said = desk.said(&words);
    assert!(said.ends_with("exit 0\n"), "{said}");
    said
}

#[test]
fn archives_are_unpacked_and_mounts_linked_where_tasks_run() {
    let desk = Desk::new();
    desk.file("inside.py").file("disk/data.txt");
    let show = "import os; print(sorted(os.listdir('.')), os.listdir('data') if os.path.exists('data') else '')\n";
    fs::write(desk.path().join("inside.py"), show).unwrap();
    let made = |program: &str, words: &[&str]| {
        let made = Command::new(program)
            .args(words)
            .current_dir(desk.path())
            .output();
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
    assert!(
        disk.join("data.txt").exists(),
        "a link is removed, and not what it leads to"
    );
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
            error: yarn-tf --mounts /a:data,/b:data/sub: `data/sub` and `data` are one place, or one is in the other

            hint: give each a place of its own

            error: yarn-tf --mounts /c:./data: `data` and `data` are one place, or one is in the other

            hint: give each a place of its own

            error: yarn-tf --mounts /d:x//y: `x//y` is no place for a mount

            hint: name a whole path in an image, or one below the task's directory
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --docker_image x:1 --mounts /data:/mnt:ro --output out:/mnt/out,log:a,log:b",
        expect![[r#"
            error: yarn-tf --output out:/mnt/out,log:a,log:b: `/mnt` is mounted to be read only

            hint: mount it without `:ro`, or name another place

            error: yarn-tf --output out:/mnt/out,log:a,log:b: `log` goes somewhere already

            hint: name each output once, and copy it further later
            exit 2
        "#]],
    );
    check(
        "yarn-tf --shell_command date --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker --container_retry_policy often",
        expect![[r#"
            error: yarn-tf --container_retry_policy often: there is no policy `often`

            hint: write 0 (never), 1 (always) or 2 (for some codes)

            error: yarn-tf --shell_env YARN_CONTAINER_RUNTIME_TYPE=docker: `YARN_CONTAINER_RUNTIME_TYPE` is `docker`, and no image is named

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
        let lines = said
            .lines()
            .filter_map(|line| line.strip_prefix("worker:0 | "));
        lines.map(str::to_owned).collect::<Vec<_>>()
    };
    let print = "printf '%s\\n'";
    let words = [
        "--shell_command",
        print,
        "--shell_args",
        "a=1 b=2",
        "'c d'",
        "e",
    ];
    assert_eq!(said(&words), ["a=1", "b=2", "c d", "e"]);
    // What only a shell understands is left to the one that it was written for.
    let words = [
        "--shell_command",
        print,
        "--shell_args",
        "--in",
        "$YDL_ROLE x",
        "{1..2}",
    ];
    assert_eq!(said(&words), ["--in", "worker", "x", "1", "2"]);
    let open = desk.said(&["yarn-tf", "--shell_command", "date", "--shell_args", "it's"]);
    assert!(
        open.contains("error: yarn-tf: `date it's` has a ' without its partner"),
        "{open}"
    );
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
    assert!(
        told(&output).contains("worker:0 | trained"),
        "{}",
        told(&output)
    );
}

#[test]
fn flags_that_older_systems_did_not_have_stay_with_the_program() {
    let desk = Desk::new();
    desk.shows(
        "dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5",
        expect![[r##"
            # dmlc-submit --mode local --num-workers 1 python train.py --mode train --max-attempts 5
            name: train
            framework: xgboost
            files: [train.py]
            roles:
              worker: {instances: 1, run: [python, ./train.py, "--mode", train, "--max-attempts", 5]}
            restart: {limit: 0}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: local
            exit 0
        "##]],
    );
}

#[test]
fn programs_that_speak_of_hdfs_find_hadoop_s_classes() {
    let desk = Desk::new();
    desk.file("xgboost");
    fs::write(
        desk.path().join("mushroom.conf"),
        "data = \"hdfs:///data/train\"\n",
    )
    .unwrap();
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
    let output = command
        .env("HADOOP_COMMON_HOME", desk.path().join("hadoop"))
        .output();
    let said = told(&output.unwrap());
    assert!(
        said.contains("worker:0 | :classpath --glob-of-hadoop -Xmx64m"),
        "{said}"
    );
}

#[test]
fn what_the_flags_say_of_sizes_wins_over_the_shell() {
    let desk = Desk::new();
    let words =
        "dmlc-submit --show --cluster local --num-workers 1 --worker-cores 2 python train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.command(&words).env("DMLC_WORKER_CORES", "9").output();
    let page = told(&output.unwrap());
    assert!(page.contains("DMLC_WORKER_CORES: 2\n"), "{page}");
    let words = "dmlc-submit --show --cluster yarn --num-workers 1 python train.py";
    let words: Vec<_> = words.split_whitespace().collect();
    let output = desk.command(&words).env("DMLC_MAX_ATTEMPT", "few").output();
    let said = told(&output.unwrap());
    assert!(
        said.contains("`DMLC_MAX_ATTEMPT` is `few`, which is no number"),
        "{said}"
    );
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
    assert!(
        said.contains("note: `model/` of each worker goes to"),
        "{said}"
    );
    let results = desk.path().join("results");
    let job = fs::read_dir(results).unwrap().next().unwrap().unwrap();
    for name in [
        "model/worker-0",
        "model/worker-1",
        "logs/worker-0",
        "logs/worker-1",
    ] {
        let own = job.path().join(name).join("own");
        assert!(own.is_file(), "{}", own.display());
    }
}

#[test]
fn a_job_is_tried_as_often_as_it_was_said() {
    let desk = Desk::new();
    let script = "import os, sys\nprint('attempt', os.environ['DMLC_NUM_ATTEMPT'], os.environ['DMLC_MINE'])\nsys.exit(3)\n";
    fs::write(desk.path().join("train.py"), script).unwrap();
    let tried = |most: &str| {
        let words = [
            "dmlc-submit",
            "--num-workers",
            "1",
            "--max-attempts",
            most,
            "python3",
            "train.py",
        ];
        let mut command = desk.command(&words);
        command
            .env("DMLC_SUBMIT_CLUSTER", "local")
            .env("DMLC_MINE", "here")
            .env("AWS_SECRET_ACCESS_KEY", "hidden");
        let said = told(&command.output().unwrap());
        assert!(
            said.contains("note: `AWS_SECRET_ACCESS_KEY` stays here"),
            "{said}"
        );
        assert!(
            !said.contains("hidden") && said.ends_with("exit 3\n"),
            "{said}"
        );
        said.matches(" | attempt ").count()
    };
    assert_eq!(tried("1"), 1);
    assert_eq!(tried("2"), 2);
}

#[test]
fn what_serves_has_a_port_and_no_servers() {
    let desk = Desk::new();
    let script = "import os\nprint('served', int(os.environ['YDL_PORT_HTTP']) > 0)\n";
    fs::write(desk.path().join("serve.py"), script).unwrap();
    let said = runs(
        &desk,
        "ydl-mx --cluster local --n 2 --serve --native cpp python3 serve.py",
    );
    assert_eq!(said.matches(" | served True").count(), 2, "{said}");
}

#[test]
fn links_are_made_for_every_door_and_nothing_of_others_is_replaced() {
    let desk = Desk::new();
    let listed = desk.said(&["doors"]);
    assert!(
        listed.contains("dmlc-yarn, dmlc-yarn.py, dmlc_yarn.py\n"),
        "{listed}"
    );
    // A second time changes nothing.
    for _ in 0..2 {
        runs(&desk, "doors --install bin");
    }
    let link = desk.path().join("bin/ydl-mx");
    let help = Command::new(&link).arg("--help").output().unwrap();
    assert!(
        told(&help).contains("Usage: ydl-mx --n N"),
        "{}",
        told(&help)
    );
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
    // Names that nobody lists, as people have had them.
    for name in ["dmlc_submit.py", "yarn_tf.py", "dmlc_tracker.py"] {
        let help = desk.said(&[name, "--help"]);
        assert!(help.contains(&format!("Usage: {name} ")), "{help}");
    }
    fs::remove_dir_all(desk.path().join("bin")).unwrap();
    fs::create_dir(desk.path().join("bin")).unwrap();
    fs::write(&link, "another's").unwrap();
    expect![[r#"
        error: `bin/ydl-mx` is there already

        hint: remove it, or choose another directory
        exit 2
    "#]]
    .assert_eq(&desk.said(&["doors", "--install", "bin"]));
    let left = fs::read_dir(desk.path().join("bin")).unwrap().count();
    assert_eq!(left, 1, "nothing else was made");
}

/// Each promise has its row, no cell is empty, and every test that is named is there.
#[test]
fn every_promise_of_the_older_systems_has_its_row() {
    let page = include_str!("../../../docs/coming-from.md");
    let rows: Vec<Vec<&str>> = page
        .lines()
        .filter(|line| line.starts_with("| 00"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    for (document, promises) in [("000", 12), ("001", 13), ("002", 13), ("003", 14)] {
        for promise in 1..=promises {
            let id = format!("{document}.{promise}");
            assert!(rows.iter().any(|row| row[0] == id), "{id} has no row");
        }
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let sources = sources(root);
    for row in &rows {
        assert!(
            row.len() >= 4 && row.iter().all(|cell| !cell.is_empty()),
            "{row:?}"
        );
        if row[0] >= "004" {
            // Tests of both languages, some by the beginning of their names.
            for named in row[3].split('`').skip(1).step_by(2) {
                let found = match named.contains('/') || named == "ydl-core" {
                    true => root.join("../..").join(named).exists() || named == "ydl-core",
                    false => {
                        let name = named.trim_end_matches('…');
                        let kinds = ["fn", "def", "class"].iter();
                        let mut defined = kinds.map(|kind| format!("{kind} {name}"));
                        defined.any(|line| sources.contains(&line))
                    }
                };
                assert!(found, "there is no test `{named}`: {row:?}");
            }
            continue;
        }
        for named in row[3].split(", ") {
            let (file, test) = named.split_once("::").unwrap_or_else(|| panic!("{row:?}"));
            let places = [root.join("tests"), root.join("../ydl-core/tests")];
            let text = |place: &std::path::PathBuf| {
                fs::read_to_string(place.join(file).with_extension("rs")).unwrap_or_default()
            };
            let found = places
                .iter()
                .any(|place| text(place).contains(&format!("fn {test}(")));
            assert!(found, "there is no test `{named}`");
        }
    }
}

/// Everything in which a promise of tf-yarn's is tested.
fn sources(root: &Path) -> String {
    let places = [
        "tests",
        "../ydl-core/tests",
        "../ydl-core/src",
        "../../python/tests",
    ];
    let mut dirs: Vec<_> = places.iter().map(|place| root.join(place)).collect();
    let mut all = String::new();
    while let Some(dir) = dirs.pop() {
        for entry in fs::read_dir(&dir).unwrap_or_else(|_| panic!("{}", dir.display())) {
            let path = entry.unwrap().path();
            match path.extension().and_then(|it| it.to_str()) {
                _ if path.is_dir() => dirs.push(path),
                Some("rs" | "py") => all += &fs::read_to_string(path).unwrap(),
                _ => {}
            }
        }
    }
    all
}
