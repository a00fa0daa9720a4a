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
    let Some(initdb) = program("initdb") else {
        missing("PostgreSQL", "setup")
    };
    let dir = dir("postgres");

    let mut init = as_unprivileged(Command::new(initdb), &dir);
    init.arg("-D").arg(dir.join("data")).args([
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

    run_postgres(dir, "ready to accept connections")
}

/// Starts a standby of the server of [`postgres`], with its data of this moment. It accepts reads
/// only, until `SELECT pg_promote()` makes it a primary. Each call starts another one.
///
/// # Panics
/// If PostgreSQL is not installed, or the standby does not start.
#[must_use]
pub fn postgres_standby() -> TestServer {
    let primary = postgres();
    let Some(basebackup) = program("pg_basebackup") else {
        missing("PostgreSQL", "setup")
    };
    let dir = dir("standby");

    let mut copy = as_unprivileged(Command::new(basebackup), &dir);
    copy.arg("-D").arg(dir.join("data")).args([
        "--write-recovery-conf",
        "--wal-method=stream",
        "--checkpoint=fast",
        "--no-sync",
        "--username=orlog",
        "--host=127.0.0.1",
        "--port",
        &primary.port.to_string(),
    ]);
    run(copy);

    run_postgres(dir, "ready to accept read-only connections")
}

/// Starts the server whose data is in a directory.
fn run_postgres(dir: PathBuf, ready: &'static str) -> TestServer {
    let Some(postgres) = program("postgres") else {
        missing("PostgreSQL", "setup")
    };
    let port = free_port();

    let port_text = port.to_string();
    let data = dir.join("data").display().to_string();
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
        // A checkpoint during a base backup must not remove what the backup still streams.
        "-c",
        "wal_keep_size=512MB",
    ];
    let supervisor_stdin = supervise(&dir, "INT", &postgres, &flags, ready);
    TestServer {
        port,
        dir,
        _supervisor_stdin: supervisor_stdin,
    }
}

/// Starts PgBouncer in transaction mode before the server of [`postgres`], with two connections to
/// it for each database, and otherwise its default settings. Each call starts another one.
///
/// # Panics
/// If it is not installed or does not start.
#[must_use]
pub fn pgbouncer() -> TestServer {
    let server = postgres();
    let Some(pgbouncer) = program("pgbouncer") else {
        missing("PgBouncer", "setup")
    };
    let dir = dir("pgbouncer");
    let port = free_port();

    let users = dir.join("users.txt");
    std::fs::write(&users, "\"orlog\" \"\"\n").expect("the directory is writable");
    let settings = format!(
        "[databases]\n* = host=127.0.0.1 port={}\n\
         [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
         auth_type = trust\nauth_file = {}\n\
         pool_mode = transaction\ndefault_pool_size = 2\n",
        server.port,
        users.display()
    );
    let file = dir.join("pgbouncer.ini");
    std::fs::write(&file, settings).expect("the directory is writable");

    let flags = [file.display().to_string()];
    let flags = flags.each_ref().map(String::as_str);
    let supervisor_stdin = supervise(&dir, "TERM", &pgbouncer, &flags, "process up");
    TestServer {
        port,
        dir,
        _supervisor_stdin: supervisor_stdin,
    }
}

/// Starts nginx as a proxy. `http` is the content of the block `http`, with `{port}` for the port;
/// its temporary files are in the directory of the server.
///
/// # Panics
/// If it is not installed or does not start.
#[must_use]
pub fn nginx(http: &str) -> TestServer {
    let dir = dir("nginx");
    let port = free_port();
    let temp = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|kind| format!("{kind}_temp_path {}/{kind};\n", dir.display()))
        .concat();
    let settings = format!(
        "daemon off;\nworker_processes 1;\npid {}/pid;\nerror_log stderr notice;\n\
         events {{}}\nhttp {{\naccess_log off;\n{temp}{}\n}}\n",
        dir.display(),
        http.replace("{port}", &port.to_string())
    );
    let file = dir.join("nginx.conf");
    std::fs::write(&file, settings).expect("the directory is writable");

    let file = file.display().to_string();
    let prefix = dir.display().to_string();
    let flags = ["-p", &prefix, "-c", &file];
    run_proxy("nginx", dir, port, &flags, "start worker process ")
}

/// Starts HAProxy. `sections` are the sections of its configuration, with `{port}` for the port.
///
/// # Panics
/// If it is not installed or does not start.
#[must_use]
pub fn haproxy(sections: &str) -> TestServer {
    let dir = dir("haproxy");
    let port = free_port();
    let file = dir.join("haproxy.cfg");
    let settings = sections.replace("{port}", &port.to_string());
    std::fs::write(&file, settings).expect("the directory is writable");

    let file = file.display().to_string();
    let flags = ["-W", "-db", "-f", &file];
    run_proxy("haproxy", dir, port, &flags, "Loading success")
}

/// Runs a proxy that `tools/proxies.sh` has unpacked, with its libraries.
fn run_proxy(
    name: &str,
    dir: PathBuf,
    port: u16,
    flags: &[&str],
    ready: &'static str,
) -> TestServer {
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/proxies");
    let program = tools.join("bin").join(name);
    if !program.is_file() {
        missing(name, "proxies");
    }

    let libraries = format!("LD_LIBRARY_PATH={}", tools.join("lib").display());
    let program = program.display().to_string();
    let flags: Vec<&str> = [libraries.as_str(), program.as_str()]
        .into_iter()
        .chain(flags.iter().copied())
        .collect();
    let supervisor_stdin = supervise(&dir, "TERM", Path::new("/usr/bin/env"), &flags, ready);
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
        "CREATE USER orlog@'127.0.0.1';\nGRANT ALL ON *.* TO orlog@'127.0.0.1' WITH GRANT OPTION;\n",
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
