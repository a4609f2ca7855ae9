//! Images in job files: syntax, errors, and preflight checks.

use expect_test::{Expect, expect};
use std::fs;
use ydl::client::preflight::{ClusterInfo, Constraints, check};
use ydl_core::{
    JobSpec, RoleName,
    spec::{Environment, Image, Mount, Runtime},
};
use ydl_jobfile::{load, show};

fn read(yaml: &str, cluster: bool) -> Result<JobSpec, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("job.yaml");
    fs::write(&file, yaml).unwrap();
    fs::create_dir_all(dir.path().join("venv/bin")).unwrap();
    let mut source = load(&file).unwrap();
    if cluster {
        source.for_cluster();
    }
    let prefix = format!("{}/", dir.path().display());
    let job = source.job();
    job.map_err(|diagnostics| diagnostics.to_string().replace(&prefix, ""))
}

/// Returns a job file with that environment.
fn with(environment: &str) -> String {
    format!("environment: {environment}\nroles: {{w: {{run: sleep 1}}}}\n")
}

fn bad(environments: &[&str], cluster: bool, expected: Expect) {
    let mut all = String::new();
    for environment in environments {
        let message = read(&with(environment), cluster).unwrap_err();
        all += &format!("{environment}\n{message}\n\n");
    }
    expected.assert_eq(all.trim_end());
}

#[test]
fn image_settings_survive_show_and_reload() {
    let yaml = with(
        "{docker: 'registry.example.com:5000/team/image:1.2-gpu', mounts: ['/data/mnist:/data:ro', '/scratch:/scratch:rw'], \
         network: bridge, privileged: true, login: 'hdfs:///user/a/docker.json', keep: true}",
    );
    let spec = read(&yaml, true).unwrap();
    let Environment::Image(image) = &spec.environment else {
        panic!("{spec:?}");
    };
    let mount =
        |from: &str, to: &str, writable| Mount { from: from.into(), to: to.into(), writable };
    let expected = Image {
        mounts: vec![mount("/data/mnist", "/data", false), mount("/scratch", "/scratch", true)],
        network: Some("bridge".into()),
        privileged: true,
        login: Some("hdfs:///user/a/docker.json".into()),
        keep: true,
        ..Image::new(Runtime::Docker, "registry.example.com:5000/team/image:1.2-gpu")
    };
    assert_eq!(*image, expected);
    let yaml_text = show(&spec);
    assert_eq!(read(&yaml_text, true).as_ref(), Ok(&spec), "{yaml_text}");
    let short = read(&with("docker://python"), true).unwrap();
    let expected = Image::new(Runtime::Docker, "python");
    assert_eq!(short.environment, Environment::Image(expected));
    assert_eq!(read(&show(&short), true).as_ref(), Ok(&short));
    let runc = read(&with("{runc: python, mounts: ['/a:/b:ro']}"), true).unwrap();
    assert_eq!(read(&show(&runc), true).as_ref(), Ok(&runc));
}

#[test]
fn valid_image_names_are_accepted() {
    let names = [
        "python",
        "python:3.11-slim",
        "library/python:3.11",
        "localhost/a",
        "localhost:5000/a/b_c/d.e-f:V1_x",
        "my.registry/x__y",
        "10.0.0.1:5000/x",
    ];
    for name in names {
        let spec = read(&with(&format!("{{docker: '{name}'}}")), true);
        assert!(spec.is_ok(), "{name}: {spec:?}");
    }
    let digest = format!("python@sha256:{}", "0a".repeat(32));
    assert!(read(&with(&format!("{{docker: '{digest}'}}")), false).is_ok());
}

#[test]
fn roles_override_the_image_of_the_job() {
    let yaml = "\
environment: {docker: python}
roles:
  worker: {run: sleep 1}
  server: {run: sleep 1, environment: system}
  other: {run: sleep 1, environment: {docker: 'debian:12'}}
";
    let spec = read(yaml, true).unwrap();
    let image = |role: &str| spec.image_of(&RoleName::from(role)).map(|image| image.name.as_str());
    assert_eq!(image("worker"), Some("python"));
    assert_eq!(image("server"), None);
    assert_eq!(image("other"), Some("debian:12"));
    assert_eq!(read(&show(&spec), true).as_ref(), Ok(&spec));
    let packed = read(
        "roles: {w: {run: sleep 1, environment: ./venv}, v: {run: sleep 1, environment: {path: venv}}}",
        true,
    );
    expect![[r#"
        error: job.yaml:1:40: `roles.w.environment`: the environment of a role is `system` or an image; packed environments are set for the job

        hint: set `environment` of the job, or use `{docker: registry/image:tag}`

        error: job.yaml:1:80: `roles.v.environment`: the environment of a role is `system` or an image; packed environments are set for the job

        hint: set `environment` of the job, or use `{docker: registry/image:tag}`"#]].assert_eq(&packed.unwrap_err());
}

#[test]
fn invalid_images_are_rejected_with_a_hint() {
    bad(
        &[
            "{docker: ''}",
            "{docker: Python}",
            "{docker: 'python:'}",
            "{docker: 'https://registry/x'}",
            "{docker: 'me:hunter2@registry/x'}",
            "{docker: 'bad host.com:99999/x'}",
            "{docker: [a]}",
            "{docker: a, runc: b}",
            "{docker: a, path: ./venv}",
            "{mounts: ['/a:/b:ro']}",
            "{image: python}",
            "docker://UPPER",
        ],
        true,
        expect![[r#"
            {docker: ''}
            error: job.yaml:1:23: `environment.docker`: the image has no name

            hint: write it as `registry.example.com:5000/team/image:tag`

            {docker: Python}
            error: job.yaml:1:23: `environment.docker`: `Python` cannot be the name of an image

            hint: such names have no capital letters

            {docker: 'python:'}
            error: job.yaml:1:23: `environment.docker`: the image's tag is empty

            hint: write it as `registry.example.com:5000/team/image:tag`

            {docker: 'https://registry/x'}
            error: job.yaml:1:23: `environment.docker`: `https://registry/x` is an address, not the name of an image

            hint: write it as `registry.example.com:5000/team/image:tag`

            {docker: 'me:hunter2@registry/x'}
            error: job.yaml:1:23: `environment.docker`: the image's name has an `@` that is not followed by `sha256:` and a digest

            hint: credentials do not belong in a name: see `login`

            {docker: 'bad host.com:99999/x'}
            error: job.yaml:1:23: `environment.docker`: `bad host.com:99999` cannot be a registry

            hint: write it as `registry.example.com:5000/team/image:tag`

            {docker: [a]}
            error: job.yaml:1:23: `environment.docker`: expected text, found a list

            {docker: a, runc: b}
            error: job.yaml:1:32: `environment.runc`: it conflicts with `docker`

            hint: remove one of them

            {docker: a, path: ./venv}
            error: job.yaml:1:32: `environment.path`: it does not apply to images

            hint: remove it, or remove `docker`

            {mounts: ['/a:/b:ro']}
            error: job.yaml:1:23: `environment.mounts`: it applies to images only

            hint: add an image: `{docker: registry/image:tag, …}`

            {image: python}
            error: job.yaml:1:15: unknown key `image` in `environment`

            hint: did you mean `docker`?

            docker://UPPER
            error: job.yaml:1:1: `environment.docker`: `UPPER` cannot be the name of an image

            hint: such names have no capital letters"#]],
    );
}

#[test]
fn malformed_mounts_and_networks_are_rejected() {
    bad(
        &[
            "{docker: a, mounts: '/a:/b:ro'}",
            "{docker: a, mounts: ['/a:/b']}",
            "{docker: a, mounts: ['/a']}",
            "{docker: a, mounts: ['/a:/b:rx']}",
            "{docker: a, mounts: ['data:/b:ro']}",
            "{docker: a, mounts: ['/a:b:ro']}",
            "{docker: a, mounts: ['/a/../etc:/b:ro']}",
            "{docker: a, mounts: ['/a:/:ro']}",
            "{docker: a, mounts: ['/a,b:/b:ro']}",
            "{docker: a, mounts: ['/a:/x:ro', '/b:/x/:rw']}",
            "{docker: a, network: 'my net'}",
            "{docker: a, network: none}",
            "{docker: a, privileged: 1}",
            "{docker: a, login: hunter2}",
            "{runc: a, network: host, privileged: true, keep: true, login: /etc/x}",
            "{runc: a, mounts: ['/a:/tmp:ro']}",
        ],
        true,
        expect![[r#"
            {docker: a, mounts: '/a:/b:ro'}
            error: job.yaml:1:34: `environment.mounts`: expected a list, found text

            hint: write `mounts: [/a:/b:ro]`

            {docker: a, mounts: ['/a:/b']}
            error: job.yaml:1:35: `environment.mounts`: `/a:/b` has no mode

            hint: add `:ro`, or `:rw` if programs write there

            {docker: a, mounts: ['/a']}
            error: job.yaml:1:35: `environment.mounts`: `/a` is not a mount

            hint: write `/path/on/the/node:/path/in/the/image:ro`

            {docker: a, mounts: ['/a:/b:rx']}
            error: job.yaml:1:35: `environment.mounts`: `rx` in `/a:/b:rx` is neither `ro` nor `rw`

            {docker: a, mounts: ['data:/b:ro']}
            error: job.yaml:1:34: `environment.mounts`: `data` is not an absolute path on the node

            hint: files of the job come along with `files`; a mount is a path that every node has

            {docker: a, mounts: ['/a:b:ro']}
            error: job.yaml:1:34: `environment.mounts`: `b` is not an absolute path in the image

            {docker: a, mounts: ['/a/../etc:/b:ro']}
            error: job.yaml:1:34: `environment.mounts`: `/a/../etc` holds `..`

            {docker: a, mounts: ['/a:/:ro']}
            error: job.yaml:1:34: `environment.mounts`: `/a:/:ro` would hide the image itself

            hint: name a directory in it

            {docker: a, mounts: ['/a,b:/b:ro']}
            error: job.yaml:1:34: `environment.mounts`: `/a,b` holds `,`, which no mount can have

            {docker: a, mounts: ['/a:/x:ro', '/b:/x/:rw']}
            error: job.yaml:1:34: `environment.mounts`: two mounts have the same path `/x/`

            hint: give one of them another place in the image

            {docker: a, network: 'my net'}
            error: job.yaml:1:35: `environment.network`: `my net` cannot be the name of a network

            hint: such as `host`, `bridge`, or one that `docker network ls` shows

            {docker: a, network: none}
            error: job.yaml:1:35: `environment.network`: agents need a network to reach the master

            hint: remove it, or use another network

            {docker: a, privileged: 1}
            error: job.yaml:1:38: `environment.privileged`: `1` is neither `true` nor `false`

            {docker: a, login: hunter2}
            error: job.yaml:1:33: `environment.login`: expected the path of a file that nodes can read

            hint: copy the `config.json` of `docker login` there, and use `hdfs:///user/me/docker.json`

            {runc: a, network: host, privileged: true, keep: true, login: /etc/x}
            error: job.yaml:1:33: `environment.network`: a runc container has the network that its node gives it

            hint: leave it out, or use `docker`

            error: job.yaml:1:51: `environment.privileged`: YARN runs no privileged runc containers

            hint: leave it out, or use `docker`

            error: job.yaml:1:63: `environment.keep`: YARN keeps no runc containers

            hint: leave it out, or use `docker`

            error: job.yaml:1:76: `environment.login`: runc's images lie in HDFS and need no login

            hint: leave it out, or use `docker`

            {runc: a, mounts: ['/a:/tmp:ro']}
            error: job.yaml:1:32: `environment.mounts`: `/tmp` of a runc container is its own, and nothing can be mounted there

            hint: choose another place in the image"#]],
    );
}

#[test]
fn image_settings_for_clusters_are_rejected_on_one_machine() {
    bad(
        &[
            "{runc: a}",
            "runc://a",
            "{docker: a, keep: true}",
            "{docker: a, mounts: ['/no/such/directory:/b:ro']}",
            "{docker: a, mounts: ['/no/such/../directory:/b:ro']}",
        ],
        false,
        expect![[r#"
            {runc: a}
            error: job.yaml:1:21: `environment.runc`: runc images are supported on a cluster only

            hint: use `docker` here, or `--cluster yarn`

            runc://a
            error: job.yaml:1:14: `environment`: runc images are supported on a cluster only

            hint: use `docker` here, or `--cluster yarn`

            {docker: a, keep: true}
            error: job.yaml:1:32: `environment.keep`: containers are not kept on one machine

            hint: remove it

            {docker: a, mounts: ['/no/such/directory:/b:ro']}
            error: job.yaml:1:35: `environment.mounts`: `/no/such/directory` does not exist on this machine

            {docker: a, mounts: ['/no/such/../directory:/b:ro']}
            error: job.yaml:1:34: `environment.mounts`: `/no/such/../directory` holds `..`"#]],
    );
    let digest = format!("{{docker: 'python@sha256:{}'}}", "0a".repeat(32));
    let message = read(&with(&digest), true).unwrap_err();
    expect![[r#"
        error: job.yaml:1:23: `environment.docker`: YARN's `container-executor` does not support image digests

        hint: use a tag"#]]
    .assert_eq(&message);
}

#[test]
fn preflight_reports_unsupported_image_runtimes() {
    let spec = |environment: &str| read(&with(environment), true).unwrap();
    let found = |environment: &str, has: &ClusterInfo| {
        let found = check(&spec(environment), has);
        let about = |text: &&String| text.contains("image") || text.contains("network");
        let notes: Vec<_> = found.notes.iter().filter(about).cloned().collect();
        let refusals: Vec<_> = found.refusals.iter().map(|it| it.what.clone()).collect();
        let refusals: Vec<_> = refusals.iter().filter(about).cloned().collect();
        format!("refused: {refusals:#?}\nnotes: {notes:#?}\n")
    };
    let new = ClusterInfo {
        kinds: Some(Vec::new()),
        constraints: Constraints::Yes,
        ..ClusterInfo::default()
    };
    let old = ClusterInfo { constraints: Constraints::TooOld, ..ClusterInfo::default() };
    let saying = |text: &str| ClusterInfo {
        runtimes: Some(text.split(',').map(str::to_owned).collect()),
        ..new.clone()
    };
    let mut all = String::new();
    all += &found("{docker: a}", &new);
    all += &found("{docker: a}", &saying("default,docker"));
    all += &found("{docker: a, network: bridge}", &saying("default"));
    all += &found("{runc: a}", &old);
    all += &found("{docker: a, mounts: ['/a:/b:ro']}", &old);
    all += &found("{docker: a}", &old);
    expect![[r#"
        refused: []
        notes: [
            "images for docker run only on nodes whose `yarn.nodemanager.runtime.linux.allowed-runtimes` includes `docker`; the local configuration does not set it",
        ]
        refused: []
        notes: []
        refused: []
        notes: [
            "images for docker run only on nodes whose `yarn.nodemanager.runtime.linux.allowed-runtimes` includes `docker`; in the local configuration it is `default`",
        ]
        refused: [
            "role `w` uses an image with runc, which needs Hadoop 3.3 or newer",
        ]
        notes: []
        refused: [
            "role `w` asks for mounts in its image, which need Hadoop 3.1 or newer",
        ]
        notes: []
        refused: []
        notes: [
            "images for docker run only on nodes whose `yarn.nodemanager.runtime.linux.allowed-runtimes` includes `docker`; the local configuration does not set it",
        ]
    "#]].assert_eq(&all);
}
