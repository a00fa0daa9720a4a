"""Records a terminal session with the real commands: docs/tutorial/session.cast (asciinema v2) and docs/tutorial/session.md (text).

    python3 tools/record.py [--orlog target/debug/orlog] [--out docs/tutorial]

The session creates a project, runs it, finds out why an order is stuck, and repairs it. The commands run in bash on a pseudo-terminal, in
a temporary directory. Pauses are shortened to PAUSE; between two commands the script waits for the state that the next one shows.
"""
import argparse, json, os, pathlib, pty, re, select, shutil, socket, subprocess, sys, tempfile, time

COLUMNS, ROWS = 110, 32
PROMPT = "$ "
KEY, PAUSE, READ = 0.025, 1.2, 2.5  # seconds: between two keys, longest pause, time to read an output
LIMIT = 60  # seconds until a command or a state must be reached
TYPO = "s|/stock.release|/stock.relase|"
# The text before each command, the command, and the state that must be reached after it: of the node, or of the order o-2.
SCENES = [
    ("Create a project.", "orlog init order && cd order", None),
    ("Edit: limit the time of the charge. A typo gets into the path of an effect.",
     "sed -i '/payments.charge, data/a\\    timeout: 10m' sagas/order.saga.yaml", None),
    (None, f"sed -i '{TYPO}' upstreams/services.toml", None),
    ("Test the definition, without a node.", "orlog test sagas", None),
    ("Start the service that executes the effects, and a development node.",
     "(python3 services/python/server.py > service.log 2>&1 &)", None),
    (None, "(orlog dev > dev.log 2>&1 &)", "node"),
    ("Publish two orders. The second exceeds the limit of the card.", "export ORLOG_TOKEN_FILE=data/session-token", None),
    (None, "orlog publish events.jsonl", "stuck"),
    (None, "orlog saga list", None),
    ("The second order is stuck: its card was declined, and the stock was not released. Find the cause.",
     "orlog saga show order o-2 | head -9", None),
    ("The last two transitions, with each attempt and its response.", "orlog saga show order o-2 --full | tail -10", None),
    ("The path of the effect is wrong. Correct it; the node reloads the file.",
     "sed -i 's|/stock.relase|/stock.release|' upstreams/services.toml", "reloaded"),
    (None, "grep reloaded: dev.log", None),
    ("Retry the compensation.", 'orlog saga retry order o-2 --reason "path of stock.release corrected"', "failed"),
    ("The stock is released: the order has failed cleanly, and the history records the repair.",
     "orlog saga show order o-2 --full | tail -6", None),
    (None, "orlog saga list", None),
    (None, "orlog drain", None),
]


class Terminal:
    """bash on a pseudo-terminal, and the events of the recording."""

    def __init__(self, directory, environment):
        self.events, self.now, self.last = [], 0.0, time.monotonic()
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.chdir(directory)
            os.execvpe("bash", ["bash", "--norc", "--noprofile", "+o", "history"], environment)
        import fcntl, struct, termios
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self.read_until(PROMPT)

    def read_until(self, end):
        """Reads until the output ends with a text."""
        text, deadline = "", time.monotonic() + LIMIT
        while not text.endswith(end):
            if time.monotonic() > deadline:
                sys.exit(f"no prompt within {LIMIT} s after: {text}")
            if not select.select([self.fd], [], [], 0.1)[0]:
                continue
            data = os.read(self.fd, 65536).decode()
            moment = time.monotonic()
            self.now += min(moment - self.last, PAUSE)
            self.last = moment
            self.events.append([round(self.now, 3), "o", data])
            text += data
        return text

    def type(self, text):
        for character in text:
            time.sleep(KEY)
            os.write(self.fd, character.encode())
            self.read_until(character)

    def run(self, command):
        """Types a command, runs it, and returns its output."""
        self.type(command)
        time.sleep(KEY * 8)
        os.write(self.fd, b"\n")
        output = self.read_until(PROMPT)
        return output.removesuffix(PROMPT)

    def pause(self, seconds):
        self.now += seconds
        self.last = time.monotonic()


def plain(text):
    """Returns the text that remains on the screen: without control sequences, and without overwritten parts of lines."""
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text).replace("\r\n", "\n")
    return "\n".join(line.rstrip("\r").rsplit("\r", 1)[-1] for line in text.split("\n"))


def wait(description, reached):
    deadline = time.monotonic() + LIMIT
    while not reached():
        if time.monotonic() > deadline:
            sys.exit(f"{description}: not within {LIMIT} s")
        time.sleep(0.1)


def responds(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def status_of(orlog, project, environment):
    command = [orlog, "saga", "show", "order", "o-2", "--output", "json"]
    token = {"ORLOG_TOKEN_FILE": str(project / "data/session-token")}
    shown = subprocess.run(command, env=environment | token, capture_output=True, text=True)
    return json.loads(shown.stdout)["status"] if shown.returncode == 0 else ""


def record(orlog, out):
    for port in (7070, 7171):
        if responds(port):
            sys.exit(f"port {port} is in use; stop the process that uses it")
    root = pathlib.Path(tempfile.mkdtemp(prefix="orlog-session-"))
    (root / "bin").mkdir()
    (root / "bin/orlog").symlink_to(orlog)
    environment = {
        "PATH": f"{root}/bin:/usr/local/bin:/usr/bin:/bin", "HOME": str(root), "USER": "ada", "LANG": "C.UTF-8", "TERM": "xterm-256color",
        "PS1": PROMPT, "INPUTRC": "/dev/null", "ORLOG_NODE_NAME": "laptop", "PYTHONUNBUFFERED": "1", "BASH_SILENCE_DEPRECATION_WARNING": "1",
    }
    terminal = Terminal(root, environment)
    terminal.run("bind 'set enable-bracketed-paste off'")
    terminal.events, terminal.now = [[0.0, "o", PROMPT]], 0.0
    steps, project = [], root / "order"
    for text, command, state in SCENES:
        if text:
            terminal.run(f"# {text}")
        terminal.pause(0.4)
        output = terminal.run(command)
        steps.append((text, command, plain(output).split("\n", 1)[1]))
        if state == "node":
            wait("the node starts", lambda: responds(7070) and (project / "data/session-token").exists())
        elif state == "reloaded":
            wait("the node reloads", lambda: "reloaded:" in (project / "dev.log").read_text())
        elif state:
            wait(f"o-2 is {state}", lambda: status_of(orlog, project, environment) == state)
        terminal.pause(READ if output.count("\n") > 3 else 0.6)
    stop_service(root)
    wait("the node stops", lambda: not responds(7070) and not (project / "data/session-token").exists())
    shutil.rmtree(root)
    write(out, terminal, steps)


def stop_service(root):
    """Stops the service: the process that listens on its port and runs in the project."""
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if (entry / "cwd").resolve().is_relative_to(root) and b"server.py" in (entry / "cmdline").read_bytes():
                    os.kill(int(entry.name), 15)
            except OSError:
                continue


def write(out, terminal, steps):
    header = {"version": 2, "width": COLUMNS, "height": ROWS, "title": "Orlog: from a new project to a repaired order",
              "env": {"SHELL": "/bin/bash", "TERM": "xterm-256color"}}
    lines = [json.dumps(header)] + [json.dumps(event, ensure_ascii=False) for event in terminal.events]
    (out / "session.cast").write_text("\n".join(lines) + "\n")
    page = ["# A recorded session", "",
            "A new project, a failure, its cause and its repair, as text. `asciinema play docs/tutorial/session.cast` plays the recording.",
            "`make recording` records both again, with the real commands (`tools/record.py`). [Part 1](1-first-saga.md) explains the project.", ""]
    opened = False
    for text, command, output in steps:
        if text:
            page += ["```", ""] if opened else []
            page += [text, "", "```console"]
            opened = True
        page += [f"$ {command}"] + [line.rstrip() for line in output.rstrip("\n").split("\n") if output.strip()]
    page += ["```", ""]
    (out / "session.md").write_text("\n".join(page))


if __name__ == "__main__":
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description="Record a terminal session")
    parser.add_argument("--orlog", type=pathlib.Path, default=root / "target/debug/orlog")
    parser.add_argument("--out", type=pathlib.Path, default=root / "docs/tutorial")
    options = parser.parse_args()
    if not options.orlog.is_file():
        sys.exit(f"{options.orlog} does not exist; run `make recording`, which builds it")
    record(options.orlog.resolve(), options.out)
