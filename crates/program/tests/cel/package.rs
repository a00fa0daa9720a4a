//! Public tests of CEL, from the npm package `@bufbuild/cel-spec`. The package is fetched once, stored
//! under `target/`, and used only if its bytes match the expected hash.

use std::path::{Path, PathBuf};
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha512};

const PACKAGE: &str = "@bufbuild/cel-spec@0.6.1";
const ADDRESS: &str = "https://registry.npmjs.org/@bufbuild/cel-spec/-/cel-spec-0.6.1.tgz";
const ARCHIVE: &str = "bufbuild-cel-spec-0.6.1.tgz";
/// The `integrity` value of the registry.
const SHA512: &str =
    "m0Ac9qA669yxxC0Hy45qGsUZemjImVfxPl6r9jLbkJviEvv3R9hSYyH2ItGRbDguekX6eId0cb62ulNBK97ezg==";
const TESTS: &str = "package/dist/cjs/testdata/conformance.js";

/// Returns the text of the conformance tests.
///
/// # Errors
/// The reason why the tests are unavailable: no network, or different content.
pub(super) fn tests() -> Result<String, String> {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cel-spec");
    std::fs::create_dir_all(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let archive = dir.join(ARCHIVE);
    if !is_expected(&archive) {
        fetch(&dir, &archive)?;
    }
    if !is_expected(&archive) {
        return Err(format!(
            "{} does not have the pinned sha512",
            archive.display()
        ));
    }
    unpack(&dir, &archive)
}

fn is_expected(archive: &Path) -> bool {
    std::fs::read(archive).is_ok_and(|bytes| STANDARD.encode(Sha512::digest(&bytes)) == SHA512)
}

/// Fetches the package with npm, which uses configured mirrors, or with curl if npm is missing.
fn fetch(dir: &Path, archive: &Path) -> Result<(), String> {
    let npm = Command::new("npm")
        .args(["pack", PACKAGE])
        .current_dir(dir)
        .output();
    if npm.is_ok_and(|output| output.status.success()) {
        return Ok(());
    }
    let curl = Command::new("curl")
        .args(["-fsSL", "--max-time", "60", ADDRESS, "-o"])
        .arg(archive)
        .output();
    match curl {
        Ok(output) if output.status.success() => Ok(()),
        Ok(output) => Err(String::from_utf8_lossy(&output.stderr).trim().to_owned()),
        Err(error) => Err(format!("neither npm nor curl: {error}")),
    }
}

fn unpack(dir: &Path, archive: &Path) -> Result<String, String> {
    let tar = Command::new("tar")
        .arg("xzf")
        .arg(archive)
        .arg("-C")
        .arg(dir)
        .arg(TESTS)
        .status();
    if !tar.is_ok_and(|status| status.success()) {
        return Err(format!("{} cannot be unpacked", archive.display()));
    }
    let path: PathBuf = dir.join(TESTS);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}
