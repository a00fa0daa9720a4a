//! Mounts of a job: a new root that contains only the paths that the job may use.
//!
//! Everything is read-only except the directory of the job and the configured `write` paths.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{StatVfsMountFlags, statvfs};
use rustix::mount::{
    MountFlags, MountPropagationFlags, UnmountFlags, mount, mount_bind_recursive, mount_change,
    mount_remount, unmount,
};

use super::sandbox::DEVICES;
use super::spec::{ROOT, SandboxSpec};

/// Links in `/dev` that programs expect.
const LINKS: [(&str, &str); 4] = [
    ("/proc/self/fd", "dev/fd"),
    ("/proc/self/fd/0", "dev/stdin"),
    ("/proc/self/fd/1", "dev/stdout"),
    ("/proc/self/fd/2", "dev/stderr"),
];

/// New root that is being built.
struct NewRoot(PathBuf);

/// Replaces the root of this process, whose working directory is that of the job.
///
/// # Errors
/// If a mount is not permitted. The text names it.
pub(super) fn isolate(spec: &SandboxSpec) -> Result<(), String> {
    let at = |what: &'static str| move |error: io::Error| format!("{what}: {error}");
    let work = std::env::current_dir().map_err(at("the directory of the job"))?;

    // Mounts below must not become visible in the namespace of the node.
    mount_change(
        "/",
        MountPropagationFlags::PRIVATE | MountPropagationFlags::REC,
    )
    .map_err(|error| at("mount namespaces are not permitted")(error.into()))?;

    let base = work.parent().unwrap_or(&work).join(ROOT);
    let options = CString::new("mode=0755,size=1m").expect("the options have no NUL byte");
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", &base, "tmpfs", flags, options.as_c_str())
        .map_err(|error| at("cannot mount a root")(error.into()))?;

    let root = NewRoot(base);
    root.build(spec, &work)?;

    std::env::set_current_dir(&root.0).map_err(at("the new root"))?;
    // Both paths are the same: the old root is then mounted over the new one, and needs no
    // directory in it.
    rustix::process::pivot_root(".", ".")
        .map_err(|error| at("cannot change the root")(error.into()))?;
    unmount(".", UnmountFlags::DETACH)
        .map_err(|error| at("cannot remove the old root")(error.into()))?;

    // The directory of the job is at the same path in the new root. The process still has the one
    // of the old root.
    std::env::set_current_dir(&work).map_err(at("the directory of the job"))
}

impl NewRoot {
    fn build(&self, spec: &SandboxSpec, work: &Path) -> Result<(), String> {
        let named = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("cannot mount {path}: {error}")
        };

        for path in readable(spec) {
            self.bind(&path, true).map_err(named(&path))?;
        }
        for path in DEVICES.iter().map(Path::new) {
            self.bind(path, false).map_err(named(path))?;
        }
        for (target, link) in LINKS {
            std::os::unix::fs::symlink(target, self.0.join(link))
                .map_err(named(Path::new(link)))?;
        }

        // After the readable paths: a writable path can be below one of them, and is mounted over
        // it.
        for path in spec.write.iter().filter(|path| path.exists()) {
            self.bind(path, false).map_err(named(path))?;
        }

        self.bind(work, false).map_err(named(work))?;

        let proc = self.0.join("proc");
        std::fs::create_dir_all(&proc).map_err(named(Path::new("/proc")))?;
        // A new `/proc` belongs to the process namespace of the job, and shows no other process.
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        mount("proc", &proc, "proc", flags, None)
            .map_err(|error| named(Path::new("/proc"))(error.into()))
    }

    /// Mounts a path at the same place in the new root. A symbolic link is created again.
    fn bind(&self, path: &Path, is_read_only: bool) -> io::Result<()> {
        let target = self.within(path);
        if let Some(parent) = target.parent() {
            std::fs::create_dir_all(parent)?;
        }

        let kind = std::fs::symlink_metadata(path)?;
        if kind.is_symlink() {
            return match std::os::unix::fs::symlink(std::fs::read_link(path)?, &target) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
                linked => linked,
            };
        }

        // A mount needs a target of the same kind.
        if kind.is_dir() {
            std::fs::create_dir_all(&target)?;
        } else if !target.exists() {
            File::create(&target)?;
        }

        mount_bind_recursive(path, &target)?;
        if is_read_only {
            protect(&target)
        } else {
            Ok(())
        }
    }

    fn within(&self, path: &Path) -> PathBuf {
        let names = path
            .components()
            .filter(|part| matches!(part, Component::Normal(_)));
        names.fold(self.0.clone(), |target, name| target.join(name))
    }
}

/// Returns the readable paths that exist, without `/proc`, parents first; for a link, also its
/// target.
fn readable(spec: &SandboxSpec) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = spec
        .read
        .iter()
        .filter(|path| path.exists())
        .cloned()
        .collect();

    let targets: Vec<_> = paths
        .iter()
        .filter_map(|path| path.canonicalize().ok())
        .collect();
    paths.extend(targets);
    // The job has its own `/proc`, with only its own processes. The root would make everything
    // visible.
    paths.retain(|path| !path.starts_with("/proc") && path != Path::new("/"));
    paths.sort();
    paths.dedup();

    let all = paths.clone();
    // The mount of a directory contains what is below it.
    let is_below = |path: &PathBuf| {
        all.iter()
            .any(|other| path != other && path.starts_with(other) && !other.is_symlink())
    };
    paths.retain(|path| !is_below(path));
    paths
}

/// Makes a mount and all mounts below it read-only.
fn protect(target: &Path) -> io::Result<()> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts
        .lines()
        .filter_map(|line| Some(unescape(line.split(' ').nth(4)?)));

    for point in points.filter(|point| point.starts_with(target)) {
        // Opened, so that a mount over this one does not matter.
        let place = File::open(&point);
        let Ok(place) = place else { continue };

        let path = format!("/proc/self/fd/{}", place.as_raw_fd());
        let flags =
            MountFlags::BIND | MountFlags::RDONLY | MountFlags::NOSUID | existing_flags(&path)?;
        mount_remount(path, flags, c"")?;
    }
    Ok(())
}

/// Returns the flags of a mount, which a remount must keep.
fn existing_flags(path: &str) -> io::Result<MountFlags> {
    let found = statvfs(path)?.f_flag;
    let pairs = [
        (StatVfsMountFlags::NODEV, MountFlags::NODEV),
        (StatVfsMountFlags::NOEXEC, MountFlags::NOEXEC),
        (StatVfsMountFlags::NOATIME, MountFlags::NOATIME),
        (StatVfsMountFlags::NODIRATIME, MountFlags::NODIRATIME),
        (StatVfsMountFlags::RELATIME, MountFlags::RELATIME),
    ];

    let mut flags = MountFlags::empty();
    for (found_flag, flag) in pairs {
        if found.contains(found_flag) {
            flags |= flag;
        }
    }
    Ok(flags)
}

/// Returns a path of `mountinfo`, in which spaces, tabs, line feeds and backslashes are octal
/// numbers.
fn unescape(text: &str) -> PathBuf {
    let escapes = [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ];
    PathBuf::from(escapes.iter().fold(text.to_owned(), |text, (code, plain)| {
        text.replace(code, plain)
    }))
}
