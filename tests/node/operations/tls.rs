//! TLS of the API: certificates of the node and of its clients, their replacement, and handshakes that stall.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use orlog::config::HttpTlsConfig;
use orlog::{App, Config};
use orlog_testkit::WAIT_TIMEOUT;
use reqwest::{Certificate, Identity};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::harness::process::{orlog, run};
use crate::operations::node::Node;

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/certs")
        .join(name)
}

fn read(name: &str) -> Vec<u8> {
    std::fs::read(file(name)).unwrap()
}

fn of_node(name: &str) -> HttpTlsConfig {
    HttpTlsConfig {
        certificate: Some(file(&format!("{name}.pem"))),
        key: Some(file(&format!("{name}.key"))),
        ..HttpTlsConfig::default()
    }
}

/// Starts a node that serves HTTPS, and returns it with its URL.
async fn start(tls: HttpTlsConfig, change: impl FnOnce(&mut Config)) -> (Node, String) {
    let node = Node::start(|config| {
        config.http.tls = tls;
        change(config);
    })
    .await;
    let url = node.url.replace("http://", "https://");
    (node, url)
}

/// Returns the file with a client certificate and its key.
fn identity(name: &str) -> Vec<u8> {
    [read(&format!("{name}.pem")), read(&format!("{name}.key"))].concat()
}

/// Client that opens a connection for each request.
fn client(ca: &str, certificate: Option<&str>) -> reqwest::Client {
    let client = orlog_effect::http::client()
        .timeout(WAIT_TIMEOUT)
        .pool_max_idle_per_host(0);
    let client = client.tls_certs_only(Certificate::from_pem_bundle(&read(ca)).unwrap());
    let client = match certificate {
        Some(name) => client.identity(Identity::from_pem(&identity(name)).unwrap()),
        None => client,
    };
    client.build().unwrap()
}

async fn status(client: &reqwest::Client, url: &str) -> Result<u16, String> {
    let response = client.get(format!("{url}/info")).send().await;
    response
        .map(|response| response.status().as_u16())
        .map_err(|error| format!("{error:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn api_and_command_line_use_https() {
    let (node, url) = start(of_node("server"), |_| ()).await;
    assert_eq!(status(&client("ca.pem", None), &url).await, Ok(200));
    let error = status(&client("other-ca.pem", None), &url)
        .await
        .unwrap_err();
    assert!(error.contains("UnknownIssuer"), "{error}");
    assert!(
        status(&client("ca.pem", None), &node.url).await.is_err(),
        "the port serves no HTTP"
    );

    let list = |ca: Option<&str>| {
        let mut command = orlog(&["saga", "list", "--url", &url]);
        if let Some(ca) = ca {
            command.env("ORLOG_CA_FILE", file(ca));
        }
        run(command)
    };
    let (code, _, error) = list(Some("ca.pem")).await;
    assert_eq!(code, 0, "{error}");
    for ca in [Some("other-ca.pem"), None] {
        let (code, _, error) = list(ca).await;
        assert!(
            code != 0 && error.contains("no response from https://"),
            "{ca:?} {error}"
        );
    }
    let (code, _, error) = list(Some("server.key")).await;
    assert!(
        code == 2 && error.contains("server.key: no certificate in PEM"),
        "{code} {error}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_certificates_are_verified_and_can_be_required() {
    let trusted = HttpTlsConfig {
        client_ca: Some(file("ca.pem")),
        ..of_node("server")
    };
    let (_node, url) = start(trusted.clone(), |_| ()).await;
    assert_eq!(status(&client("ca.pem", None), &url).await, Ok(200));
    assert_eq!(
        status(&client("ca.pem", Some("client")), &url).await,
        Ok(200)
    );
    assert!(
        status(&client("ca.pem", Some("other")), &url)
            .await
            .is_err()
    );

    let (node, url) = start(
        HttpTlsConfig {
            require_client_certificate: true,
            ..trusted
        },
        |_| (),
    )
    .await;
    assert!(status(&client("ca.pem", None), &url).await.is_err());
    assert!(
        status(&client("ca.pem", Some("other")), &url)
            .await
            .is_err()
    );
    assert_eq!(
        status(&client("ca.pem", Some("client")), &url).await,
        Ok(200)
    );
    let certificate = node.dir.path().join("client-identity.pem");
    std::fs::write(&certificate, identity("client")).unwrap();
    let mut list = orlog(&["saga", "list", "--url", &url]);
    list.env("ORLOG_CA_FILE", file("ca.pem"))
        .env("ORLOG_CLIENT_CERTIFICATE", &certificate);
    let (code, _, error) = run(list).await;
    assert_eq!(code, 0, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reload_replaces_certificates_and_keeps_them_if_the_new_ones_are_invalid() {
    let dir = tempfile::tempdir().unwrap();
    let (certificate, key) = (dir.path().join("tls.crt"), dir.path().join("tls.key"));
    let install = |name: &str| {
        std::fs::write(&certificate, read(&format!("{name}.pem"))).unwrap();
        std::fs::write(&key, read(&format!("{name}.key"))).unwrap();
    };
    install("server");
    let files = HttpTlsConfig {
        certificate: Some(certificate.clone()),
        key: Some(key.clone()),
        ..HttpTlsConfig::default()
    };
    let (node, url) = start(files, |_| ()).await;
    let (old, new) = (client("ca.pem", None), client("other-ca.pem", None));
    let reload = async || {
        drop(
            node.app
                .reload(
                    "test".to_owned(),
                    orlog::definitions::deploy::DeployPolicy::default(),
                )
                .await
                .unwrap(),
        );
    };

    install("other");
    assert_eq!(status(&old, &url).await, Ok(200));
    reload().await;
    assert_eq!(status(&new, &url).await, Ok(200));
    assert!(status(&old, &url).await.is_err());

    // The key of another certificate, no PEM, and a missing file.
    std::fs::write(&key, read("server.key")).unwrap();
    reload().await;
    assert_eq!(status(&new, &url).await, Ok(200));
    std::fs::write(&certificate, "no certificate").unwrap();
    reload().await;
    assert_eq!(status(&new, &url).await, Ok(200));
    std::fs::remove_file(&key).unwrap();
    reload().await;
    assert_eq!(status(&new, &url).await, Ok(200));
    install("server");
    reload().await;
    assert_eq!(status(&old, &url).await, Ok(200));
}

#[tokio::test]
async fn invalid_certificates_prevent_the_start() {
    let start = async |tls: HttpTlsConfig| {
        let dir = tempfile::tempdir().unwrap();
        let mut config = Config {
            data_dir: dir.path().join("data"),
            ..Config::default()
        };
        config.http.tls = tls;
        let Err(error) = App::start(config).await else {
            panic!("the node has started")
        };
        format!("{error:#}")
    };
    let missing = HttpTlsConfig {
        key: Some("/nonexistent.key".into()),
        ..of_node("server")
    };
    let error = start(missing).await;
    assert!(
        error.contains("http.tls.key: cannot read /nonexistent.key: No such file"),
        "{error}"
    );
    let error = start(HttpTlsConfig {
        key: Some(file("client.key")),
        ..of_node("server")
    })
    .await;
    assert!(
        error.contains("http.tls.certificate: ") && error.contains("keys"),
        "{error}"
    );
    let error = start(HttpTlsConfig {
        certificate: Some(file("server.key")),
        ..of_node("server")
    })
    .await;
    assert!(
        error.contains("server.key contains no certificate in PEM"),
        "{error}"
    );
    let error = start(HttpTlsConfig {
        key: Some(file("server.pem")),
        ..of_node("server")
    })
    .await;
    assert!(
        error.contains("server.pem contains no private key in PEM"),
        "{error}"
    );
    let error = start(HttpTlsConfig {
        client_ca: Some(file("server.key")),
        ..of_node("server")
    })
    .await;
    assert!(
        error.contains("http.tls.client_ca: ") && error.contains("no certificate"),
        "{error}"
    );
}

/// Opens a TLS connection and sends a text.
async fn send(address: &str, text: &str) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_slice(&read("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let config = config
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("127.0.0.1").unwrap();
    let mut stream = TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// Returns the status line of the response on a new connection.
async fn get(address: &str, path: &str) -> String {
    let text = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
    let mut response = Vec::new();
    // A connection may end without a TLS alert.
    drop(send(address, &text).await.read_to_end(&mut response).await);
    String::from_utf8_lossy(&response)
        .lines()
        .next()
        .unwrap_or_default()
        .to_owned()
}

async fn within<T>(deadline: Duration, work: impl Future<Output = T>) -> T {
    tokio::time::timeout(deadline, work)
        .await
        .expect("done in time")
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_handshakes_delay_no_requests_and_time_out() {
    let (node, _) = start(of_node("server"), |config| config.http.max_connections = 16).await;
    let address = node.url.strip_prefix("http://").unwrap();
    let mut stalled = Vec::new();
    for _ in 0..40 {
        stalled.push(TcpStream::connect(address).await.unwrap());
    }
    for path in ["/health", "/info"] {
        let status = within(Duration::from_secs(5), get(address, path)).await;
        assert_eq!(status, "HTTP/1.1 200 OK", "{path}");
    }
    // The first ones were closed for others, the last one when its handshake timed out.
    for mut stream in [stalled.swap_remove(39), stalled.swap_remove(0)] {
        let end = within(Duration::from_secs(20), stream.read(&mut [0])).await;
        assert!(end.is_err() || end.is_ok_and(|bytes| bytes == 0));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn reserved_places_serve_health_over_tls() {
    let (node, _) = start(of_node("server"), |config| config.http.max_connections = 16).await;
    let address = node.url.strip_prefix("http://").unwrap();
    let head = format!(
        "POST /v1/events HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/cloudevents+json\r\ncontent-length: 9\r\n\r\n"
    );
    // Each request stays in flight, because its body is missing.
    let mut busy = Vec::new();
    let all_busy = async {
        while get(address, "/info").await != "HTTP/1.1 503 Service Unavailable" {
            busy.push(send(address, &head).await);
        }
    };
    within(Duration::from_secs(10), all_busy).await;
    assert_eq!(get(address, "/health").await, "HTTP/1.1 200 OK");
    drop(busy);
    let free = async {
        while get(address, "/info").await != "HTTP/1.1 200 OK" {
            tokio::task::yield_now().await;
        }
    };
    within(Duration::from_secs(10), free).await;
}
