//! Images on YARN. A container requests an image by environment variables of its launch context; see Hadoop's
//! "Launching Applications Using Docker Containers" and "… runC Containers". The master's container uses none.

use std::collections::BTreeMap;
use ydl_core::{
    JobSpec, RoleName,
    spec::{Image, Mount, Runtime},
};
use ydl_os::env;

/// Environment variables per role. Roles without an image have none.
#[derive(Clone, Debug, Default)]
pub(super) struct ImageRuntimes(BTreeMap<RoleName, BTreeMap<String, String>>);

impl ImageRuntimes {
    pub(super) fn of(spec: &JobSpec) -> ImageRuntimes {
        let images = spec.images();
        ImageRuntimes(images.map(|(role, image)| (role.name.clone(), variables(image))).collect())
    }

    pub(super) fn for_role(&self, role: &RoleName) -> BTreeMap<String, String> {
        self.0.get(role).cloned().unwrap_or_default()
    }
}

/// Returns the variables that request an image from a NodeManager. They hold no secrets: nodes copy them into
/// the container's logs.
fn variables(image: &Image) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    let mut set = |name: &str, value: &str| drop(all.insert(name.to_owned(), value.to_owned()));
    set(env::RUNTIME_TYPE, &image.runtime.to_string());
    let mounts: Vec<_> = image.mounts.iter().map(Mount::to_string).collect();
    let mounts = mounts.join(",");
    match image.runtime {
        Runtime::Runc => {
            set(env::RUNC_IMAGE, &image.name);
            if !mounts.is_empty() {
                set(env::RUNC_MOUNTS, &mounts);
            }
        }
        Runtime::Docker => {
            set(env::DOCKER_IMAGE, &image.name);
            // YARN's own launch script starts agents, whatever the cluster's override.
            set(env::DOCKER_RUN_OVERRIDE_DISABLE, "false");
            if !mounts.is_empty() {
                set(env::DOCKER_MOUNTS, &mounts);
            }
            if let Some(network) = &image.network {
                set(env::DOCKER_NETWORK, network);
            }
            if let Some(login) = &image.login {
                // A NodeManager resolves a bare path in HDFS.
                let scheme = if login.starts_with('/') { "file://" } else { "" };
                set(env::DOCKER_CLIENT_CONFIG, &format!("{scheme}{login}"));
            }
            // `true` is the only value that NodeManagers recognize here.
            if image.privileged {
                set(env::DOCKER_PRIVILEGED, "true");
            }
            if image.keep {
                set(env::DOCKER_DELAYED_REMOVAL, "true");
            }
        }
    }
    all
}

/// Known image errors: text in the diagnostics, meaning, hint. The first match counts.
const IMAGE_ERRORS: [(&str, &str, &str); 24] = [
    (
        "Requested runtime not allowed",
        "its NodeManager does not allow this kind of image",
        "an administrator adds it to `yarn.nodemanager.runtime.linux.allowed-runtimes`",
    ),
    (
        "Disallowed network:",
        "the cluster does not allow its network",
        "leave `network` out, or name one of `yarn.nodemanager.runtime.linux.docker.allowed-container-networks`",
    ),
    ("Disallowed runtime:", "the cluster does not allow its runtime", ""),
    (
        "Privileged container being requested but",
        "the cluster allows no privileged containers",
        UNPRIVILEGED_HINT,
    ),
    ("fails ACL check", "this user may not run privileged containers", UNPRIVILEGED_HINT),
    (
        "Privileged containers are disabled",
        "the node allows no privileged containers, or none of this image",
        UNPRIVILEGED_HINT,
    ),
    (
        "Docker image is not trusted",
        "the node does not trust the image, so it allows neither mounts nor privileges",
        "an administrator adds its registry to `docker.trusted.registries` in container-executor.cfg",
    ),
    (
        "Invalid docker read-only mount",
        "the node does not allow one of its mounts",
        "an administrator adds a directory that contains it to `docker.allowed.ro-mounts` in container-executor.cfg",
    ),
    (
        "Invalid docker read-write mount",
        "the node does not allow one of its mounts to be changed",
        "mount it with `:ro`; or an administrator adds a directory that contains it to `docker.allowed.rw-mounts` in container-executor.cfg",
    ),
    ("Invalid docker mount", "the node rejects the syntax of one of its mounts", "check `mounts`"),
    (
        "Mount access error",
        "the node cannot access the source of a mount",
        "the source must exist on every node and be accessible for the NodeManager's user",
    ),
    ("Unable to parse some mounts", "the node rejects the syntax of its mounts", "check `mounts`"),
    (
        "Invalid docker network",
        "the node does not allow its network",
        "leave `network` out, or name one of `docker.allowed.networks` in container-executor.cfg",
    ),
    ("Invalid docker image name", "the node rejects its name", ""),
    ("doesn't match docker image name pattern", "the node rejects its name", ""),
    (
        "below threshold:",
        "the node runs no images as this user",
        "ask an administrator for `yarn.nodemanager.runtime.linux.docker.userremapping-uid-threshold`",
    ),
    (
        "Cannot connect to the Docker daemon",
        "no docker engine answers on the node",
        "an administrator starts it; or use `node_label` for nodes with a docker engine",
    ),
    (
        "Fail to read additional docker client config file",
        "the NodeManager cannot read the file that `login` names",
        "let the NodeManagers' user read it",
    ),
    ("no basic auth credentials", "its registry requires a login", LOGIN_HINT),
    (
        "pull access denied",
        "the image does not exist, or its registry requires a login",
        LOGIN_HINT,
    ),
    ("Unable to find image", "the node does not have the image and could not pull it", LOGIN_HINT),
    (
        "manifest unknown",
        "its registry has no image of that name and tag",
        "check the name and the tag",
    ),
    (
        "executable file not found in $PATH",
        "it has no `bash`, with which YARN starts containers",
        "use an image that has `bash` and `find`",
    ),
    (
        "find: command not found",
        "it has no `find`, which YARN's script needs",
        "use an image that has `bash` and `find`",
    ),
];
const UNPRIVILEGED_HINT: &str = "leave `privileged` out";
const LOGIN_HINT: &str = "check the name; `login` below `environment` names a registry's login";

/// Returns the reason if the diagnostics say that the node cannot run the image.
pub(super) fn image_error(diagnostics: &str) -> Option<String> {
    let (pattern, meaning, _) =
        IMAGE_ERRORS.iter().find(|(pattern, _, _)| diagnostics.contains(pattern))?;
    let line = diagnostics.lines().find(|line| line.contains(pattern));
    let line = line.map(super::completions::clean_line).unwrap_or_default();
    Some(format!("{IMAGE_ERROR_PREFIX}{meaning} ({line})"))
}

const IMAGE_ERROR_PREFIX: &str = "it does not run the image: ";
/// Reported by an agent that runs outside the image.
const IMAGE_IGNORED: &str = "the node ignored the task's image";
const CONTAINER_EXECUTOR_HINT: &str = "nodes that run images have the LinuxContainerExecutor as their `yarn.nodemanager.container-executor.class`; \
                      `node_label` leads tasks to them";

/// Returns the hint for an image error by its message.
pub fn image_hint(why: &str) -> Option<&'static str> {
    if why.contains(IMAGE_IGNORED) {
        return Some(CONTAINER_EXECUTOR_HINT);
    }
    let (_, message) = why.split_once(IMAGE_ERROR_PREFIX)?;
    let (_, _, hint) = IMAGE_ERRORS
        .iter()
        // One meaning may be a prefix of another.
        .find(|(_, meaning, _)| message.starts_with(&format!("{meaning} (")))?;
    Some(hint).copied().filter(|hint| !hint.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables_of(image: &Image) -> String {
        let all = variables(image);
        let all: Vec<_> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.join("\n")
    }

    #[test]
    fn images_are_requested_with_hadoops_documented_variables() {
        let least = Image::new(Runtime::Docker, "python:3.11");
        let expected = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE=python:3.11\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE=false\n\
                        YARN_CONTAINER_RUNTIME_TYPE=docker";
        assert_eq!(variables_of(&least), expected);
        let mount = |text| Mount::parse(text).expect("a mount");
        let most = Image {
            mounts: vec![mount("/data:/data:ro"), mount("/scratch:/tmp/x:rw")],
            network: Some("bridge".into()),
            privileged: true,
            login: Some("hdfs:///user/a/docker.json".into()),
            keep: true,
            ..least
        };
        let expected = "YARN_CONTAINER_RUNTIME_DOCKER_CLIENT_CONFIG=hdfs:///user/a/docker.json\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_CONTAINER_NETWORK=bridge\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_DELAYED_REMOVAL=true\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_IMAGE=python:3.11\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_MOUNTS=/data:/data:ro,/scratch:/tmp/x:rw\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE=false\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_RUN_PRIVILEGED_CONTAINER=true\n\
                        YARN_CONTAINER_RUNTIME_TYPE=docker";
        assert_eq!(variables_of(&most), expected);
        let on_nodes = Image {
            login: Some("/etc/docker/config.json".into()),
            ..Image::new(Runtime::Docker, "python:3.11")
        };
        let expected =
            "YARN_CONTAINER_RUNTIME_DOCKER_CLIENT_CONFIG=file:///etc/docker/config.json\n";
        assert!(variables_of(&on_nodes).starts_with(expected));
        let runc =
            Image { mounts: vec![mount("/data:/data:ro")], ..Image::new(Runtime::Runc, "python") };
        let expected = "YARN_CONTAINER_RUNTIME_RUNC_IMAGE=python\n\
                        YARN_CONTAINER_RUNTIME_RUNC_MOUNTS=/data:/data:ro\n\
                        YARN_CONTAINER_RUNTIME_TYPE=runc";
        assert_eq!(variables_of(&runc), expected);
    }

    #[test]
    fn every_image_error_is_recognized_and_has_its_own_hint() {
        for (pattern, meaning, hint) in IMAGE_ERRORS {
            let diagnostics = format!("Exit code: 29\nShell error output: {pattern} of it\n");
            let message = image_error(&diagnostics).expect("a reason");
            assert!(message.starts_with(&format!("{IMAGE_ERROR_PREFIX}{meaning} (")), "{message}");
            assert!(message.contains(pattern), "{message}");
            let expected = Some(hint).filter(|hint| !hint.is_empty());
            assert_eq!(image_hint(&format!("node fault: {message}")), expected, "{pattern}");
        }
        assert_eq!(image_hint(&format!("it {IMAGE_IGNORED}: why")), Some(CONTAINER_EXECUTOR_HINT));
    }

    #[test]
    fn image_errors_include_the_node_message_and_its_meaning() {
        let diagnostics = "[2022-11-24 15:14:22.696]Exception from container-launch.\nExit code: 29\nException message: Launch \
                     container failed\nShell error output: Configuration does not allow docker mount \
                     '/etc/krb5.conf:/etc/krb5.conf:ro', realpath=/etc/krb5.conf\nError constructing docker command, docker \
                     error code=14, error message='Invalid docker read-only mount'\n";
        let error = image_error(diagnostics).expect("a reason");
        let expected = "it does not run the image: the node does not allow one of its mounts (Error constructing docker \
                        command, docker error code=14, error message='Invalid docker read-only mount')";
        assert_eq!(error, expected);
        let message = format!("node fault: {error}");
        assert!(
            image_hint(&message).is_some_and(|hint| hint.contains("`docker.allowed.ro-mounts`"))
        );
        let changed = "it does not run the image: the node does not allow one of its mounts to be changed (code=15)";
        assert!(
            image_hint(changed).is_some_and(|hint| hint.contains("`docker.allowed.rw-mounts`"))
        );
        assert_eq!(image_hint("its disks have failed"), None);
        let bash = "Shell error output: /usr/bin/docker-current: Error response from daemon: oci runtime error: \
                    container_linux.go:235: starting container process caused \"exec: \\\"bash\\\": executable file not \
                    found in $PATH\".";
        assert!(image_error(bash).is_some_and(|error| error.contains("has no `bash`")));
        assert_eq!(
            image_error("Exit code: 7\nContainer exited with a non-zero exit code 7."),
            None
        );
    }
}
