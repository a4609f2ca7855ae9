//! Kerberos realm of one cluster, with a real KDC.

use crate::{
    error::{Error, ErrorKind},
    krb5::Krb5,
    scratch, tool,
    watcher::CLUSTER_ID_VAR,
};
use std::{
    fmt::Write,
    fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

pub(crate) const REALM: &str = "TESTBED.LOCAL";
pub(crate) const HDFS: &str = "hdfs/localhost";
pub(crate) const YARN: &str = "yarn/localhost";
pub(crate) const HTTP: &str = "HTTP/localhost";

const TIMEOUT: Duration = Duration::from_secs(30);

/// The realm of a cluster with Kerberos.
#[derive(Debug)]
pub struct Kerberos {
    krb5: Krb5,
    directory: PathBuf,
}

/// Returns the path of a principal's keytab.
pub(crate) fn keytab(directory: &Path, principal: &str) -> PathBuf {
    directory.join("keytabs").join(format!("{}.keytab", principal.replace('/', "-")))
}

impl Kerberos {
    /// Writes the configuration and creates a database with these principals and their keytabs. Returns
    /// the realm and the command of its KDC.
    pub(crate) fn create(
        krb5: Krb5,
        directory: &Path,
        kdc: SocketAddr,
        cluster_id: &str,
        principals: &[&str],
    ) -> Result<(Kerberos, Command), Error> {
        let kerberos = Kerberos { krb5, directory: directory.to_path_buf() };
        let folder = directory.join("kdc");
        for folder in [&folder, &directory.join("keytabs")] {
            fs::create_dir_all(folder).map_err(Error::at("make the directory", folder))?;
        }
        kerberos.write_configuration(kdc)?;
        let mut create = kerberos.server("kdb5_util");
        create.args(["create", "-s", "-r", REALM, "-P", &scratch::random_id()?]);
        tool::run_checked(&mut create, "", TIMEOUT)?;
        kerberos.add(principals)?;
        let mut server = kerberos.server("krb5kdc");
        server.args(["-n", "-r", REALM]).env(CLUSTER_ID_VAR, cluster_id);
        Ok((kerberos, server))
    }

    fn write_configuration(&self, kdc: SocketAddr) -> Result<(), Error> {
        let client = format!(
            "[libdefaults]\n\
             default_realm = {REALM}\n\
             dns_lookup_kdc = false\n\
             dns_lookup_realm = false\n\
             rdns = false\n\
             dns_canonicalize_hostname = false\n\
             udp_preference_limit = 1\n\
             ticket_lifetime = 1d\n\
             renew_lifetime = 7d\n\
             forwardable = true\n\
             [realms]\n{REALM} = {{\n  kdc = {kdc}\n}}\n\
             [domain_realm]\nlocalhost = {REALM}\n"
        );
        let mut server = client.clone();
        if let Some(modules) = self.krb5.modules() {
            // Writing into a string cannot fail.
            let _ = write!(server, "[dbmodules]\ndb_module_dir = {}\n", modules.display());
        }
        let folder = self.directory.join("kdc");
        let database = folder.display();
        let profile = format!(
            "[kdcdefaults]\nkdc_listen = {kdc}\nkdc_tcp_listen = {kdc}\n\
             [realms]\n{REALM} = {{\n\
             database_name = {database}/principal\n\
             key_stash_file = {database}/stash\n\
             acl_file = {database}/kadm5.acl\n\
             max_life = 1d\nmax_renewable_life = 7d\n}}\n\
             [logging]\nkdc = FILE:{}/logs/kdc.log\n",
            self.directory.display()
        );
        for (path, text) in [
            (self.configuration(), client),
            (folder.join("krb5.conf"), server),
            (folder.join("kdc.conf"), profile),
            (folder.join("kadm5.acl"), String::new()),
        ] {
            fs::write(&path, text).map_err(Error::at("write", &path))?;
        }
        Ok(())
    }

    /// Returns the path of `krb5.conf`, for `KRB5_CONFIG` and Java's `java.security.krb5.conf`.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("krb5.conf")
    }

    /// Returns the realm's name.
    pub fn realm(&self) -> &str {
        REALM
    }

    /// Returns the path of the keytab of a user or service (`alice`, `yarn/localhost`).
    pub fn keytab(&self, principal: &str) -> PathBuf {
        keytab(&self.directory, principal)
    }

    /// Returns the directory of `libgssapi_krb5.so.2`; none if Kerberos is installed on this machine.
    pub fn libraries(&self) -> Option<&Path> {
        match &self.krb5 {
            Krb5::Installed => None,
            Krb5::Unpacked { libraries, .. } => Some(libraries),
        }
    }

    /// Returns the environment variables with which a program uses this realm.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let text = |path: &Path| path.display().to_string();
        let mut variables = vec![("KRB5_CONFIG", text(&self.configuration()))];
        let libraries = self.libraries().map(text);
        variables.extend(libraries.map(|libraries| ("LD_LIBRARY_PATH", libraries)));
        variables
    }

    /// Adds principals with random keys and writes their keytabs.
    pub fn add(&self, principals: &[&str]) -> Result<(), Error> {
        let mut queries = String::new();
        for principal in principals {
            let keytab = self.keytab(principal);
            let _ = writeln!(queries, "addprinc -randkey {principal}@{REALM}");
            let _ = writeln!(queries, "ktadd -q -k {} {principal}@{REALM}", keytab.display());
        }
        let output = self.administer(&queries)?;
        match principals.iter().find(|principal| !self.keytab(principal).exists()) {
            None => Ok(()),
            Some(principal) => {
                let message = format!("`kadmin.local` did not create the principal `{principal}`");
                Err(Error::new(ErrorKind::Exited, message).log(tool::tail(&output, 20)))
            }
        }
    }

    /// Runs `kadmin.local` with queries on its input and returns its output. Its exit status is 0 even if a query failed.
    pub fn administer(&self, queries: &str) -> Result<String, Error> {
        let mut command = self.server("kadmin.local");
        tool::run_checked(command.args(["-r", REALM]), queries, TIMEOUT)
    }

    /// Gets a ticket for a user or service with its keytab. Returns a new ticket cache. The `lifetime`
    /// has `kinit`'s syntax, such as `5s`.
    pub fn kinit(&self, principal: &str, lifetime: Option<&str>) -> Result<PathBuf, Error> {
        let name = format!("ticket-{}-{}", principal.replace('/', "-"), scratch::random_id()?);
        let cache = self.directory.join("tickets").join(name);
        let folder = cache.parent().unwrap_or(&self.directory);
        fs::create_dir_all(folder).map_err(Error::at("make the directory", folder))?;
        let mut command = self.client("kinit");
        command.arg("-k").arg("-t").arg(self.keytab(principal));
        command.arg("-c").arg(&cache);
        command.args(lifetime.map(|time| ["-l", time]).into_iter().flatten());
        command.arg(format!("{principal}@{REALM}"));
        tool::run_checked(&mut command, "", TIMEOUT)?;
        Ok(cache)
    }

    /// Returns the command of a Kerberos client (`kinit`, `klist`, `kdestroy`) in this realm.
    pub fn client(&self, program: &str) -> Command {
        let mut command = self.krb5.command(program);
        command.env("KRB5_CONFIG", self.configuration());
        command
    }

    fn server(&self, program: &str) -> Command {
        let folder = self.directory.join("kdc");
        let mut command = self.krb5.command(program);
        command
            .env("KRB5_CONFIG", folder.join("krb5.conf"))
            .env("KRB5_KDC_PROFILE", folder.join("kdc.conf"))
            .current_dir(folder);
        command
    }
}
