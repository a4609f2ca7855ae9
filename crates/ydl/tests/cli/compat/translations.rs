//! Job files that `--show` prints for the command lines of each compat command.

use super::workspace::CompatWorkspace;
use expect_test::expect;

#[test]
fn dmlc_submit_translates_to_an_mxnet_or_rabit_job() {
    let workspace = CompatWorkspace::new();
    workspace.file("lib/data.txt").file("code.tar.gz").file("more.zip");
    workspace.shows(
        "dmlc-submit --cluster yarn --num-workers 2 --num-servers 1 --worker-mem 1.5g --server-cores 2 --queue ml \
         --hdfs-tempdir /tmp --files lib/data.txt#named --archives code.tar.gz --archives=more.zip --env A=1 --host-ip auto \
         --yarn-app-dir jars python train.py --lr 0.1 --jobname digits",
        expect![[r##"
            # dmlc-submit --cluster yarn --num-workers 2 --num-servers 1 --worker-mem 1.5g --server-cores 2 --queue ml --hdfs-tempdir /tmp --files 'lib/data.txt#named' --archives code.tar.gz --archives=more.zip --env A=1 --host-ip auto --yarn-app-dir jars python train.py --lr 0.1 --jobname digits
            # note: `--host-ip` has no effect: the tracker runs in the job's master, whose address every task gets
            # note: `--yarn-app-dir` has no effect: ydl needs no jar, no class path and no build on this machine
            # note: `--jobname` after the command is read as a flag of dmlc-submit, as before; put `--` before the command to pass it to the program
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
                  - "remove_links() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then echo \"$0: $1 contains $it, but $top is a file of the job\" >&2; return 1; fi; rm -f \"./$top\"; done; }; tar -tf ./code.tar.gz | remove_links code.tar.gz && tar -xf ./code.tar.gz && { unzip -Z1 ./more.zip 2>/dev/null || python3 -c 'import sys, zipfile; print(*zipfile.ZipFile(sys.argv[1]).namelist(), sep=\"\\n\")' ./more.zip; } | remove_links more.zip && { unzip -qo ./more.zip || python3 -m zipfile -e ./more.zip .; } && exec \"$@\""
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
            node_exclusion: {failures: 1, timeout: 30d}
            queue: ml
            staging: /tmp/ydl-alice
            exit 0
        "##]],
    );
    workspace.shows(
        "dmlc-submit --cluster local --num-workers 3 --local-num-attempt 2 python train.py",
        expect![[r#"
            # dmlc-submit --cluster local --num-workers 3 --local-num-attempt 2 python train.py
            name: train
            framework: xgboost
            roles:
              worker: {instances: 3, run: [python, train.py]}
            restart: {limit: 2}
            env:
              DMLC_WORKER_MEMORY_MB: 1024
              DMLC_WORKER_CORES: 1
              DMLC_SERVER_MEMORY_MB: 1024
              DMLC_SERVER_CORES: 1
              DMLC_JOB_CLUSTER: local
            local: {directory: ., oversubscribe: true}
            exit 0
        "#]],
    );
}

#[test]
fn dmlc_yarn_accepts_multi_letter_short_flags() {
    let workspace = CompatWorkspace::new();
    workspace.file("a.txt").file("b.txt");
    workspace.shows(
        "dmlc-yarn.py -hip 192.168.1.1 -n 1 -s 1 --yarn-scripts xxx/mxnet/dmlc-core/yarn/ python train.py",
        expect![[r#"
            # dmlc-yarn.py -hip 192.168.1.1 -n 1 -s 1 --yarn-scripts xxx/mxnet/dmlc-core/yarn/ python train.py
            # note: `-hip` has no effect: the cluster is the one in HADOOP_CONF_DIR, and the tracker runs in the job's master
            # note: `--yarn-scripts` has no effect: ydl needs no jar, no class path and no build on this machine
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
            node_exclusion: {failures: 1, timeout: 30d}
            exit 0
        "#]],
    );
    workspace.shows(
        "dmlc-yarn -n2 -q ml -ac 0 -f a.txt#b.txt -mem 2048 --vcores 2 --tempdir /tmp/ --libhdfs-opts=-Xmx64m -hb hadoop \
         --max-attempts 5 python train.py",
        expect![[r##"
            # dmlc-yarn -n2 -q ml -ac 0 -f 'a.txt#b.txt' -mem 2048 --vcores 2 --tempdir /tmp/ --libhdfs-opts=-Xmx64m -hb hadoop --max-attempts 5 python train.py
            # note: `-hb` has no effect: ydl implements Hadoop's protocols itself
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
                  - "{ for hadoop in \"$HADOOP_HOME\" \"$HADOOP_PREFIX\" \"$HADOOP_COMMON_HOME\" \"$HADOOP_HDFS_HOME\" /usr; do hadoop=$hadoop/bin/hadoop; [ ! -x \"$hadoop\" ] || break; done; [ -x \"$hadoop\" ] || hadoop=$(command -v hadoop) || echo \"$0: no hadoop command on this node, so libhdfs has no class path\" >&2; [ -z \"$hadoop\" ] || export CLASSPATH=\"$CLASSPATH:$(\"$hadoop\" classpath --glob)\"; } && export LD_LIBRARY_PATH=\"$LD_LIBRARY_PATH:./:$HADOOP_HDFS_HOME/lib/native:$HADOOP_HOME/lib/native:$JAVA_HOME/lib/server:$JAVA_HOME/jre/lib/amd64/server\" && exec \"$@\""
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
            node_exclusion: {failures: 1, timeout: 30d}
            queue: ml
            staging: /tmp/ydl-alice
            exit 0
        "##]],
    );
}

#[test]
fn launch_py_defaults_to_one_server_per_worker() {
    let workspace = CompatWorkspace::new();
    workspace.shows(
        "launch.py -n 2 --launcher yarn --env-server A:1 --env-worker B:2 --env USER --p3 --worker-memory 2g python train.py",
        expect![[r#"
            # launch.py -n 2 --launcher yarn --env-server A:1 --env-worker B:2 --env USER --p3 --worker-memory 2g python train.py
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
            node_exclusion: {failures: 1, timeout: 30d}
            exit 0
        "#]],
    );
}

#[test]
fn ydl_mx_runs_python_with_one_server_per_worker() {
    let workspace = CompatWorkspace::new();
    workspace.shows(
        "ydl-mx --n 2 --jobname MXNetOnYarn --jar ydl-mx.jar train.py --kv-store sync --data-dir .",
        expect![[r##"
            # ydl-mx --n 2 --jobname MXNetOnYarn --jar ydl-mx.jar train.py --kv-store sync --data-dir .
            # note: `--jar` has no effect: ydl needs no jar, no class path and no build on this machine
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
              DMLC_JOB_CLUSTER: yarn
            node_exclusion: {failures: 1, timeout: 30d}
            exit 0
        "##]],
    );
    workspace.shows(
        "ydl-mx --n 2 --s 1 --docker registry/mxnet:1.9 --gpus 1 --results model/ --queue ml train.py --n 7",
        expect![[r##"
            # ydl-mx --n 2 --s 1 --docker registry/mxnet:1.9 --gpus 1 --results model/ --queue ml train.py --n 7
            # note: `model/` of each worker goes to `results/{job}/{role}-{index}`, because file names may collide
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
              DMLC_JOB_CLUSTER: yarn
            node_exclusion: {failures: 1, timeout: 30d}
            outputs:
              model/: {to: "results/{job}/{role}-{index}", from: worker}
            queue: ml
            exit 0
        "##]],
    );
    workspace.file("train");
    workspace.shows(
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
              DMLC_JOB_CLUSTER: yarn
            node_label: mxnet
            node_exclusion: {failures: 1, timeout: 30d}
            exit 0
        "##]],
    );
    workspace.shows("ydl-mx --n 3 --serve train.py", expect![[r#"
        # ydl-mx --n 3 --serve train.py
        # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
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
          DMLC_JOB_CLUSTER: yarn
        gang: true
        node_exclusion: {failures: 1, timeout: 30d}
        exit 0
    "#]]);
    workspace.shows(
        "ydl-mx local train.py",
        expect![[r#"
        # ydl-mx local train.py
        name: train
        framework: mxnet
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
        local: {directory: ., oversubscribe: true}
        exit 0
    "#]],
    );
}

#[test]
fn yarn_tf_translates_to_a_tensorflow_job_with_cluster_flags() {
    let workspace = CompatWorkspace::new();
    workspace.file("code.tar").file("run.sh");
    workspace.shows(
        "yarn-tf -num_parameter_servers 2 --num_trainers=2 --tar code.tar --mounts /data/mnist:data --output \
         model:hdfs:///user/alice/model,logs/:data/logs --appname digits --container_memory 2048 --container_resources \
         yarn.io/gpu=1 --timeout 600000 --jar tf.jar --shell_env A=1 B=2 --shell_command python --shell_args trainer.py --lr 0.1",
        expect![[r##"
            # yarn-tf -num_parameter_servers 2 --num_trainers=2 --tar code.tar --mounts /data/mnist:data --output 'model:hdfs:///user/alice/model,logs/:data/logs' --appname digits --container_memory 2048 --container_resources yarn.io/gpu=1 --timeout 600000 --jar tf.jar --shell_env A=1 B=2 --shell_command python --shell_args trainer.py --lr 0.1
            # note: `--jar` has no effect: ydl needs no jar
            # note: `yarn.io/gpu` applies to workers only, not to parameter servers
            # note: no virtual environment is active, so tasks use the `python` of their nodes; add `--environment ./venv` to ship one
            # note: `logs/` of each worker goes to `file:///data/mnist/logs/{role}-{index}`, because file names may collide
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
                  - "remove_links() { while IFS= read -r it; do it=${it#./}; top=${it%%/*}; [ -L \"$top\" ] || continue; if [ \"$it\" != \"$top\" ] && [ -d \"$top\" ]; then echo \"$0: $1 contains $it, but $top is a file of the job\" >&2; return 1; fi; rm -f \"./$top\"; done; }; { [ ! -L ./data ] || rm -f ./data; } && tar -tf ./code.tar | remove_links code.tar && tar -xf ./code.tar && rm -rf ./data && ln -s /data/mnist ./data && exec \"$@\""
                  - yarn-tf
                  - python
                  - trainer.py
                  - "--lr"
                  - 0.1
              ps: {instances: 2, memory: 2048m}
            timeouts: {run: 600000ms}
            env: {A: 1, B: 2}
            outputs:
              model: {to: "hdfs:///user/alice/model", from: "worker:0"}
              logs/: {to: "file:///data/mnist/logs/{role}-{index}", from: worker}
            exit 0
        "##]],
    );
    workspace.shows(
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
    workspace.shows(
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
