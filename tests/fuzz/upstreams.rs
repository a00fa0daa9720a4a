//! Files of upstreams: every TOML example of the documentation, changed.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use orlog_effect::config::UpstreamSite;
use orlog_effect::providers::UpstreamKind;
use orlog_testkit::fuzz::{Random, mutate};
use serde::Deserialize;

/// Examples: the TOML blocks of the pages about providers and workers.
static EXAMPLES: LazyLock<Vec<String>> = LazyLock::new(|| {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs");
    let providers = std::fs::read_dir(docs.join("providers"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut pages: Vec<PathBuf> = providers.chain([docs.join("workers.md")]).collect();
    pages.sort();
    let texts = pages
        .iter()
        .map(|page| std::fs::read_to_string(page).unwrap());
    let blocks = texts.flat_map(|text| {
        let blocks = text.split("```toml\n").skip(1);
        blocks
            .filter_map(|block| Some(block.split_once("```")?.0.to_owned()))
            .collect::<Vec<_>>()
    });
    blocks.filter(|text| text.contains("kind = ")).collect()
});

#[derive(Deserialize)]
struct Header {
    #[serde(default)]
    kind: UpstreamKind,
}

pub(super) fn make(random: &mut Random) -> String {
    let examples: Vec<&str> = EXAMPLES.iter().map(String::as_str).collect();
    let (text, other) = (random.pick(&examples), random.pick(&examples));
    String::from_utf8_lossy(&mutate(random, text.as_bytes(), other.as_bytes())).into_owned()
}

/// Reads the file and creates the upstream. Returns whether both succeed.
pub(super) fn run(text: &str) -> bool {
    let Ok(header) = toml::from_str::<Header>(text) else {
        return false;
    };
    let file = toml::Deserializer::parse(text).and_then(|file| header.kind.read(file));
    let Ok(file) = file else { return false };
    match file.upstream(UpstreamSite::new("example").in_dir(Path::new("/nonexistent"))) {
        Ok(_) => true,
        Err(error) => {
            assert!(
                error.to_string().len() < 20_000 + 10 * text.len(),
                "{} bytes",
                error.to_string().len()
            );
            false
        }
    }
}
