//! The public tests of CEL, from the npm package `@bufbuild/cel-spec`: fetched once, kept under `target/`, used only when
//! they are byte for byte those that were looked at.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha512};

const PACKAGE: &str = "@bufbuild/cel-spec@0.6.1";
const ADDRESS: &str = "https://registry.npmjs.org/@bufbuild/cel-spec/-/cel-spec-0.6.1.tgz";
const ARCHIVE: &str = "bufbuild-cel-spec-0.6.1.tgz";
/// The `integrity` that the registry states.
const SHA512: &str =
    "m0Ac9qA669yxxC0Hy45qGsUZemjImVfxPl6r9jLbkJviEvv3R9hSYyH2ItGRbDguekX6eId0cb62ulNBK97ezg==";
const TESTS: &str = "package/dist/cjs/testdata/conformance.js";

/// The text of the conformance tests.
///
/// # Errors
/// Why they cannot be had: no network, another content.
pub(super) fn tests() -> Result<String, String> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cel-spec");
    std::fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let archive = folder.join(ARCHIVE);
    if !is_the_one(&archive) {
        fetch(&folder, &archive)?;
    }
    if !is_the_one(&archive) {
        return Err(format!("{} is not the archive whose sha512 is pinned", archive.display()));
    }
    unpack(&folder, &archive)
}

fn is_the_one(archive: &Path) -> bool {
    std::fs::read(archive).is_ok_and(|bytes| STANDARD.encode(Sha512::digest(&bytes)) == SHA512)
}

/// By npm, which knows of mirrors; by curl where there is none.
fn fetch(folder: &Path, archive: &Path) -> Result<(), String> {
    let npm = Command::new("npm").args(["pack", PACKAGE]).current_dir(folder).output();
    if npm.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let curl = Command::new("curl").args(["-fsSL", "--max-time", "60", ADDRESS, "-o"]).arg(archive).output();
    match curl {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("neither npm nor curl: {error}")),
    }
}

fn unpack(folder: &Path, archive: &Path) -> Result<String, String> {
    let tar = Command::new("tar").arg("xzf").arg(archive).arg("-C").arg(folder).arg(TESTS).status();
    if !tar.is_ok_and(|status| status.success()) {
        return Err(format!("{} cannot be unpacked", archive.display()));
    }
    let path: PathBuf = folder.join(TESTS);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}
