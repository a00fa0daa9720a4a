"""Builds the packages of a compiled binary: archive, Debian package, Python wheel, npm package, with checksums.

    python3 tools/dist.py [--binary target/release/orlog] [--sbom target/orlog.cdx.json] [--out target/dist] [--fast]

The packages contain the same stripped binary. Their times are those of SOURCE_DATE_EPOCH, or of the last commit, so that equal inputs
give equal packages. Linux on x86-64 or ARM64.
"""
import argparse, base64, gzip, hashlib, io, json, os, platform, re, shutil, subprocess, tarfile, tempfile, zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUMMARY = "Durable saga runner on an embedded event log or NATS JetStream"
MACHINES = {"x86_64": ("amd64", "x64"), "aarch64": ("arm64", "arm64")}  # names of Debian and npm
MAINTAINER = "Orlog developers <orlog@localhost>"


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def commit_time():
    """Returns the time of all packaged files, in seconds since 1970."""
    if epoch := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(epoch)
    return int(output("git", "-C", str(ROOT), "log", "-1", "--format=%ct"))


def required_glibc(binary):
    """Returns the newest version of glibc whose symbols the binary uses, as (major, minor)."""
    versions = re.findall(r"GLIBC_(\d+)\.(\d+)", output("readelf", "-V", str(binary)))
    return max((int(major), int(minor)) for major, minor in versions)


def add(archive, name, content, mode, time):
    """Adds a file to a tar archive, with the directories above it."""
    known = set(archive.getnames())
    for parent in reversed(Path(name).parents[:-1]):
        if str(parent) not in known:
            entry = tarfile.TarInfo(str(parent))
            entry.type, entry.mode, entry.mtime = tarfile.DIRTYPE, 0o755, time
            archive.addfile(entry)
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode, entry.mtime = len(content), mode, time
    archive.addfile(entry, io.BytesIO(content))


def tar_gz(path, files, build):
    """Writes a compressed archive of {name: (content, mode)}."""
    with open(path, "wb") as file, gzip.GzipFile("", "wb", build.level, file, build.time) as compressed:
        with tarfile.open(fileobj=compressed, mode="w") as archive:
            for name, (content, mode) in sorted(files.items()):
                add(archive, name, content, mode, build.time)


class Build:
    """Inputs of all packages."""

    def __init__(self, options, directory):
        machine = platform.machine()
        self.debian, self.npm = MACHINES[machine]
        self.machine, self.time, self.out = machine, commit_time(), Path(options.out)
        self.level = 1 if options.fast else 9
        stripped = directory / "orlog"
        subprocess.run(["strip", "-o", stripped, options.binary], check=True)
        self.binary = stripped.read_bytes()
        self.glibc = required_glibc(stripped)
        self.version = output(str(stripped), "--version").split()[1]
        output(str(stripped), "man", str(directory / "man"))
        self.man = {page.name: page.read_bytes() for page in sorted((directory / "man").iterdir())}
        self.completions = {shell: output(str(stripped), "completions", shell).encode() for shell in ("bash", "zsh", "fish")}
        self.license = (ROOT / "LICENSE").read_bytes()
        self.readme = (ROOT / "deploy/packages/README.md").read_bytes()
        self.service = (ROOT / "deploy/packages/orlog.service").read_bytes()
        self.config = (ROOT / "deploy/packages/orlog.toml").read_bytes()

    def archive(self):
        name = f"orlog-{self.version}-{self.machine}-linux"
        files = {"bin/orlog": (self.binary, 0o755), "LICENSE": (self.license, 0o644), "README.md": (self.readme, 0o644)}
        files |= {f"man/man1/{page}": (content, 0o644) for page, content in self.man.items()}
        files |= {f"completions/orlog.{shell}": (content, 0o644) for shell, content in self.completions.items()}
        files |= {"orlog.service": (self.service, 0o644), "orlog.toml": (self.config, 0o644)}
        tar_gz(self.out / f"{name}.tar.gz", {f"{name}/{path}": file for path, file in files.items()}, self)

    def debian_package(self):
        major, minor = self.glibc
        paths = {
            "usr/bin/orlog": (self.binary, 0o755),
            "usr/lib/systemd/system/orlog.service": (self.service, 0o644),
            "etc/orlog/orlog.toml": (self.config, 0o644),
            "usr/share/doc/orlog/copyright": (self.license, 0o644),
            "usr/share/bash-completion/completions/orlog": (self.completions["bash"], 0o644),
            "usr/share/zsh/vendor-completions/_orlog": (self.completions["zsh"], 0o644),
            "usr/share/fish/vendor_completions.d/orlog.fish": (self.completions["fish"], 0o644),
        }
        for page, content in self.man.items():
            paths[f"usr/share/man/man1/{page}.gz"] = (gzip.compress(content, mtime=self.time), 0o644)
        size = sum(len(content) for content, _ in paths.values()) // 1024
        control = (
            f"Package: orlog\nVersion: {self.version}\nArchitecture: {self.debian}\nMaintainer: {MAINTAINER}\n"
            f"Depends: libc6 (>= {major}.{minor}), libgcc-s1\nSection: misc\nPriority: optional\nInstalled-Size: {size}\n"
            f"Description: {SUMMARY}\n"
        )
        with tempfile.TemporaryDirectory() as tree:
            paths["DEBIAN/control"] = (control.encode(), 0o644)
            paths["DEBIAN/conffiles"] = (b"/etc/orlog/orlog.toml\n", 0o644)
            for path, (content, mode) in paths.items():
                target = Path(tree) / path
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod(mode)
            # The configuration names these directories.
            for name in ("sagas", "upstreams"):
                (Path(tree) / "etc/orlog" / name).mkdir()
            for directory, _, _ in os.walk(tree):
                os.chmod(directory, 0o755)
            deb = self.out / f"orlog_{self.version}_{self.debian}.deb"
            environment = {**os.environ, "SOURCE_DATE_EPOCH": str(self.time)}
            command = ["dpkg-deb", "--root-owner-group", "-Zgzip", f"-z{self.level}", "--build", tree, str(deb)]
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)

    def wheel(self):
        tag = f"py3-none-manylinux_{self.glibc[0]}_{self.glibc[1]}_{self.machine}"
        info = f"orlog-{self.version}.dist-info"
        metadata = f"Metadata-Version: 2.1\nName: orlog\nVersion: {self.version}\nSummary: {SUMMARY}\nDescription-Content-Type: text/markdown\n\n"
        files = {
            f"orlog-{self.version}.data/scripts/orlog": (self.binary, 0o755),
            f"{info}/METADATA": (metadata.encode() + self.readme, 0o644),
            f"{info}/WHEEL": (f"Wheel-Version: 1.0\nGenerator: dist.py\nRoot-Is-Purelib: false\nTag: {tag}\n".encode(), 0o644),
            f"{info}/LICENSE": (self.license, 0o644),
        }
        digest = lambda content: base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        record = [f"{name},sha256={digest(content)},{len(content)}" for name, (content, _) in files.items()]
        files[f"{info}/RECORD"] = ("\n".join([*record, f"{info}/RECORD,,\n"]).encode(), 0o644)
        path = self.out / f"orlog-{self.version}-{tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=self.level) as archive:
            for name, (content, mode) in files.items():
                entry = zipfile.ZipInfo(name)
                entry.external_attr, entry.compress_type = (0o100000 | mode) << 16, zipfile.ZIP_DEFLATED
                archive.writestr(entry, content)

    def npm_package(self):
        manifest = {
            "name": "orlog", "version": self.version, "description": SUMMARY, "license": "SEE LICENSE IN LICENSE",
            "bin": {"orlog": "bin/orlog"}, "files": ["bin"], "os": ["linux"], "cpu": [self.npm],
        }
        files = {
            "package/package.json": (json.dumps(manifest, indent=2).encode(), 0o644),
            "package/bin/orlog": (self.binary, 0o755),
            "package/LICENSE": (self.license, 0o644),
            "package/README.md": (self.readme, 0o644),
        }
        tar_gz(self.out / f"orlog-{self.version}.tgz", files, self)


def main():
    parser = argparse.ArgumentParser(description="Build the packages of a compiled binary")
    parser.add_argument("--binary", default="target/release/orlog")
    parser.add_argument("--sbom", help="bill of materials to add")
    parser.add_argument("--out", default="target/dist")
    parser.add_argument("--fast", action="store_true", help="compress less, for tests")
    options = parser.parse_args()
    shutil.rmtree(options.out, ignore_errors=True)
    Path(options.out).mkdir(parents=True)
    with tempfile.TemporaryDirectory() as directory:
        build = Build(options, Path(directory))
        for package in (build.archive, build.debian_package, build.wheel, build.npm_package):
            package()
    if options.sbom:
        shutil.copy(options.sbom, options.out)
    files = sorted(Path(options.out).iterdir())
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (Path(options.out) / "SHA256SUMS").write_text(sums)
    for file in files:
        print(f"{file.stat().st_size / 2**20:8.1f} MiB  {file}")


if __name__ == "__main__":
    main()
