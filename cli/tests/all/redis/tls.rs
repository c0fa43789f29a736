//! TLS of Redis clients and metrics: who gets in, what is refused at the start, and new certificates while it serves.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use time::OffsetDateTime;

use super::RedisGroup;
use crate::common::{signal, tcp_ports, trine, wait_for};

/// A directory with certificates of two authorities, removed at the end.
pub(crate) struct Certificates(PathBuf);

impl Certificates {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("trine-resp-tls-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a directory");
        let made = Self(path);
        made.issue("ca", "server", 30);
        made.issue("ca", "client", 30);
        made.issue("other-ca", "stranger", 30);
        made
    }

    /// Writes `AUTHORITY.pem`, which is made anew if it is not there, and `NAME.pem` with `NAME.key`.
    fn issue(&self, authority: &str, name: &str, days: i64) {
        let (ca_key, ca) = (
            self.path(&format!("{authority}.key")),
            format!("{authority}.pem"),
        );
        if fs::metadata(&ca_key).is_err() {
            let key = KeyPair::generate().expect("a key");
            let cert = authority_params(authority)
                .self_signed(&key)
                .expect("signed");
            fs::write(&ca_key, key.serialize_pem()).expect("written");
            fs::write(self.path(&ca), cert.pem()).expect("written");
        }
        let pem = fs::read_to_string(&ca_key).expect("there");
        let issuer = Issuer::new(
            authority_params(authority),
            KeyPair::from_pem(&pem).expect("a key"),
        );
        let key = KeyPair::generate().expect("a key");
        let mut params = CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
        params.not_before = OffsetDateTime::now_utc() - time::Duration::days(100);
        params.not_after = OffsetDateTime::now_utc() + time::Duration::days(days);
        let cert = params.signed_by(&key, &issuer).expect("signed");
        fs::write(self.path(&format!("{name}.pem")), cert.pem()).expect("written");
        let path = self.path(&format!("{name}.key"));
        fs::write(&path, key.serialize_pem()).expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("changed");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Connects, with the certificate of `who` if one is named, and sends bytes. Returns the first line of the answer.
    fn ask(&self, address: SocketAddr, who: Option<&str>, bytes: &[u8]) -> Result<String, String> {
        let mut roots = RootCertStore::empty();
        let ca = CertificateDer::from_pem_file(self.path("ca.pem")).expect("a certificate");
        roots.add(ca).expect("a root");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_root_certificates(roots);
        let config = match who {
            None => builder.with_no_client_auth(),
            Some(name) => {
                let cert = CertificateDer::from_pem_file(self.path(&format!("{name}.pem")));
                let key = PrivateKeyDer::from_pem_file(self.path(&format!("{name}.key")));
                let chain = vec![cert.expect("a certificate")];
                builder
                    .with_client_auth_cert(chain, key.expect("a key"))
                    .expect("a pair")
            }
        };
        let name = "localhost".try_into().expect("a name");
        let connection = ClientConnection::new(Arc::new(config), name).expect("a client");
        let socket = TcpStream::connect(address).expect("a connection");
        let patience = Some(Duration::from_secs(30));
        socket.set_read_timeout(patience).expect("a timeout");
        let mut stream = StreamOwned::new(connection, socket);
        stream.write_all(bytes).map_err(|error| error.to_string())?;
        let mut line = String::new();
        match BufReader::new(stream).read_line(&mut line) {
            Ok(0) => Err("it has ended".to_owned()),
            Ok(_) => Ok(line.trim_end().to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Drop for Certificates {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::new(Vec::<String>::new()).expect("no names");
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params
}

#[test]
fn only_clients_of_the_authority_are_served_and_a_new_certificate_is_taken_at_sighup() {
    let files = Certificates::new("client");
    let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| files.text(name));
    let base = tcp_ports(4) - 1;
    let metrics = format!("127.0.0.1:{base}+{{node_id}}");
    let mut group = RedisGroup::start(&[
        "--metrics",
        &metrics,
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--tls-client-ca",
        &ca,
    ]);
    let address = group.address(1);
    let set = b"SET k v\r\n";
    assert_eq!(
        files.ask(address, Some("client"), set),
        Ok("+OK".to_owned())
    );
    let unknown = files.ask(address, Some("stranger"), set);
    assert!(
        unknown
            .expect_err("another authority's")
            .contains("UnknownCA")
    );
    let none = files.ask(address, None, set);
    assert!(
        none.expect_err("no certificate")
            .contains("CertificateRequired")
    );
    // The metrics are served over the same TLS.
    let scraped = SocketAddr::from(([127, 0, 0, 1], base + 1));
    let get = b"GET /livez HTTP/1.1\r\n\r\n";
    let ok = Ok("HTTP/1.1 200 OK".to_owned());
    assert_eq!(files.ask(scraped, Some("client"), get), ok);
    assert!(files.ask(scraped, None, get).is_err());
    let at = format!("localhost:{}", scraped.port());
    let log_level = |more: &[&str]| trine(&[&["log-level", "--at", &at], more].concat(), "", b"");
    log_level(&[]).expect_error(2, &["an endpoint with TLS", "--metrics-ca FILE"]);
    let trusting = ["--metrics-ca", &ca];
    log_level(&trusting).expect_error(2, &["TLS failed", "--metrics-cert"]);
    let [own, own_key] = ["client.pem", "client.key"].map(|name| files.text(name));
    let shown = [
        &trusting[..],
        &["--metrics-cert", &own, "--metrics-key", &own_key],
    ]
    .concat();
    let told = log_level(&shown).expect_status(0);
    assert!(String::from_utf8_lossy(&told.stdout).contains("warn"));
    let other = files.text("other-ca.pem");
    log_level(&["--metrics-ca", &other]).expect_error(2, &["UnknownIssuer", "--metrics-ca"]);
    // A certificate is for a name.
    let at = ["log-level", "--at", &scraped.to_string()];
    trine(&[&at[..], &shown].concat(), "", b"").expect_error(2, &["not valid for name"]);
    let directory = files.text("bundle.tar.gz");
    let bundle = ["debug", "bundle", "--out", &directory, "--json"];
    let at = format!("localhost:{}", scraped.port());
    let bundle = [&bundle[..], &["--metrics", &at], &shown].concat();
    let made = group.cluster.run(&bundle).expect_status(0).json();
    let parts = made["parts"].as_array().expect("parts");
    let metrics = parts.iter().find(|part| part["file"] == "metrics-1.txt");
    assert!(
        metrics.expect("a part")["bytes"].as_u64() > Some(1000),
        "{made}"
    );
    // Without TLS nothing is answered but the alert.
    let mut plain = TcpStream::connect(address).expect("a connection");
    plain.write_all(set).expect("written");
    let mut heard = Vec::new();
    plain
        .set_read_timeout(Some(Duration::from_secs(30)))
        .expect("a timeout");
    let _ = plain.read_to_end(&mut heard);
    assert!(
        !heard.starts_with(b"+") && !heard.starts_with(b"-"),
        "{heard:?}"
    );
    // An answer of many records.
    let large = "x".repeat(300_000);
    let request = format!(
        "*3\r\n$3\r\nSET\r\n$1\r\nl\r\n$300000\r\n{large}\r\n*2\r\n$6\r\nSTRLEN\r\n$1\r\nl\r\n"
    );
    assert_eq!(
        files.ask(address, Some("client"), request.as_bytes()),
        Ok("+OK".to_owned())
    );
    let twice = format!("*2\r\n$4\r\nECHO\r\n$300000\r\n{large}\r\n");
    assert_eq!(
        files.ask(address, Some("client"), twice.as_bytes()),
        Ok("$300000".to_owned())
    );

    // A pair that does not fit together changes nothing.
    let good = fs::read(&key).expect("there");
    fs::write(&key, fs::read(files.path("client.key")).expect("there")).expect("written");
    let pid = group.cluster.group.pids()[0];
    signal(pid, "HUP");
    assert_eq!(
        files.ask(address, Some("client"), set),
        Ok("+OK".to_owned())
    );
    fs::write(&key, good).expect("written");
    // The new authority has signed neither the old certificate of the client nor the old one of the server.
    fs::copy(files.path("other-ca.pem"), &ca).expect("copied");
    fs::copy(files.path("stranger.pem"), &cert).expect("copied");
    fs::copy(files.path("stranger.key"), &key).expect("copied");
    signal(pid, "HUP");
    wait_for("the new certificate", || {
        files.ask(address, Some("stranger"), set).ok()
    });
    assert!(files.ask(address, Some("client"), set).is_err());
    group.cluster.wait_for_voters(3);
}

/// The bench asked servers without a password and in clear alone.
#[test]
fn the_bench_logs_in_and_speaks_tls() {
    let files = Certificates::new("bench");
    let [cert, key, ca, other] =
        ["server.pem", "server.key", "ca.pem", "other-ca.pem"].map(|name| files.text(name));
    let group = RedisGroup::start(&[
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
        "--resp-password",
        "p@ss",
    ]);
    let port = group.address(1).port();
    let bench = |url: &str, more: &[&str]| {
        let short = ["--for", "200ms", "--warmup", "10ms", "--keys", "20"];
        let words = ["bench", "--target", url, "--clients", "2"];
        trine(&[&words[..], &short, more].concat(), "", b"")
    };
    let good = format!("rediss://:p%40ss@localhost:{port}");
    // Values of many records, more of them at once than the kernel takes.
    for size in ["100", "400KiB"] {
        let more = ["--pipeline", "8", "--value-size", size, "--json"];
        let ran = bench(&good, &[&["--target-ca", &ca], &more[..]].concat()).expect_status(0);
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        let document = ran.json();
        assert_eq!(document["errors"], 0, "{told}");
        assert!(document["read"]["count"].as_u64() > Some(0), "{told}");
        let shown = format!("rediss://:***@localhost:{port}");
        assert!(told.contains(&shown) && !told.contains("ss@"), "{told}");
    }
    bench(&good, &[]).expect_error(2, &["speaks TLS", "--target-ca FILE"]);
    let mistrusted = bench(&good, &["--target-ca", &other]);
    mistrusted.expect_error(2, &["no TLS with", "UnknownIssuer", ":***@"]);
    let trusting = &["--target-ca", &ca][..];
    let wrong = bench(&format!("rediss://:no@localhost:{port}"), trusting);
    wrong.expect_error(2, &["does not take the user and the password: WRONGPASS"]);
    let none = bench(&format!("rediss://localhost:{port}"), trusting);
    none.expect_error(1, &["NOAUTH"]);
    let unnamed = bench(&format!("rediss://:p%40ss@127.0.0.1:{port}"), trusting);
    unnamed.expect_error(2, &["not valid for name"]);
}

#[test]
fn files_that_cannot_be_used_are_refused_at_the_start() {
    let files = Certificates::new("refused");
    files.issue("ca", "old", -3);
    let path = |name: &str| files.text(name);
    let serve = |cert: &str, key: &str| {
        let (cert, key) = (path(cert), path(key));
        let options = ["--tls-cert", &cert, "--tls-key", &key, "--resp", "0"];
        let base = ["serve", "--id", "1", "--peers", "127.0.0.1:1"];
        trine(&[&base[..], &options].concat(), "", b"")
    };
    serve("server.pem", "client.key")
        .expect_error(2, &["server.pem", "does not belong to the certificate"]);
    serve("old.pem", "old.key").expect_error(2, &["old.pem", "has expired 3 days ago", "renew it"]);
    serve("absent.pem", "server.key").expect_error(2, &["cannot read the TLS certificate"]);
    let open = fs::Permissions::from_mode(0o640);
    fs::set_permissions(files.path("server.key"), open).expect("changed");
    let chmod = format!("run `chmod 600 {}`", path("server.key"));
    serve("server.pem", "server.key")
        .expect_error(2, &["can be read by others (mode 0640)", &chmod]);
}

#[test]
fn beyond_loopback_nothing_is_served_that_asks_nobody_who_it_is() {
    let files = Certificates::new("open");
    let serve = |options: &[&str]| {
        let base = ["serve", "--id", "1", "--peers", "127.0.0.1:1"];
        trine(&[&base[..], options].concat(), "", b"")
    };
    for more in [&[][..], &["--insecure"]] {
        let resp = [&["--resp", "0.0.0.0:0"], more].concat();
        serve(&resp).expect_error(
            2,
            &[
                "the address of --resp 0.0.0.0:0",
                "nothing asks who they are",
                "--resp-require-auth",
            ],
        );
        let metrics = [&["--metrics", "0.0.0.0:0"], more].concat();
        serve(&metrics).expect_error(
            2,
            &[
                "the address of --metrics 0.0.0.0:0",
                "--metrics-password-file",
            ],
        );
    }
    serve(&["--resp", "0", "--resp-require-auth"])
        .expect_error(2, &["no client could authenticate", "--key FILE"]);
    // Encryption alone keeps nobody out.
    let (cert, key) = (files.text("server.pem"), files.text("server.key"));
    serve(&[
        "--resp",
        "0.0.0.0:0",
        "--tls-cert",
        &cert,
        "--tls-key",
        &key,
    ])
    .expect_error(2, &["nothing asks who they are"]);
    let up = trine(&["up", "--resp", "0.0.0.0:7101"], "", b"");
    up.expect_error(2, &["the address of --resp", "nothing asks who they are"]);
}
