//! Real servers that tests start: on free loopback ports, in their own directories, once per process.
//!
//! A shell supervises each server. It waits for the end of its standard input, which closes in every
//! case when the test process ends. Then it stops the server by its process id and removes the
//! directory. If a server is not installed, the test fails.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;

use crate::host::{free_port, missing};
use crate::wait::WAIT_TIMEOUT;

/// User id for servers that do not run as root.
const UNPRIVILEGED_UID: u32 = 65534;

/// Runs the rest of its arguments until its input ends.
const SUPERVISOR_SCRIPT: &str = r#"dir=$1; signal=$2; shift 2
"$@" </dev/null & server=$!
read -r _
kill -s "$signal" "$server"
wait "$server"
rm -rf -- "$dir""#;

/// Running server.
pub struct TestServer {
    /// Port on 127.0.0.1.
    pub port: u16,
    dir: PathBuf,
    _supervisor_stdin: ChildStdin,
}

impl TestServer {
    /// Returns a reference to a secret file with this text. The file is removed with the server.
    ///
    /// # Panics
    /// If the file cannot be written.
    #[must_use]
    pub fn secret(&self, text: &str) -> String {
        let path = self.dir.join(format!("secret-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, text).expect("the directory exists");
        format!("file:{}", path.display())
    }
}

/// Starts PostgreSQL with the superuser `orlog` without password.
///
/// # Panics
/// If it is not installed or does not start.
pub fn postgres() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(start_postgres)
}

/// Starts MariaDB with the user `orlog`, who has all privileges and no password.
///
/// # Panics
/// If it is not installed or does not start.
pub fn mariadb() -> &'static TestServer {
    static SERVER: OnceLock<TestServer> = OnceLock::new();
    SERVER.get_or_init(start_mariadb)
}

fn start_postgres() -> TestServer {
    let (Some(initdb), Some(postgres)) = (program("initdb"), program("postgres")) else {
        missing("PostgreSQL", "setup")
    };
    let (dir, port) = (dir("postgres"), free_port());
    let data = dir.join("data");
    let mut init = as_unprivileged(Command::new(initdb), &dir);
    init.arg("-D").arg(&data).args([
        "-U",
        "orlog",
        "-A",
        "trust",
        "-N",
        "-E",
        "UTF8",
        "--locale=C",
    ]);
    run(init);
    let port_text = port.to_string();
    let data = data.display().to_string();
    let flags = [
        "-D",
        &data,
        "-h",
        "127.0.0.1",
        "-p",
        &port_text,
        "-F",
        "-c",
        "unix_socket_directories=",
    ];
    let supervisor_stdin = supervise(
        &dir,
        "INT",
        &postgres,
        &flags,
        "ready to accept connections",
    );
    TestServer {
        port,
        dir,
        _supervisor_stdin: supervisor_stdin,
    }
}

fn start_mariadb() -> TestServer {
    let (Some(install), Some(mariadbd)) = (program("mariadb-install-db"), program("mariadbd"))
    else {
        missing("MariaDB", "setup")
    };
    let (dir, port) = (dir("mariadb"), free_port());
    let data = format!("--datadir={}", dir.join("data").display());
    let mut init = as_unprivileged(Command::new(install), &dir);
    init.args([
        "--no-defaults",
        &data,
        "--skip-test-db",
        "--auth-root-authentication-method=normal",
    ]);
    run(init);
    let users = dir.join("users.sql");
    std::fs::write(
        &users,
        "CREATE USER orlog@'127.0.0.1';\nGRANT ALL ON *.* TO orlog@'127.0.0.1';\n",
    )
    .expect("the directory is writable");
    let (port_flag, socket) = (
        format!("--port={port}"),
        format!("--socket={}", dir.join("s").display()),
    );
    let users = format!("--init-file={}", users.display());
    let flags = [
        "--no-defaults",
        &data,
        "--bind-address=127.0.0.1",
        &port_flag,
        &socket,
        &users,
        "--skip-name-resolve",
        "--innodb-flush-log-at-trx-commit=0",
    ];
    let supervisor_stdin = supervise(&dir, "TERM", &mariadbd, &flags, "ready for connections");
    TestServer {
        port,
        dir,
        _supervisor_stdin: supervisor_stdin,
    }
}

/// Returns the path of a program in `PATH`, or in the Debian directories outside of it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut dirs: Vec<_> = std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        dirs.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    dirs.into_iter()
        .map(|dir| dir.join(name))
        .find(|path| path.is_file())
}

/// Creates a directory that the user of the server owns.
fn dir(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("orlog-{name}-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&dir).expect("a new directory");
    if is_root(&dir) {
        chown(&dir, Some(UNPRIVILEGED_UID), Some(UNPRIVILEGED_UID))
            .expect("root can change the owner");
    }
    dir
}

fn is_root(own: &Path) -> bool {
    std::fs::metadata(own).is_ok_and(|data| data.uid() == 0)
}

fn as_unprivileged(mut command: Command, dir: &Path) -> Command {
    command
        .current_dir(dir)
        .env("HOME", dir)
        .stdin(Stdio::null());
    if std::fs::metadata(dir).is_ok_and(|data| data.uid() == UNPRIVILEGED_UID) {
        command.uid(UNPRIVILEGED_UID).gid(UNPRIVILEGED_UID);
    }
    command
}

fn run(mut command: Command) {
    let output = command.output().expect("the program starts");
    let log = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success(),
        "{command:?}: {}",
        String::from_utf8_lossy(&log)
    );
}

/// Starts a server under its supervisor and waits until it reports readiness.
fn supervise(
    dir: &Path,
    signal: &str,
    server: &Path,
    flags: &[&str],
    ready: &'static str,
) -> ChildStdin {
    let mut supervisor = as_unprivileged(Command::new("/bin/sh"), dir);
    supervisor
        .args(["-c", SUPERVISOR_SCRIPT, "supervisor"])
        .arg(dir)
        .arg(signal)
        .arg(server)
        .args(flags);
    supervisor
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut supervisor = supervisor.spawn().expect("the shell starts");
    let (stdin, stderr) = (
        supervisor.stdin.take().expect("piped"),
        supervisor.stderr.take().expect("piped"),
    );
    let (sender, receiver) = mpsc::channel();
    // Reads until the server ends, because a full pipe would block the server.
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            sender.send(line).ok();
        }
        supervisor.wait().ok();
    });
    let mut log = String::new();
    loop {
        let line = receiver
            .recv_timeout(WAIT_TIMEOUT)
            .unwrap_or_else(|_| panic!("the server never reported {ready:?}: {log}"));
        if line.contains(ready) {
            return stdin;
        }
        log.push_str(&line);
        log.push('\n');
    }
}
