//! What programs run in.

use super::{KeySpec, key, known_as};

pub const KEYS: &[KeySpec] = &[
    known_as(
        key(
            "environment",
            "`system`, a path, or a map",
            "`system`",
            "system",
            "What `python` means in a task, or what all of it runs in: a virtual environment or another directory with `bin` in it, a `requirements.txt` or `pyproject.toml` from which one is made, a `.pex` file. On a cluster it is packed and sent, layer by layer, if it changed; see [Python environments](../how-to/environments.md). There also a ready archive: `.tar.gz`, `.tgz`, `.tar` or `.zip`, here or at `hdfs://…`. Or an image, as a map or as `docker://image:tag`; see [images](../how-to/docker.md).",
        ),
        &["venv", "virtualenv", "python", "image", "docker", "container"],
    ),
    known_as(
        key(
            "environment.path",
            "path",
            "required, where the environment has keys of its own",
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
            "Where the interpreter of a packed environment comes from. `bundle` packs it, too; `node` expects the same minor version on every node; `auto` expects those in `/usr` and `/usr/local`, and packs all others.",
        ),
        &["python"],
    ),
    known_as(
        key(
            "environment.docker",
            "image",
            "none",
            "python:3.11",
            "The image that programs run in, as `[registry[:port]/]name[:tag]`: `environment: {docker: python:3.11}`. On a cluster its nodes run it, on one machine the `docker` command does; see [images](../how-to/docker.md).",
        ),
        &["image", "container", "podman", "oci"],
    ),
    key(
        "environment.runc",
        "image",
        "none",
        "python",
        "An image that a cluster runs with runc, by the name that it has there. Needs Hadoop 3.3.",
    ),
    known_as(
        key(
            "environment.mounts",
            "list of `host:container:ro` or `:rw`",
            "none",
            "[\"/data/mnist:/data:ro\"]",
            "What of the node's files the image sees, and where. The cluster's administrator decides which may be. On Hadoop from 3.1.",
        ),
        &["mount", "volumes", "volume", "binds"],
    ),
    known_as(
        key(
            "environment.network",
            "name",
            "the cluster's own, mostly `host`; `host` on one machine",
            "host",
            "The network of docker containers. In one that is not the node's own, tasks of different nodes reach each other only if that network leads there.",
        ),
        &["net", "network_mode"],
    ),
    key(
        "environment.privileged",
        "`true` or `false`",
        "`false`",
        "true",
        "Whether docker containers may do almost everything that their node can do. Hardly anybody needs it, and few clusters allow it.",
    ),
    known_as(
        key(
            "environment.login",
            "path in HDFS or on every node",
            "what the nodes have",
            "hdfs:///user/alice/docker.json",
            "The login of a docker registry, as `docker login` writes it to `config.json`: a file that NodeManagers can read. Needs Hadoop 3.4. On one machine the `docker` command's own login counts.",
        ),
        &["auth", "credentials", "client_config", "registry"],
    ),
    key(
        "environment.keep",
        "`true` or `false`",
        "`false`",
        "true",
        "Docker containers stay on their nodes after their end, for as long as `yarn.nodemanager.delete.debug-delay-sec` says, where the cluster allows it. On a cluster only.",
    ),
];
