//! Who may speak to whom: Kerberos, and who may act for others.

use super::Plan;
use crate::{
    kdc::{HDFS, HTTP, REALM, YARN, keytab},
    options::Protection,
    site::Site,
};

/// The user who may act for any other, besides the daemons' own.
pub(crate) const PROXY: &str = "proxy";

pub(super) fn common(plan: &Plan<'_>, site: &mut Site) {
    for user in [own_user().as_str(), "yarn", "hdfs", PROXY] {
        for what in ["hosts", "groups"] {
            site.core(format!("hadoop.proxyuser.{user}.{what}"), "*");
        }
    }
    if let Some(protection) = plan.options.kerberos {
        kerberos(plan, protection, site);
    }
}

fn kerberos(plan: &Plan<'_>, protection: Protection, site: &mut Site) {
    site.core("hadoop.security.authentication", "kerberos");
    site.core("hadoop.security.authorization", true);
    site.core("hadoop.security.auth_to_local", "RULE:[1:$1]\nRULE:[2:$1]\nDEFAULT");
    site.core("hadoop.rpc.protection", protection.name());
    let of = |service: &str| (format!("{service}@{REALM}"), keytab(plan.directory, service));
    let (hdfs, hdfs_keytab) = of(HDFS);
    let (yarn, yarn_keytab) = of(YARN);
    let (http, http_keytab) = of(HTTP);

    for daemon in ["namenode", "datanode"] {
        site.hdfs(format!("dfs.{daemon}.kerberos.principal"), &hdfs);
        site.hdfs(format!("dfs.{daemon}.keytab.file"), hdfs_keytab.display());
    }
    site.hdfs("dfs.web.authentication.kerberos.principal", &http);
    site.hdfs("dfs.web.authentication.kerberos.keytab", http_keytab.display());
    site.hdfs("dfs.namenode.kerberos.internal.spnego.principal", &http);
    site.hdfs("dfs.block.access.token.enable", true);
    site.hdfs("dfs.data.transfer.protection", protection.name());
    site.hdfs("dfs.encrypt.data.transfer", false);
    // Ports below 1024 and TLS are not for tests.
    site.hdfs("ignore.secure.ports.for.testing", true);
    site.hdfs("dfs.http.policy", "HTTP_ONLY");

    for daemon in ["resourcemanager", "nodemanager"] {
        let key = |name: &str| format!("yarn.{daemon}.{name}");
        site.yarn(key("principal"), &yarn);
        site.yarn(key("keytab"), yarn_keytab.display());
        site.yarn(key("webapp.spnego-principal"), &http);
        site.yarn(key("webapp.spnego-keytab-file"), http_keytab.display());
    }
}

/// The name of the user the daemons run as, found as Java finds it.
pub(crate) fn own_user() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    // A user of a directory service is in no file, but usually in the environment.
    found.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "root".to_owned())
}
