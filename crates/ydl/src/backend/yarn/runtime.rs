//! Images on YARN: a container asks for one by variables of its launch context, as Hadoop documents them under "Launching
//! Applications Using Docker Containers" and "… runC Containers". The master's container asks for none.

use std::collections::BTreeMap;
use ydl_core::{
    JobSpec, RoleName,
    spec::{Image, Mount, Runtime},
};
use ydl_os::env;

/// What the containers of each role ask for; roles without an image ask for nothing.
#[derive(Clone, Debug, Default)]
pub(super) struct Runtimes(BTreeMap<RoleName, BTreeMap<String, String>>);

impl Runtimes {
    pub(super) fn of(spec: &JobSpec) -> Runtimes {
        let images = spec.images();
        Runtimes(images.map(|(role, image)| (role.name.clone(), variables(image))).collect())
    }

    pub(super) fn of_role(&self, role: &RoleName) -> BTreeMap<String, String> {
        self.0.get(role).cloned().unwrap_or_default()
    }
}

/// The variables with which a NodeManager is asked for a container of an image. None of them is a secret: nodes copy them
/// into the container's logs.
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
            // Agents are started by YARN's own script, whatever a cluster has made its custom.
            set(env::DOCKER_RUN_OVERRIDE_DISABLE, "false");
            if !mounts.is_empty() {
                set(env::DOCKER_MOUNTS, &mounts);
            }
            if let Some(network) = &image.network {
                set(env::DOCKER_NETWORK, network);
            }
            if let Some(login) = &image.login {
                // A path alone means one in HDFS to a node.
                let here = if login.starts_with('/') { "file://" } else { "" };
                set(env::DOCKER_CLIENT_CONFIG, &format!("{here}{login}"));
            }
            // Nodes know no value of these but this one.
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

/// What a node says when it cannot run an image, what that means, and what to do about it. The first that is found counts.
const REFUSALS: [(&str, &str, &str); 24] = [
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
        NOT_PRIVILEGED,
    ),
    ("fails ACL check", "this user may not run privileged containers", NOT_PRIVILEGED),
    (
        "Privileged containers are disabled",
        "the node allows no privileged containers, or none of this image",
        NOT_PRIVILEGED,
    ),
    (
        "Docker image is not trusted",
        "the node does not trust the image so far as to give it mounts or privileges",
        "an administrator adds its registry to `docker.trusted.registries` in container-executor.cfg",
    ),
    (
        "Invalid docker read-only mount",
        "the node does not allow one of its mounts",
        "an administrator adds what is above it to `docker.allowed.ro-mounts` in container-executor.cfg",
    ),
    (
        "Invalid docker read-write mount",
        "the node does not allow one of its mounts to be changed",
        "mount it with `:ro`; or an administrator adds what is above it to `docker.allowed.rw-mounts` in container-executor.cfg",
    ),
    ("Invalid docker mount", "the node does not understand one of its mounts", "look at `mounts`"),
    (
        "Mount access error",
        "the node cannot look at what is to be mounted",
        "it must be there on every node, for the node's own user, too",
    ),
    ("Unable to parse some mounts", "the node does not understand its mounts", "look at `mounts`"),
    (
        "Invalid docker network",
        "the node does not allow its network",
        "leave `network` out, or name one of `docker.allowed.networks` in container-executor.cfg",
    ),
    ("Invalid docker image name", "the node does not take its name", ""),
    ("doesn't match docker image name pattern", "the node does not take its name", ""),
    (
        "below threshold:",
        "the node runs no images as this user",
        "an administrator knows `yarn.nodemanager.runtime.linux.docker.userremapping-uid-threshold`",
    ),
    (
        "Cannot connect to the Docker daemon",
        "no docker engine answers on the node",
        "an administrator starts it, or leads jobs elsewhere with a label",
    ),
    (
        "Fail to read additional docker client config file",
        "the NodeManager cannot read the file that `login` names",
        "let the NodeManagers' user read it",
    ),
    ("no basic auth credentials", "its registry asks for a login", LOG_IN),
    ("pull access denied", "there is no such image, or its registry asks for a login", LOG_IN),
    ("Unable to find image", "the node does not have it, and could not fetch it", LOG_IN),
    (
        "manifest unknown",
        "its registry has none of that name and tag",
        "look at the name and the tag",
    ),
    (
        "executable file not found in $PATH",
        "it has no `bash`, with which YARN starts everything",
        "use an image that has `bash` and `find`",
    ),
    (
        "find: command not found",
        "it has no `find`, which YARN's script needs",
        "use an image that has `bash` and `find`",
    ),
];
const NOT_PRIVILEGED: &str = "leave `privileged` out";
const LOG_IN: &str = "look at the name; `login` below `environment` names a registry's login";

/// Why a node did not run an image, if that is what its words say.
pub(super) fn refusal(words: &str) -> Option<String> {
    let (said, means, _) = REFUSALS.iter().find(|(said, _, _)| words.contains(said))?;
    let line = words.lines().find(|line| line.contains(said));
    let line = line.map(super::ends::bare).unwrap_or_default();
    Some(format!("{BEGINS}{means} ({line})"))
}

const BEGINS: &str = "it does not run the image: ";
/// What an agent says that finds itself on a bare node.
const IGNORED: &str = "has ignored that the task runs in an image";
const SET_UP: &str = "nodes that run images have the LinuxContainerExecutor as their `yarn.nodemanager.container-executor.class`; \
                      `node_label` leads tasks to them";

/// What to do about a refusal, by how it was told.
pub fn remedy(why: &str) -> Option<&'static str> {
    if why.contains(IGNORED) {
        return Some(SET_UP);
    }
    let (_, told) = why.split_once(BEGINS)?;
    let (_, _, remedy) = REFUSALS
        .iter()
        // One may begin like another.
        .find(|(_, means, _)| told.starts_with(&format!("{means} (")))?;
    Some(remedy).copied().filter(|remedy| !remedy.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(image: &Image) -> String {
        let all = variables(image);
        let all: Vec<_> = all.iter().map(|(name, value)| format!("{name}={value}")).collect();
        all.join("\n")
    }

    #[test]
    fn an_image_is_asked_for_in_the_variables_that_hadoop_documents() {
        let least = Image::new(Runtime::Docker, "python:3.11");
        let expected = "YARN_CONTAINER_RUNTIME_DOCKER_IMAGE=python:3.11\n\
                        YARN_CONTAINER_RUNTIME_DOCKER_RUN_OVERRIDE_DISABLE=false\n\
                        YARN_CONTAINER_RUNTIME_TYPE=docker";
        assert_eq!(shown(&least), expected);
        let mount = |text| Mount::read(text).expect("a mount");
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
        assert_eq!(shown(&most), expected);
        let on_nodes = Image {
            login: Some("/etc/docker/config.json".into()),
            ..Image::new(Runtime::Docker, "python:3.11")
        };
        let expected =
            "YARN_CONTAINER_RUNTIME_DOCKER_CLIENT_CONFIG=file:///etc/docker/config.json\n";
        assert!(shown(&on_nodes).starts_with(expected));
        let runc =
            Image { mounts: vec![mount("/data:/data:ro")], ..Image::new(Runtime::Runc, "python") };
        let expected = "YARN_CONTAINER_RUNTIME_RUNC_IMAGE=python\n\
                        YARN_CONTAINER_RUNTIME_RUNC_MOUNTS=/data:/data:ro\n\
                        YARN_CONTAINER_RUNTIME_TYPE=runc";
        assert_eq!(shown(&runc), expected);
    }

    #[test]
    fn every_refusal_is_found_by_its_words_and_leads_to_its_own_remedy() {
        for (said, means, hint) in REFUSALS {
            let words = format!("Exit code: 29\nShell error output: {said} of it\n");
            let told = refusal(&words).expect("a reason");
            assert!(told.starts_with(&format!("{BEGINS}{means} (")), "{told}");
            assert!(told.contains(said), "{told}");
            let expected = Some(hint).filter(|hint| !hint.is_empty());
            assert_eq!(remedy(&format!("node fault: {told}")), expected, "{said}");
        }
        assert_eq!(remedy(&format!("it {IGNORED}: why")), Some(SET_UP));
    }

    #[test]
    fn what_a_node_says_about_an_image_is_told_with_what_it_means() {
        let words = "[2022-11-24 15:14:22.696]Exception from container-launch.\nExit code: 29\nException message: Launch \
                     container failed\nShell error output: Configuration does not allow docker mount \
                     '/etc/krb5.conf:/etc/krb5.conf:ro', realpath=/etc/krb5.conf\nError constructing docker command, docker \
                     error code=14, error message='Invalid docker read-only mount'\n";
        let said = refusal(words).expect("a reason");
        let expected = "it does not run the image: the node does not allow one of its mounts (Error constructing docker \
                        command, docker error code=14, error message='Invalid docker read-only mount')";
        assert_eq!(said, expected);
        let told = format!("node fault: {said}");
        assert!(remedy(&told).is_some_and(|remedy| remedy.contains("`docker.allowed.ro-mounts`")));
        let changed = "it does not run the image: the node does not allow one of its mounts to be changed (code=15)";
        assert!(
            remedy(changed).is_some_and(|remedy| remedy.contains("`docker.allowed.rw-mounts`"))
        );
        assert_eq!(remedy("its disks have failed"), None);
        let bash = "Shell error output: /usr/bin/docker-current: Error response from daemon: oci runtime error: \
                    container_linux.go:235: starting container process caused \"exec: \\\"bash\\\": executable file not \
                    found in $PATH\".";
        assert!(refusal(bash).is_some_and(|said| said.contains("has no `bash`")));
        assert_eq!(refusal("Exit code: 7\nContainer exited with a non-zero exit code 7."), None);
    }
}
