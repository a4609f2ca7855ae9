//! Skein specifications: translation of each key, and runs.

use expect_test::{Expect, expect};
use ydl_testkit::{CommandOutput, local::Home};

const SERVICE: &str = "resources: {memory: 256 MiB, vcores: 1}, script: 'true'";

fn show(yaml: &str) -> CommandOutput {
    show_in(&Home::new(), yaml)
}

fn show_in(home: &Home, yaml: &str) -> CommandOutput {
    for name in ["data.csv", "other.csv", "env.tar.gz"] {
        home.write(name, "");
    }
    home.write("app.yaml", yaml);
    let mut command = home.ydl();
    command.args(["submit", "--show", "app.yaml"]);
    command.env("USER", "alice").env_remove("HADOOP_USER_NAME");
    // The configuration of a cluster, which is never contacted.
    std::fs::create_dir_all(home.path().join("conf")).expect("a directory");
    let address = "<property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property>";
    home.write("conf/core-site.xml", &format!("<configuration>{address}</configuration>"));
    command.env("HADOOP_CONF_DIR", home.path().join("conf"));
    CommandOutput::from(command.output().expect("ydl can be started"))
}

/// Checks the job file that a specification is translated to.
fn check(yaml: &str, expected: Expect) {
    let home = Home::new();
    let ran = show_in(&home, yaml);
    assert_eq!(ran.code, 0, "{ran:#?}");
    expected.assert_eq(&ran.stdout);
    // The output is a valid job file.
    let again = show_in(&home, &ran.stdout);
    assert_eq!(again.code, 0, "{again:#?}");
    assert!(again.stdout.contains("roles:"), "{again:#?}");
}

/// Checks the error for an invalid service of an application.
fn refused(yaml: &str, expected: Expect) {
    let ran = show(yaml);
    assert_eq!(ran.code, 2, "{ran:#?}");
    expected.assert_eq(&ran.stderr);
}

fn of_service(more: &str) -> String {
    format!("services: {{web: {{{SERVICE}, {more}}}}}\n")
}

#[test]
fn a_whole_application_becomes_a_job_file() {
    check(
        "name: my app
queue: research
user: alice
node_label: fast
max_attempts: 2
tags: [nightly, demo]
file_systems: [hdfs://other:8020]
acls:
  enable: true
  view_users: [bob]
  view_groups: [staff, guests]
  modify_users: ['*']
  ui_users: [carol]
master:
  log_level: debug
  resources: {memory: 1 GiB, vcores: 2}
services:
  scheduler:
    resources: {memory: 2 GB, vcores: 1}
    env: {PORT: 8786}
    files:
      data.csv: data.csv
      env: {source: env.tar.gz}
    script: |
      source env/bin/activate
      serve data.csv
  worker:
    instances: 4
    depends: [scheduler]
    max_restarts: 3
    allow_failures: true
    node_label: gpu
    nodes: [n1]
    relax_locality: true
    resources: {memory: 1024, vcores: 2, gpus: 1, fpgas: 2}
    files: {data.csv: other.csv}
    script: work
",
        expect![[r##"
            # app.yaml
            # note: `name`: the job is named `my-app`: names consist of letters, digits, `-`, `_` and `.`
            # note: line 13: `acls.ui_users` is ignored: viewers see everything of a job
            # note: line 15: `master.log_level` is ignored: the master has one log level and no log4j
            # note: line 30: `services.worker.max_restarts` applies to each task, not to all of them together
            name: my-app
            queue: research
            node_label: fast
            master: {node_label: fast, attempts: 2, memory: "1024 MiB", vcores: 2}
            tags: [nightly, demo]
            file_systems: ["hdfs://other:8020"]
            acls: {view: "bob staff,guests", modify: "*"}
            files:
              data.csv: data.csv
              env: {source: env.tar.gz, unpack: true}
              data.csv.worker: other.csv
            roles:
              scheduler:
                memory: "1908 MiB"
                vcores: 1
                run:
                  - bash
                  - "-c"
                  - "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\" SKEIN_APPMASTER_ADDRESS=\"${YDL_MASTER#https://}\"\nydl python-package .skein && export PYTHONPATH=\"$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}\" PATH=\"$PATH:$PWD/.skein/bin\"\nsource env/bin/activate\nserve data.csv\n"
                env: {SKEIN_RESOURCE_MEMORY: 1908, SKEIN_RESOURCE_VCORES: 1, PORT: 8786}
              worker:
                instances: 4
                memory: "1024 MiB"
                vcores: 2
                gpus: 1
                resources: {yarn.io/fpga: 2}
                depends_on: [scheduler]
                restart: {limit: 3}
                tolerate: all
                node_label: gpu
                placement: {nodes: [n1]}
                run:
                  - bash
                  - "-c"
                  - "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\" SKEIN_APPMASTER_ADDRESS=\"${YDL_MASTER#https://}\"\nydl python-package .skein && export PYTHONPATH=\"$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}\" PATH=\"$PATH:$PWD/.skein/bin\"\nln -sfn data.csv.worker data.csv\nwork"
                env: {SKEIN_RESOURCE_MEMORY: 1024, SKEIN_RESOURCE_VCORES: 2}
        "##]],
    );
}

#[test]
fn a_driver_becomes_a_role_with_primary_completion() {
    check(
        "
name: driven
master:
  resources: {memory: 600 MiB}
  env: {A: b}
  files: {data.csv: data.csv}
  script: python driver.py
  security: {cert_bytes: sesame, key_bytes: sesame}
services:
  driver: {resources: {memory: 256, vcores: 1}, commands: [first, second]}
",
        expect![[r##"
            # app.yaml
            # note: line 8: `master.security` is ignored: each job gets its own certificate and keys
            # note: `master.script` runs in its own container, as a role whose end ends the job
            name: driven
            files: {data.csv: data.csv}
            roles:
              driver:
                memory: "256 MiB"
                vcores: 1
                run:
                  - bash
                  - "-c"
                  - "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\" SKEIN_APPMASTER_ADDRESS=\"${YDL_MASTER#https://}\"\nydl python-package .skein && export PYTHONPATH=\"$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}\" PATH=\"$PATH:$PWD/.skein/bin\"\nset -e\nfirst\nsecond"
                env: {SKEIN_RESOURCE_MEMORY: 256, SKEIN_RESOURCE_VCORES: 1}
              application-driver:
                memory: "600 MiB"
                vcores: 1
                completion: primary
                run:
                  - bash
                  - "-c"
                  - "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\" SKEIN_APPMASTER_ADDRESS=\"${YDL_MASTER#https://}\"\nydl python-package .skein && export PYTHONPATH=\"$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}\" PATH=\"$PATH:$PWD/.skein/bin\"\npython driver.py"
                env: {SKEIN_RESOURCE_MEMORY: 600, SKEIN_RESOURCE_VCORES: 1, A: b}
        "##]],
    );
}

/// The translation needs no cluster.
#[test]
fn show_translates_an_application_without_a_cluster() {
    let home = Home::new();
    home.write("app.yaml", &of_service("files: {env: env.tar.gz}"));
    home.write("env.tar.gz", "");
    for (args, noted) in [
        (vec!["submit", "--show", "app.yaml"], true),
        (vec!["submit", "--show", "--cluster", "yarn", "app.yaml"], false),
    ] {
        let ran = home.run(&args);
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert!(ran.stdout.starts_with("# app.yaml\n"), "{ran:#?}");
        assert!(ran.stdout.contains("unpack: true"), "{ran:#?}");
        let note = "note: this machine cannot run the job; shown as it would run on a cluster\n";
        assert_eq!(ran.stderr == note, noted, "{ran:#?}");
        assert_eq!(ran.stderr.is_empty(), !noted, "{ran:#?}");
        // The resulting job file can be shown, too.
        home.write("job.yaml", &ran.stdout);
        let again = home.run(&["submit", "--show", "job.yaml"]);
        assert_eq!(again.code, 0, "{again:#?}");
        assert!(again.stdout.contains("unpack: true"), "{again:#?}");
    }
    let ran = home.run(&["submit", "--show", "--cluster", "local", "app.yaml"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(ran.stderr.contains("archives are unpacked on a cluster only"), "{ran:#?}");
    // Only errors that apply everywhere are reported.
    home.write("app.yaml", &of_service("files: {env: env.tar.gz}, instances: -1"));
    let ran = home.run(&["submit", "--show", "app.yaml"]);
    assert_eq!(ran.code, 2, "{ran:#?}");
    assert!(!ran.stderr.contains("archives are unpacked"), "{ran:#?}");
}

#[test]
fn unsupported_keys_of_an_application_are_rejected() {
    refused(
        "user: bob\nservices: {web: {resources: {memory: 1 GiB, vcores: 1}, script: x}}",
        expect![[r#"
            error: app.yaml:1:7: `user`: the job would be submitted as `alice`, not as `bob`

            hint: set `HADOOP_PROXY_USER=bob` if the cluster allows it, or remove `user`
        "#]],
    );
    refused(
        &of_service("instances: 0"),
        expect![[r#"
            error: app.yaml:1:86: `roles.web.instances`: a role of 0 instances does nothing

            hint: leave the role out, or give it at least one instance
        "#]],
    );
    refused(
        &of_service("depends: [db]"),
        expect![[r#"
            error: app.yaml:1:84: `services.web.depends`: unknown service `db`

            hint: the services are `web`
        "#]],
    );
    refused(
        &of_service("depends: [web]"),
        expect![[r#"
            error: app.yaml:1:84: `services.web.depends`: service `web` depends on itself

            hint: remove one of the dependencies
        "#]],
    );
    refused(
        &of_service("commands: [x]"),
        expect![[r#"
            error: app.yaml:1:85: `services.web` has a `script` and `commands`

            hint: remove `commands`
        "#]],
    );
    refused(
        &of_service("max_restart: 3"),
        expect![[r#"
            error: app.yaml:1:75: unknown key `max_restart` in `services.web`

            hint: did you mean `max_restarts`?
        "#]],
    );
    refused(
        "services: {}\nnane: x",
        expect![[r#"
            error: app.yaml:2:1: unknown key `nane` in a skein specification

            hint: did you mean `name`?
        "#]],
    );
    refused(
        "services: {}",
        expect![[r#"
            error: app.yaml:1:11: the specification has neither a service nor a `master.script`
        "#]],
    );
    refused(
        "services: [a]",
        expect![[r#"
            error: app.yaml:1:11: `services` is a list, expected a map
        "#]],
    );
    refused(
        "services: {web: {resources: {memory: lots}, instances: some, files: {a/b: x, c: {type: file}, d: {source: x, type: zip}}}}",
        expect![[r#"
            error: app.yaml:1:17: `services.web` has no `script`

            hint: write the commands to run

            error: app.yaml:1:29: `services.web.resources` has no `vcores`

            hint: add them, such as `1`

            error: app.yaml:1:38: `services.web.resources.memory` is not a size

            hint: write it as `2 GiB`; a number alone is in MiB

            error: app.yaml:1:56: `services.web.instances` is not a count

            error: app.yaml:1:70: `services.web.files.a/b`: a file name must not contain `/`

            error: app.yaml:1:81: `services.web.files.c` has no `source`

            hint: set it to a path or URL

            error: app.yaml:1:98: `services.web.files.d.type`: unknown type `zip`

            hint: use `archive`, `file` or `infer`
        "#]],
    );
    refused(
        "services: {web: {script: x}}\nmaster: {resources: {gpus: 1}}",
        expect![[r#"
            error: app.yaml:1:17: `services.web` has no `resources`

            hint: add them, such as `{memory: 2 GiB, vcores: 1}`

            error: app.yaml:2:28: `master.resources.gpus`: the master uses no gpus

            hint: remove it
        "#]],
    );
}

#[test]
fn the_user_of_an_application_is_the_submitter_however_that_is_known() {
    let shown = |user: &str, set: &[(&str, &str)], conf: &str| {
        let home = Home::new();
        home.write("app.yaml", &format!("user: {user}\n{}", of_service("instances: 1")));
        let mut command = home.ydl();
        command.args(["submit", "--show", "app.yaml"]);
        command.env("USER", "alice").env_remove("HADOOP_USER_NAME").env_remove("HADOOP_PROXY_USER");
        command.envs(set.iter().copied());
        if !conf.is_empty() {
            std::fs::create_dir_all(home.path().join("conf")).expect("a directory");
            home.write("conf/core-site.xml", conf);
            command.env("HADOOP_CONF_DIR", home.path().join("conf"));
        }
        CommandOutput::from(command.output().expect("ydl can be started"))
    };
    let cluster = "<configuration><property><name>fs.defaultFS</name><value>hdfs://nn:8020</value></property></configuration>";
    for conf in ["", cluster] {
        for (user, set) in [
            ("alice", &[][..]),
            ("carol", &[("HADOOP_USER_NAME", "carol")]),
            ("dave", &[("HADOOP_USER_NAME", "carol"), ("HADOOP_PROXY_USER", "dave")]),
        ] {
            let ran = shown(user, set, conf);
            assert_eq!(ran.code, 0, "{user} {conf}: {ran:#?}");
        }
        // The name that the cluster would use counts, not another name of the caller.
        let ran = shown("alice", &[("HADOOP_USER_NAME", "carol")], conf);
        assert_eq!(ran.code, 2, "{ran:#?}");
        let what = "`user`: the job would be submitted as `carol`, not as `alice`";
        assert!(ran.stderr.contains(what), "{ran:#?}");
    }
}

#[test]
fn services_that_hide_ydls_skein_are_rejected() {
    let shown = |script: &str, program: &str| {
        let home = Home::new();
        home.write("train.py", program);
        let service = format!(
            "resources: {{memory: 1, vcores: 1}}, script: '{script}', files: {{train.py: train.py}}"
        );
        home.write("app.yaml", &format!("services: {{web: {{{service}}}}}"));
        home.run(&["submit", "--show", "app.yaml"])
    };
    let ran = shown("PYTHONPATH=lib python train.py", "import skein\n");
    assert_eq!(ran.code, 2, "{ran:#?}");
    expect![[r#"
        error: app.yaml:1:61: `web`: file `train.py` uses skein, and the script replaces `PYTHONPATH` (`PYTHONPATH=lib python train.py`): Python would find the original skein, which cannot connect to this master

        hint: keep the earlier path, as in `export PYTHONPATH=mine:$PYTHONPATH`, and leave out `python -E` and `-I`
    "#]].assert_eq(&ran.stderr);
    for (script, program) in [
        ("PYTHONPATH=lib python train.py", "import numpy\n"),
        ("PYTHONPATH=lib:$PYTHONPATH python train.py", "import skein\n"),
        ("python train.py", "import skein\n"),
        ("PYTHONPATH=lib python train.py", "# replaces skein\n"),
    ] {
        let ran = shown(script, program);
        assert_eq!(ran.code, 0, "{ran:#?}");
    }
}

#[test]
fn nodes_and_racks_are_required_unless_locality_is_relaxed() {
    for (keys, placement) in [
        ("nodes: [n1], racks: [/r1]", "placement: {nodes: [n1], strict: true, racks: [/r1]}"),
        ("racks: [/r1], relax_locality: false", "placement: {racks: [/r1], strict: true}"),
        ("nodes: [n1], relax_locality: true", "placement: {nodes: [n1]}"),
    ] {
        let ran = show(&of_service(keys));
        assert_eq!(ran.code, 0, "{ran:#?}");
        assert!(ran.stdout.contains(placement), "{placement}: {ran:#?}");
    }
}

#[test]
fn ignored_keys_of_an_application_are_noted() {
    let notes = |yaml: &str| {
        let ran = show(yaml);
        assert_eq!(ran.code, 0, "{ran:#?}");
        let notes = ran.stdout.lines().filter(|line| line.starts_with("# note: "));
        notes.map(str::to_owned).collect::<Vec<_>>().join("\n")
    };
    expect![[r#"
        # note: line 1: `services.web.files.a.visibility` is ignored: files belong to the submitter and are uploaded once
        # note: line 1: `services.web.files.a.size` is ignored: it is read from the file
        # note: line 1: `services.web.files.a.timestamp` is ignored: it is read from the file"#]].assert_eq(&notes(&of_service(
        "files: {a: {source: data.csv, visibility: public, size: 3, timestamp: 4}}",
    )));
    expect!["# note: line 1: `services.web.max_restarts` applies to each task, not to all of them together"].assert_eq(&notes(&of_service("instances: 3, max_restarts: 2")));
    expect![[r#""#]].assert_eq(&notes(&of_service("max_restarts: -1")));
    expect![[r#"
        # note: `acls` is ignored because it is not enabled (`enable: true`)
        # note: line 2: `master.log_config` is ignored: the master has one log level and no log4j
        # note: line 2: `master.env` is ignored without `master.script`
        # note: line 3: service `my web` becomes role `my-web`"#]].assert_eq(&notes(
        "acls: {view_users: [bob]}\nmaster: {log_config: log4j.properties, env: {A: b}}\n\
         services: {my web: {resources: {memory: 1, vcores: 1}, script: 'skein kv get current --key x'}}",
    ));
}

#[test]
fn image_variables_of_yarn_become_the_environment_of_the_role() {
    check(
        "
services:
  web:
    resources: {memory: 256, vcores: 1}
    script: serve
    env:
      YARN_CONTAINER_RUNTIME_TYPE: docker
      YARN_CONTAINER_RUNTIME_DOCKER_IMAGE: library/python:3.11
      YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS: /data:/data:ro,/etc/krb5.conf:/etc/krb5.conf:ro
      A: b
",
        expect![[r##"
            # app.yaml
            roles:
              web:
                memory: "256 MiB"
                vcores: 1
                environment: {docker: "library/python:3.11", mounts: ["/data:/data:ro", "/etc/krb5.conf:/etc/krb5.conf:ro"]}
                run:
                  - bash
                  - "-c"
                  - "export SKEIN_APPLICATION_ID=\"$YDL_JOB\" SKEIN_CONTAINER_ID=\"${YDL_ROLE}_$YDL_INDEX\" SKEIN_APPMASTER_ADDRESS=\"${YDL_MASTER#https://}\"\nydl python-package .skein && export PYTHONPATH=\"$PWD/.skein${PYTHONPATH:+:$PYTHONPATH}\" PATH=\"$PATH:$PWD/.skein/bin\"\nserve"
                env: {SKEIN_RESOURCE_MEMORY: 256, SKEIN_RESOURCE_VCORES: 1, A: b}
        "##]],
    );
    refused(
        &of_service(
            "env: {YARN_CONTAINER_RUNTIME_TYPE: docker, YARN_CONTAINER_RUNTIME_DOCKER_PORTS_MAPPING: '80:80'}",
        ),
        expect![[r#"
            error: app.yaml:1:110: `YARN_CONTAINER_RUNTIME_TYPE` is `docker`, but no image is set

            hint: set `YARN_CONTAINER_RUNTIME_DOCKER_IMAGE`

            error: app.yaml:1:163: `YARN_CONTAINER_RUNTIME_DOCKER_PORTS_MAPPING` has no equivalent in a job file

            hint: remove it
        "#]],
    );
}

#[test]
fn a_ydl_job_file_is_not_read_as_a_skein_specification() {
    let ran = show("master: {memory: 1 GiB}\nroles: {worker: {run: 'true'}}");
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("name: "), "{ran:#?}");
    assert!(!ran.stdout.contains("# note"), "{ran:#?}");
}

#[test]
fn services_start_after_their_dependencies_with_files_and_variables() {
    let home = Home::new();
    home.write("words.txt", "hello\n");
    home.write("others.txt", "others\n");
    let shared = home.path().display();
    let app = format!(
        "name: two
services:
  first:
    resources: {{memory: 128 MiB, vcores: 1}}
    files: {{words: words.txt}}
    env: {{WHO: world}}
    script: |
      [[ $SKEIN_CONTAINER_ID == first_0 ]] || exit 9
      echo \"$(cat words) $WHO $SKEIN_RESOURCE_MEMORY $SKEIN_RESOURCE_VCORES\"
      touch {shared}/began
  second:
    instances: 2
    depends: [first]
    resources: {{memory: 128 MiB, vcores: 1}}
    files: {{words: others.txt}}
    script: |
      [ -n \"$SKEIN_APPLICATION_ID\" ] && echo \"$SKEIN_CONTAINER_ID: $(cat words)\"
  broken:
    resources: {{memory: 128 MiB, vcores: 1}}
    allow_failures: true
    script: exit 3
"
    );
    home.write("app.yaml", &app);
    let ran = home.run(&["submit", "app.yaml"]);
    assert_eq!(ran.code, 0, "{ran:#?}");
    assert!(ran.stdout.contains("hello world 128 1"), "{ran:#?}");
    for line in ["second_0: others", "second_1: others"] {
        assert!(ran.stdout.contains(line), "{ran:#?}");
    }
    // Dependent services start when their dependencies run.
    let history = home.history();
    let started = |task: &str| {
        let mut lines = history.lines();
        let at = lines.position(|line| line.contains("attempt-started") && line.contains(task));
        at.unwrap_or_else(|| panic!("{task} never ran: {history}"))
    };
    assert!(started("first:0") < started("second:0"), "{history}");
    assert!(started("first:0") < started("second:1"), "{history}");
}
