//! Keys of Kerberos and of proxy users.

use super::ConfigContext;
use crate::{
    kdc::{HDFS, HTTP, REALM, YARN, keytab},
    options::Protection,
    site::Site,
};

/// Proxy user that may impersonate any other user, besides the daemons' users.
pub(crate) const PROXY: &str = "proxy";

pub(super) fn common(context: &ConfigContext<'_>, site: &mut Site) {
    for user in [own_user().as_str(), "yarn", "hdfs", PROXY] {
        for scope in ["hosts", "groups"] {
            site.core(format!("hadoop.proxyuser.{user}.{scope}"), "*");
        }
    }
    if let Some(protection) = context.options.kerberos {
        kerberos(context, protection, site);
    }
}

fn kerberos(context: &ConfigContext<'_>, protection: Protection, site: &mut Site) {
    site.core("hadoop.security.authentication", "kerberos");
    site.core("hadoop.security.authorization", true);
    site.core("hadoop.security.auth_to_local", "RULE:[1:$1]\nRULE:[2:$1]\nDEFAULT");
    site.core("hadoop.rpc.protection", protection.name());
    let of = |service: &str| (format!("{service}@{REALM}"), keytab(context.directory, service));
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
    // Tests use neither privileged ports nor TLS.
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

/// Returns the name of the user that the daemons run as, determined as Java does.
pub(crate) fn own_user() -> String {
    let uid = rustix::process::getuid().as_raw().to_string();
    let users = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let found = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid).then(|| name.to_owned())
    });
    // Users of a directory service are not in the file, but usually in the environment.
    found.or_else(|| std::env::var("USER").ok()).unwrap_or_else(|| "root".to_owned())
}
