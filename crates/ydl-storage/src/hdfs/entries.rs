//! Directories, names and permissions.

use super::{
    connect::Hdfs,
    error::{HdfsError, Kind},
};
use hdfs_native::{
    HdfsError as Native,
    acl::{AclEntry, AclEntryScope, AclEntryType, FsAction},
    client::FileStatus,
};
use std::time::Duration;
use tokio::time::{Instant, sleep_until};

/// Entries of one listing; beyond it the directory is none of ours.
const ENTRIES_MAX: usize = 200_000;
/// Poll interval while the lease of a file is recovered.
const RECOVER_PAUSE: Duration = Duration::from_millis(250);

/// A file or directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its URL.
    pub url: String,
    /// True for a directory.
    pub directory: bool,
    /// Length in bytes. For a file being written: up to the last sync.
    pub bytes: u64,
    /// Modification time in ms since 1970.
    pub modified_ms: u64,
    /// Owner.
    pub owner: String,
    /// Group.
    pub group: String,
    /// The bits of its permission, as `0o700`.
    pub permission: u32,
}

impl Entry {
    /// The last part of its URL.
    pub fn name(&self) -> &str {
        self.url.rsplit('/').next().unwrap_or_default()
    }
}

/// Reader besides the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Grant {
    /// All users.
    AllUsers,
    /// A user.
    User(String),
    /// Members of a group.
    Group(String),
}

impl Grant {
    /// Parses a YARN ACL: `user1,user2 group1,group2`, or `*`.
    pub fn parse(list: &str) -> Vec<Grant> {
        if list.trim() == "*" {
            return vec![Grant::AllUsers];
        }
        let (users, groups) = list.split_once(' ').unwrap_or((list, ""));
        let names = |list: &str| -> Vec<String> {
            let names = list.split(',').map(|name| name.trim().to_owned());
            names.filter(|name| !name.is_empty()).collect()
        };
        let users = names(users).into_iter().map(Grant::User);
        users.chain(names(groups).into_iter().map(Grant::Group)).collect()
    }

    fn entry(&self, scope: AclEntryScope, may: FsAction) -> AclEntry {
        let (kind, name) = match self {
            Grant::AllUsers => (AclEntryType::Other, None),
            Grant::User(name) => (AclEntryType::User, Some(name.clone())),
            Grant::Group(name) => (AclEntryType::Group, Some(name.clone())),
        };
        AclEntry { r#type: kind, scope, permissions: may, name }
    }
}

impl Hdfs {
    fn entry(&self, status: FileStatus) -> Entry {
        Entry {
            url: self.url(&status.path),
            directory: status.isdir,
            bytes: status.length as u64,
            modified_ms: status.modification_time,
            owner: status.owner,
            group: status.group,
            permission: u32::from(status.permission),
        }
    }

    /// Returns the file or directory at a path, if any.
    pub async fn stat(&self, place: &str, deadline: Instant) -> Result<Option<Entry>, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let call = async move { client.get_file_info(&path).await };
        match self.call(self.about("look at", place), deadline, call).await {
            Ok(status) => Ok(Some(self.entry(status))),
            Err(error) if error.kind == Kind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Lists a directory; empty if it does not exist.
    pub async fn list(&self, place: &str, deadline: Instant) -> Result<Vec<Entry>, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let call = async move {
            let entries = client.list_status_iter(&path, false);
            let mut found = Vec::new();
            while let Some(status) = entries.next().await {
                found.push(status?);
                if found.len() > ENTRIES_MAX {
                    let words = format!("it has more than {ENTRIES_MAX} entries");
                    return Err(Native::OperationFailed(words));
                }
            }
            Ok(found)
        };
        match self.call(self.about("list", place), deadline, call).await {
            Ok(found) => Ok(found.into_iter().map(|status| self.entry(status)).collect()),
            Err(error) if error.kind == Kind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error),
        }
    }

    /// Makes a directory and what is missing above it. One that exists keeps its permission.
    pub async fn mkdirs(
        &self,
        place: &str,
        permission: u32,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let call = async move { client.mkdirs(&path, permission, true).await };
        self.call(self.about("make", place), deadline, call).await
    }

    /// Gives a file or directory another name, which nothing may have yet.
    pub async fn rename(&self, from: &str, to: &str, deadline: Instant) -> Result<(), HdfsError> {
        self.rename_to(from, to, false, deadline).await
    }

    /// Gives a file another name; the file that had it is gone in the same moment.
    pub async fn replace(&self, from: &str, to: &str, deadline: Instant) -> Result<(), HdfsError> {
        self.rename_to(from, to, true, deadline).await
    }

    async fn rename_to(
        &self,
        from: &str,
        to: &str,
        over: bool,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let (client, from, path) = (self.client.clone(), self.path(from)?, self.path(to)?);
        let call = async move { client.rename(&from, &path, over).await };
        self.call(self.about("put in place", to), deadline, call).await
    }

    /// Deletes a file, or a directory with all that is in it; whether there was one.
    pub async fn delete(&self, place: &str, deadline: Instant) -> Result<bool, HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        if path == "/" {
            return Err(HdfsError::new(Kind::BadInput, "the root of a file system is not deleted"));
        }
        let call = async move { client.delete(&path, true).await };
        self.call(self.about("delete", place), deadline, call).await
    }

    /// Sets the bits of a permission, whatever the mask of files says.
    pub async fn set_permission(
        &self,
        place: &str,
        permission: u32,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let (client, path) = (self.client.clone(), self.path(place)?);
        let call = async move { client.set_permission(&path, permission).await };
        self.call(self.about("set the permission of", place), deadline, call).await
    }

    /// Lets others read a directory and what will lie in it, as far as each file's permission gives its group. Not every
    /// cluster can: see `dfs.namenode.acls.enabled`.
    pub async fn grant_read(
        &self,
        dir: &str,
        whom: &[Grant],
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let both = [AclEntryScope::Access, AclEntryScope::Default];
        self.allow(dir, whom, &both, FsAction::ReadExecute, deadline).await
    }

    /// Grants read access to a file to exactly these readers, regardless of the ACL of its directory.
    pub async fn grant_file_read(
        &self,
        file: &str,
        whom: &[Grant],
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        if whom.is_empty() {
            return Ok(());
        }
        let (client, path) = (self.client.clone(), self.path(file)?);
        let own = |kind, permissions| AclEntry {
            r#type: kind,
            scope: AclEntryScope::Access,
            permissions,
            name: None,
        };
        let mut entries = vec![
            own(AclEntryType::User, FsAction::ReadWrite),
            own(AclEntryType::Group, FsAction::None),
        ];
        if !whom.contains(&Grant::AllUsers) {
            entries.push(own(AclEntryType::Other, FsAction::None));
        }
        for one in whom {
            entries.push(one.entry(AclEntryScope::Access, FsAction::Read));
        }
        let call = async move { client.set_acl(&path, entries).await };
        let about = self.about("open to others", file);
        self.call(about, deadline, call).await
    }

    /// Grants permission to traverse a directory without listing it.
    pub async fn grant_traverse(
        &self,
        dir: &str,
        whom: &[Grant],
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        let here = [AclEntryScope::Access];
        self.allow(dir, whom, &here, FsAction::Execute, deadline).await
    }

    async fn allow(
        &self,
        place: &str,
        whom: &[Grant],
        scopes: &[AclEntryScope],
        what: FsAction,
        deadline: Instant,
    ) -> Result<(), HdfsError> {
        if whom.is_empty() {
            return Ok(());
        }
        let (client, path) = (self.client.clone(), self.path(place)?);
        let mut entries: Vec<AclEntry> = Vec::new();
        for scope in scopes {
            for one in whom {
                entries.push(one.entry(scope.clone(), what.clone()));
            }
        }
        let call = async move { client.modify_acl_entries(&path, entries).await };
        let about = self.about("open to others", place);
        self.call(about, deadline, call).await
    }

    /// Shuts the writer of a file out, and waits until the file is closed: what was synced can then be read, and nothing
    /// more is added. A file that is closed already stays as it is.
    pub async fn recover(&self, place: &str, deadline: Instant) -> Result<(), HdfsError> {
        let path = self.path(place)?;
        loop {
            let (client, path) = (self.client.clone(), path.clone());
            let call = async move { client.recover_lease(&path).await };
            match self.call(self.about("take over", place), deadline, call).await {
                Ok(true) => return Ok(()),
                Ok(false) => {}
                // So is a recovery that was begun a moment ago.
                Err(error) if error.kind == Kind::LeaseLost => {}
                Err(error) => return Err(error),
            }
            let next = Instant::now() + RECOVER_PAUSE;
            if next >= deadline {
                return Err(self
                    .about("take over", place)
                    .failed(Kind::Unreachable, "its last block was not closed in time"));
            }
            sleep_until(next).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_are_named_as_yarn_names_them() {
        let user = |name: &str| Grant::User(name.into());
        let group = |name: &str| Grant::Group(name.into());
        assert_eq!(Grant::parse("a, b"), [user("a"), group("b")]);
        assert_eq!(Grant::parse("a,b c,d"), [user("a"), user("b"), group("c"), group("d")]);
        assert_eq!(Grant::parse(" c"), [group("c")]);
        assert_eq!(Grant::parse("*"), [Grant::AllUsers]);
        assert_eq!(Grant::parse(""), []);
    }
}
