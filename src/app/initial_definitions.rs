//! Which definitions are in force when a node starts: those of its folder, where that was changed since it was deployed last;
//! otherwise those that were deployed last, from anywhere.

use orlog_effect::Catalog;
use orlog_model::{Change, Deployment, Timestamp};
use orlog_program::Problem;
use orlog_store::{Reader, Writer};

use crate::definitions::{self, Checked, Definition, Definitions, Refused, SourceFile};

/// Who deploys a folder that is found changed.
const STARTER: &str = "start of the node";

/// What was decided, to be kept in every store.
pub(super) struct Chosen {
    pub(super) definitions: Vec<Definition>,
    pub(super) deployment: Option<Deployment>,
}

/// Decides by the folder and by what the first shard's store has. Blocks.
///
/// # Errors
/// When the definitions are wrong, or the store cannot be read.
pub(super) fn choose(
    definitions: &Definitions,
    catalog: &Catalog,
    store: Option<&Reader>,
    now: Timestamp,
) -> anyhow::Result<Chosen> {
    let standing = store.map(Reader::deployment).transpose()?.flatten();
    let Some(folder) = definitions.folder() else { return recorded(definitions, catalog, store, standing) };
    let files = definitions::read_folder(folder).map_err(Refused)?;
    let digest = definitions::digest(&files);
    if standing.as_ref().is_some_and(|standing| standing.folder == Some(digest)) {
        tracing::info!(folder = %folder.display(), "the folder of definitions is as it was deployed last");
        return recorded(definitions, catalog, store, standing);
    }
    let list = definitions.check(&files, catalog).map_err(Refused)?;
    let checked = Checked { definitions: list, folder: Some(digest) };
    let is_kept = |hash: &[u8; 16]| {
        store.is_some_and(|store| store.definition(hash).is_ok_and(|definition| definition.is_some()))
    };
    let deployment = Definitions::record(standing.as_ref(), &checked, (now, STARTER), is_kept);
    let number = deployment.number;
    tracing::info!(folder = %folder.display(), number, "the folder of definitions is new or was changed: deployed");
    Ok(Chosen { definitions: checked.definitions, deployment: Some(deployment) })
}

/// What a store's record says, from the sources that it keeps.
///
/// # Errors
/// As [`choose`].
pub(super) fn recorded(
    definitions: &Definitions,
    catalog: &Catalog,
    store: Option<&Reader>,
    standing: Option<Deployment>,
) -> anyhow::Result<Chosen> {
    let mut files = Vec::new();
    for deployed in standing.iter().flat_map(Deployment::in_force) {
        let stored = store.map(|store| store.definition(&deployed.program.hash)).transpose()?.flatten();
        let Some((_, source)) = stored else {
            return Err(Refused(vec![lost(&deployed.file)]).into());
        };
        files.push(SourceFile { path: (&deployed.file).into(), bytes: source.into() });
    }
    if let Some(Deployment { number, at, by, .. }) = &standing {
        tracing::info!(number, %at, by, definitions = files.len(), "the definitions of the last deployment are in force");
    }
    let definitions = definitions.check(&files, catalog).map_err(Refused)?;
    Ok(Chosen { definitions, deployment: standing })
}

fn lost(file: &str) -> Problem {
    Problem {
        file: file.to_owned(),
        line: 0,
        column: 0,
        path: String::new(),
        message: "it is in force, but its source is not in the store".to_owned(),
        suggestion: Some("change a file of the folder, so that it is deployed again".to_owned()),
    }
}

/// Keeps sources and record in a store, in one commit. What is there already is not written again.
///
/// # Errors
/// When the store takes no commit.
pub(super) fn keep(
    writer: &mut Writer,
    reader: &Reader,
    chosen: &Chosen,
    now: Timestamp,
) -> anyhow::Result<()> {
    let mut group = Vec::new();
    for definition in &chosen.definitions {
        let program = definition.program.reference();
        if let Some(source) = &definition.source
            && reader.definition(&program.hash)?.is_none()
        {
            group.push(Change::PutDefinition { program: program.clone(), source: source.to_vec() });
        }
    }
    if let Some(deployment) = &chosen.deployment
        && reader.deployment()?.as_ref() != Some(deployment)
    {
        group.push(Change::Deploy(Box::new(deployment.clone())));
    }
    if !group.is_empty() {
        let kept = writer.commit(&group, now);
        anyhow::Context::context(kept, "the definitions cannot be kept")?;
    }
    Ok(())
}
