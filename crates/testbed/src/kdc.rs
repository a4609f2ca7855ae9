//! A realm of its own for one cluster, with a real KDC.

use crate::{
    failure::{Failure, Kind},
    krb5::Krb5,
    scratch, tool,
    watcher::MARK,
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

const PATIENCE: Duration = Duration::from_secs(30);

/// The realm of a cluster with Kerberos.
#[derive(Debug)]
pub struct Kerberos {
    krb5: Krb5,
    directory: PathBuf,
}

/// Where a principal's keytab is.
pub(crate) fn keytab(directory: &Path, principal: &str) -> PathBuf {
    directory.join("keytabs").join(format!("{}.keytab", principal.replace('/', "-")))
}

impl Kerberos {
    /// Writes the configuration and makes a database with these principals, each with a keytab.
    pub(crate) fn create(
        krb5: Krb5,
        directory: &Path,
        kdc: SocketAddr,
        mark: &str,
        principals: &[&str],
    ) -> Result<(Kerberos, Command), Failure> {
        let kerberos = Kerberos { krb5, directory: directory.to_path_buf() };
        let folder = directory.join("kdc");
        for folder in [&folder, &directory.join("keytabs")] {
            fs::create_dir_all(folder).map_err(Failure::at("make the directory", folder))?;
        }
        kerberos.write_configuration(kdc)?;
        let mut create = kerberos.server("kdb5_util");
        create.args(["create", "-s", "-r", REALM, "-P", &scratch::random_id()?]);
        tool::must(&mut create, "", PATIENCE)?;
        kerberos.add(principals)?;
        let mut server = kerberos.server("krb5kdc");
        server.args(["-n", "-r", REALM]).env(MARK, mark);
        Ok((kerberos, server))
    }

    fn write_configuration(&self, kdc: SocketAddr) -> Result<(), Failure> {
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
        let place = folder.display();
        let profile = format!(
            "[kdcdefaults]\nkdc_listen = {kdc}\nkdc_tcp_listen = {kdc}\n\
             [realms]\n{REALM} = {{\n\
             database_name = {place}/principal\n\
             key_stash_file = {place}/stash\n\
             acl_file = {place}/kadm5.acl\n\
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
            fs::write(&path, text).map_err(Failure::at("write", &path))?;
        }
        Ok(())
    }

    /// `krb5.conf`, for `KRB5_CONFIG` and Java's `java.security.krb5.conf`.
    pub fn configuration(&self) -> PathBuf {
        self.directory.join("krb5.conf")
    }

    /// The realm's name.
    pub fn realm(&self) -> &str {
        REALM
    }

    /// Where the keytab of a user or service (`alice`, `yarn/localhost`) is.
    pub fn keytab(&self, principal: &str) -> PathBuf {
        keytab(&self.directory, principal)
    }

    /// Where `libgssapi_krb5.so.2` of this Kerberos is, if this machine need not have its own.
    pub fn libraries(&self) -> Option<&Path> {
        match &self.krb5 {
            Krb5::Installed => None,
            Krb5::Unpacked { libraries, .. } => Some(libraries),
        }
    }

    /// What a program on this machine needs in its environment to use this realm.
    pub(crate) fn variables(&self) -> Vec<(&'static str, String)> {
        let place = |path: &Path| path.display().to_string();
        let mut variables = vec![("KRB5_CONFIG", place(&self.configuration()))];
        let libraries = self.libraries().map(place);
        variables.extend(libraries.map(|libraries| ("LD_LIBRARY_PATH", libraries)));
        variables
    }

    /// Adds principals with random keys, and writes a keytab for each.
    pub fn add(&self, principals: &[&str]) -> Result<(), Failure> {
        let mut queries = String::new();
        for principal in principals {
            let keytab = self.keytab(principal);
            let _ = writeln!(queries, "addprinc -randkey {principal}@{REALM}");
            let _ = writeln!(queries, "ktadd -q -k {} {principal}@{REALM}", keytab.display());
        }
        let said = self.administer(&queries)?;
        match principals.iter().find(|principal| !self.keytab(principal).exists()) {
            None => Ok(()),
            Some(principal) => {
                let what = format!("`kadmin.local` did not make the principal `{principal}`");
                Err(Failure::new(Kind::Ended, what).log(tool::tail(&said, 20)))
            }
        }
    }

    /// Gives lines to `kadmin.local` and returns what it said. It tells no failures by its exit.
    pub fn administer(&self, queries: &str) -> Result<String, Failure> {
        let mut command = self.server("kadmin.local");
        tool::must(command.args(["-r", REALM]), queries, PATIENCE)
    }

    /// A ticket for a user or service from its keytab, in a ticket cache of its own. A `lifetime` is
    /// in `kinit`'s words, such as `5s`.
    pub fn kinit(&self, principal: &str, lifetime: Option<&str>) -> Result<PathBuf, Failure> {
        let name = format!("ticket-{}-{}", principal.replace('/', "-"), scratch::random_id()?);
        let cache = self.directory.join("tickets").join(name);
        let folder = cache.parent().unwrap_or(&self.directory);
        fs::create_dir_all(folder).map_err(Failure::at("make the directory", folder))?;
        let mut command = self.client("kinit");
        command.arg("-k").arg("-t").arg(self.keytab(principal));
        command.arg("-c").arg(&cache);
        command.args(lifetime.map(|time| ["-l", time]).into_iter().flatten());
        command.arg(format!("{principal}@{REALM}"));
        tool::must(&mut command, "", PATIENCE)?;
        Ok(cache)
    }

    /// A client program of Kerberos (`kinit`, `klist`, `kdestroy`) in this realm.
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
