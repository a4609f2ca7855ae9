//! Keys of environments and images.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key(
            "environment",
            "`system`, a path, or a map",
            "`system`",
            "system",
            "Python environment or image of the programs: a virtual environment or another directory with `bin`, a `requirements.txt` or `pyproject.toml` from which one is built, or a `.pex` file. On a cluster it is packed in layers, and changed layers are uploaded; see [Python environments](../how-to/environments.md). A cluster also takes an archive, local or at `hdfs://…`: `.tar.gz`, `.tgz`, `.tar` or `.zip`. Images are given as a map or as `docker://image:tag`; see [images](../how-to/docker.md).",
        ),
        &["venv", "virtualenv", "python", "image", "docker", "container"],
    ),
    known_as(
        key(
            "environment.path",
            "path",
            "required without an image",
            "system",
            "The environment: `environment: {path: ./venv, interpreter: bundle}`.",
        ),
        &["source", "venv", "directory"],
    ),
    known_as(
        key(
            "environment.interpreter",
            "`auto`, `bundle` or `node`",
            "`auto`",
            "auto",
            "Source of the interpreter of a packed environment. `bundle` packs it too. `node` requires the same minor version on every node. `auto` expects interpreters in `/usr` and `/usr/local` on the nodes and packs all others.",
        ),
        &["python"],
    ),
    known_as(
        key(
            "environment.docker",
            "image",
            "none",
            "python:3.11",
            "Image of the programs, as `[registry[:port]/]name[:tag]`: `environment: {docker: python:3.11}`. Run by the nodes of a cluster, or by the `docker` command on one machine; see [images](../how-to/docker.md).",
        ),
        &["image", "container", "podman", "oci"],
    ),
    key(
        "environment.runc",
        "image",
        "none",
        "python",
        "Image that a cluster runs with runc, by its name there. Requires Hadoop 3.3.",
    ),
    known_as(
        key(
            "environment.mounts",
            "list of `host:container:ro` or `:rw`",
            "none",
            "[\"/data/mnist:/data:ro\"]",
            "Directories of the node that are mounted into the container. The cluster's administrator defines which are allowed. Requires Hadoop 3.1.",
        ),
        &["mount", "volumes", "volume", "binds"],
    ),
    known_as(
        key(
            "environment.network",
            "name",
            "the cluster's default, usually `host`; `host` on one machine",
            "host",
            "Network of docker containers. Tasks on different nodes reach each other only if this network connects the nodes.",
        ),
        &["net", "network_mode"],
    ),
    key(
        "environment.privileged",
        "`true` or `false`",
        "`false`",
        "true",
        "Runs docker containers in privileged mode. Rarely needed, and few clusters allow it.",
    ),
    known_as(
        key(
            "environment.login",
            "path in HDFS or on every node",
            "credentials of the nodes",
            "hdfs:///user/alice/docker.json",
            "Credentials of a docker registry, as `docker login` writes them to `config.json`: a file that NodeManagers can read. Requires Hadoop 3.4. On one machine the `docker` command uses its own.",
        ),
        &["auth", "credentials", "client_config", "registry"],
    ),
    key(
        "environment.keep",
        "`true` or `false`",
        "`false`",
        "true",
        "Keeps docker containers on their nodes after they end, for `yarn.nodemanager.delete.debug-delay-sec`, if the cluster allows it. On a cluster only.",
    ),
];
