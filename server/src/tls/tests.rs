//! Which files are taken, what is said of the others, and that a bad new pair leaves the old one in use.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use rcgen::{CertificateParams, KeyPair};
use time::{Duration, OffsetDateTime};

use super::*;

/// A directory with a certificate and its key.
struct Directory(PathBuf);

impl Directory {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("trine-tls-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        let directory = Self(path);
        directory.write_pair("", 30);
        directory
    }

    /// `PREFIXcert` and `PREFIXkey`, valid for so many days from now.
    fn write_pair(&self, prefix: &str, days: i64) {
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_before = OffsetDateTime::now_utc() - Duration::days(100);
        params.not_after = OffsetDateTime::now_utc() + Duration::days(days);
        let cert = params.self_signed(&key).expect("signed");
        fs::write(self.path(&format!("{prefix}cert")), cert.pem()).expect("written");
        let path = self.path(&format!("{prefix}key"));
        fs::write(&path, key.serialize_pem()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    fn open(&self, cert: &str, key: &str, client_ca: Option<&str>) -> Result<Tls, Failure> {
        let arguments = TlsArguments {
            tls_cert: Some(self.path(cert)),
            tls_key: Some(self.path(key)),
            tls_client_ca: client_ca.map(|name| self.path(name)),
        };
        Tls::open(&arguments).map(|tls| tls.expect("it is on"))
    }

    #[track_caller]
    fn refuses(&self, cert: &str, key: &str, client_ca: Option<&str>, why: &str) {
        let failure = self.open(cert, key, client_ca).err().expect("refused");
        assert!(failure.to_string().contains(why), "{failure}");
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_cannot_be_used_is_refused_with_the_reason() {
    let directory = Directory::new("bad");
    assert!(directory.open("cert", "key", Some("cert")).is_ok());
    directory.write_pair("other-", 30);
    directory.refuses(
        "cert",
        "other-key",
        None,
        "does not belong to the certificate",
    );
    directory.write_pair("old-", -10);
    directory.refuses("old-cert", "old-key", None, "has expired 10 days ago");
    directory.refuses("absent", "key", None, "cannot read the TLS certificate");
    directory.refuses("cert", "absent", None, "cannot read the TLS key");
    directory.refuses("key", "key", None, "there is no certificate in it");
    directory.refuses("cert", "key", Some("key"), "cannot read the TLS client CA");
    let open = fs::Permissions::from_mode(0o644);
    fs::set_permissions(directory.path("key"), open).expect("changed");
    directory.refuses("cert", "key", None, "can be read by others (mode 0644)");
}

/// All of these were "no items found".
#[test]
fn the_usual_mistakes_with_files_are_named() {
    let directory = Directory::new("mistakes");
    let key = |name: &str, bytes: &[u8]| {
        let path = directory.path(name);
        fs::write(&path, bytes).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    };
    let whole = fs::read(directory.path("key")).expect("there");
    for sealed in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIIF\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\nMIIF\n-----END RSA PRIVATE KEY-----\n",
    ] {
        key("sealed", sealed.as_bytes());
        directory.refuses("cert", "sealed", None, "sealed is encrypted");
    }
    key("cut", &whole[..whole.len() / 2]);
    directory.refuses("cert", "cut", None, "cut is cut off");
    key("der", &[0x30, 0x82, 0xff, 0]);
    directory.refuses("cert", "der", None, "der is not PEM");
    key("empty", b"");
    directory.refuses("cert", "empty", None, "empty is not PEM");
    let chain = fs::read(directory.path("cert")).expect("there");
    key("half", &chain[..chain.len() / 2]);
    directory.refuses("half", "key", None, "half is cut off");
    directory.refuses("der", "key", None, "der is not PEM");
    directory.refuses("cert", "key", Some("der"), "der is not PEM");
}

/// systemd hands out credentials with mode 0440, of root. The service's own user could not use a key like that.
#[test]
fn a_key_may_be_a_credential_of_systemd() {
    let directory = Directory::new("credential");
    let path = directory.path("key");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o440)).expect("changed");
    let owner = fs::metadata(&path).expect("there");
    let (cert, key) = (directory.path("cert"), directory.path("key"));
    let caller = TlsCaller::open(&cert, Some((&cert, &key)));
    match owner.uid() == 0 && owner.gid() == 0 {
        true => {
            directory.open("cert", "key", None).expect("usable");
            caller.expect("usable");
        }
        false => {
            let why = "can be read by others (mode 0440)";
            directory.refuses("cert", "key", None, why);
            let failure = caller.err().expect("refused");
            assert!(failure.to_string().contains(why), "{failure}");
        }
    }
}

#[test]
fn a_bad_new_pair_leaves_the_old_one_in_use() {
    let directory = Directory::new("reload");
    let tls = directory.open("cert", "key", None).expect("usable");
    let present = || Arc::as_ptr(&tls.0.config.lock().expect("unpoisoned"));
    let first = present();
    directory.write_pair("", -1);
    assert!(tls.reload().is_err());
    assert_eq!(present(), first);
    directory.write_pair("", 60);
    tls.reload().expect("usable");
    assert_ne!(present(), first);
    assert!(tls.accept().is_ok());
}
