//! Real servers that tests start by themselves: on free ports of the loopback, in folders of their own, once a process.
//!
//! A shell stands over each. It waits for the end of its input, which is the end of the test's process however it comes, and
//! then stops the server by its number and removes the folder. Where a server is not installed the test says so and is
//! skipped; in CI (`CI=true`) it fails.

use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::{MetadataExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::OnceLock;
use std::sync::mpsc;
use std::time::Duration;

use crate::nats_server::free_port;

/// A server that has not begun to answer by then does not work.
const PATIENCE: Duration = Duration::from_mins(1);

/// Whom servers run as that refuse to run as root.
const NOBODY: u32 = 65534;

/// Runs the rest of its arguments until its input ends.
const KEEPER: &str = r#"folder=$1; signal=$2; shift 2
"$@" </dev/null & server=$!
read -r _
kill -s "$signal" "$server"
wait "$server"
rm -rf -- "$folder""#;

/// A running server.
pub struct Server {
    /// Where it listens on 127.0.0.1.
    pub port: u16,
    folder: PathBuf,
    _life: ChildStdin,
}

impl Server {
    /// A reference to a secret file with this text, which goes when the server goes.
    ///
    /// # Panics
    /// When it cannot be written.
    #[must_use]
    pub fn secret(&self, text: &str) -> String {
        let path = self.folder.join(format!("secret-{}", uuid::Uuid::new_v4()));
        std::fs::write(&path, text).expect("the folder is there");
        format!("file:{}", path.display())
    }
}

/// PostgreSQL, with the superuser `orlog` who needs no password. `None`: it is not installed.
///
/// # Panics
/// When it does not start, or is missing in CI.
pub fn postgres() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(start_postgres).as_ref()
}

/// MariaDB, with the user `orlog` who may do everything and needs no password. `None`: it is not installed.
///
/// # Panics
/// When it does not start, or is missing in CI.
pub fn mariadb() -> Option<&'static Server> {
    static SERVER: OnceLock<Option<Server>> = OnceLock::new();
    SERVER.get_or_init(start_mariadb).as_ref()
}

/// Whether a test that needs `what` is to be skipped.
///
/// # Panics
/// In CI, where everything is installed.
pub fn skipped(what: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!in_ci, "{what} is not installed; tools/setup.sh installs it");
    eprintln!("skipped: {what} is not installed");
}

fn start_postgres() -> Option<Server> {
    let (Some(initdb), Some(postgres)) = (program("initdb"), program("postgres")) else {
        skipped("PostgreSQL");
        return None;
    };
    let (folder, port) = (folder("postgres"), free_port());
    let data = folder.join("data");
    let mut init = as_nobody(Command::new(initdb), &folder);
    init.arg("-D").arg(&data).args(["-U", "orlog", "-A", "trust", "-N", "-E", "UTF8", "--locale=C"]);
    run(init);
    let port_text = port.to_string();
    let data = data.display().to_string();
    let flags = ["-D", &data, "-h", "127.0.0.1", "-p", &port_text, "-F", "-c", "unix_socket_directories="];
    let life = keep(&folder, "INT", &postgres, &flags, "ready to accept connections");
    Some(Server { port, folder, _life: life })
}

fn start_mariadb() -> Option<Server> {
    let (Some(install), Some(mariadbd)) = (program("mariadb-install-db"), program("mariadbd")) else {
        skipped("MariaDB");
        return None;
    };
    let (folder, port) = (folder("mariadb"), free_port());
    let data = format!("--datadir={}", folder.join("data").display());
    let mut init = as_nobody(Command::new(install), &folder);
    init.args(["--no-defaults", &data, "--skip-test-db", "--auth-root-authentication-method=normal"]);
    run(init);
    let users = folder.join("users.sql");
    std::fs::write(&users, "CREATE USER orlog@'127.0.0.1';\nGRANT ALL ON *.* TO orlog@'127.0.0.1';\n")
        .expect("the folder is ours");
    let (port_flag, socket) = (format!("--port={port}"), format!("--socket={}", folder.join("s").display()));
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
    let life = keep(&folder, "TERM", &mariadbd, &flags, "ready for connections");
    Some(Server { port, folder, _life: life })
}

/// In the path, or where Debian keeps what is not in it.
fn program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<_> = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]).collect();
    if let Ok(versions) = std::fs::read_dir("/usr/lib/postgresql") {
        folders.extend(versions.flatten().map(|version| version.path().join("bin")));
    }
    folders.into_iter().map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// A folder that the server's user owns.
fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("orlog-{name}-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&folder).expect("a new folder");
    if is_root(&folder) {
        chown(&folder, Some(NOBODY), Some(NOBODY)).expect("root may");
    }
    folder
}

fn is_root(own: &Path) -> bool {
    std::fs::metadata(own).is_ok_and(|data| data.uid() == 0)
}

fn as_nobody(mut command: Command, folder: &Path) -> Command {
    command.current_dir(folder).env("HOME", folder).stdin(Stdio::null());
    if std::fs::metadata(folder).is_ok_and(|data| data.uid() == NOBODY) {
        command.uid(NOBODY).gid(NOBODY);
    }
    command
}

fn run(mut command: Command) {
    let output = command.output().expect("it was found");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&said));
}

/// Starts a server under its keeper and waits until it says that it is ready.
fn keep(folder: &Path, signal: &str, server: &Path, flags: &[&str], ready: &'static str) -> ChildStdin {
    let mut keeper = as_nobody(Command::new("/bin/sh"), folder);
    keeper.args(["-c", KEEPER, "keeper"]).arg(folder).arg(signal).arg(server).args(flags);
    keeper.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut keeper = keeper.spawn().expect("there is a shell");
    let (stdin, stderr) = (keeper.stdin.take().expect("piped"), keeper.stderr.take().expect("piped"));
    let (told, heard) = mpsc::channel();
    // It goes on reading until the server ends: a full pipe would stop it.
    std::thread::spawn(move || {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            told.send(line).ok();
        }
        keeper.wait().ok();
    });
    let mut said = String::new();
    loop {
        let line = heard
            .recv_timeout(PATIENCE)
            .unwrap_or_else(|_| panic!("the server never said {ready:?}: {said}"));
        if line.contains(ready) {
            return stdin;
        }
        said.push_str(&line);
        said.push('\n');
    }
}
