//! Keys of environments and images.

use super::Section;
use crate::{
    formats::{BOOL, List, OmitDefault, Scalar, TEXT},
    image::{LOGIN, MOUNT},
};
use ydl_core::spec::{Image, Runtime};

/// Keys that the reader of environments reads.
pub(crate) const PACKED: Section<()> = Section {
    default: || (),
    fields: &[
        field! {
            /// The environment: `environment: {path: ./venv, interpreter: bundle}`.
            "environment.path" = described("path", "str"),
            example "system", default "required without an image",
            also ["source", "venv", "directory"]
        },
        field! {
            /// Source of the interpreter of a packed environment. `bundle` packs it too. `node` requires the same minor
            /// version on every node. `auto` expects interpreters in `/usr` and `/usr/local` on the nodes and packs all
            /// others.
            "environment.interpreter" = described("`auto`, `bundle` or `node`", "str"),
            example "auto", default "`auto`", also ["python"]
        },
        field! {
            /// Image of the programs, as `[registry[:port]/]name[:tag]`: `environment: {docker: python:3.11}`. Run by
            /// the nodes of a cluster, or by the `docker` command on one machine; see [images](../how-to/docker.md).
            "environment.docker" = described("image", "str"),
            example "python:3.11", default "none", also ["image", "container", "podman", "oci"]
        },
        field! {
            /// Image that a cluster runs with runc, by its name there. Requires Hadoop 3.3.
            "environment.runc" = described("image", "str"),
            example "python", default "none"
        },
    ],
};

/// Keys of images.
pub(crate) const IMAGE: Section<Image> = Section {
    default: || Image::new(Runtime::Docker, ""),
    fields: &[
        field! {
            /// Directories of the node that are mounted into the container. The cluster's administrator defines which
            /// are allowed. Requires Hadoop 3.1.
            "environment.mounts" = List { kind: "list of `host:container:ro` or `:rw`", item: MOUNT } => mounts,
            example "[\"/data/mnist:/data:ro\"]", also ["mount", "volumes", "volume", "binds"]
        },
        field! {
            /// Network of docker containers. Tasks on different nodes reach each other only if this network connects
            /// the nodes.
            "environment.network" = Scalar { kind: "name", ..TEXT } => network,
            example "host", default "the cluster's default, usually `host`; `host` on one machine",
            also ["net", "network_mode"]
        },
        field! {
            /// Runs docker containers in privileged mode. Rarely needed, and few clusters allow it.
            "environment.privileged" = OmitDefault(BOOL) => privileged,
            example "true", default "`false`"
        },
        field! {
            /// Credentials of a docker registry, as `docker login` writes them to `config.json`: a file that
            /// NodeManagers can read. Requires Hadoop 3.4. On one machine the `docker` command uses its own.
            "environment.login" = LOGIN => login,
            example "hdfs:///user/alice/docker.json", default "credentials of the nodes",
            also ["auth", "credentials", "client_config", "registry"]
        },
        field! {
            /// Keeps docker containers on their nodes after they end, for `yarn.nodemanager.delete.debug-delay-sec`, if
            /// the cluster allows it. On a cluster only.
            "environment.keep" = OmitDefault(BOOL) => keep,
            example "true", default "`false`"
        },
    ],
};
