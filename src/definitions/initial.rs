//! Active definitions at the start of a node: those of its directory if it changed since its last
//! deployment; otherwise those of the last deployment from any source.

use std::sync::Arc;

use orlog_actors::ProgramRegistry;
use orlog_effect::Catalog;
use orlog_model::{Change, DefinitionRef, Deployment, Timestamp};
use orlog_program::{Diagnostic, Program};
use orlog_store::{Reader, Writer};

use crate::definitions::{
    self, DefinitionErrors, DefinitionSet, LoadedDefinition, SourceFile, ValidatedDefinitions, references,
};

/// User of the deployment of a changed directory.
const STARTUP_USER: &str = "node start";

/// Initial definitions, to be stored in every store.
pub(crate) struct InitialDefinitions {
    pub(crate) definitions: Vec<LoadedDefinition>,
    pub(crate) deployment: Option<Deployment>,
}

/// Determines the active definitions and stores them in every store, the first store first.
///
/// # Errors
/// Fails if the definitions are invalid, or a store cannot be read or written.
pub(crate) fn activate(
    definitions: &DefinitionSet,
    catalog: &Catalog,
    stores: &mut [(Writer, Reader)],
    (now, runs_sagas): (Timestamp, bool),
) -> anyhow::Result<ProgramRegistry> {
    if !runs_sagas {
        return Ok(ProgramRegistry::new(Vec::new()));
    }
    let chosen = choose(definitions, catalog, stores.first().map(|(_, reader)| reader), now)?;
    check_native(definitions, stores.iter().map(|(_, reader)| reader))?;
    stores.iter_mut().try_for_each(|(writer, reader)| store_definitions(writer, reader, &chosen, now))?;
    let older = stores.first().map(|(_, reader)| reader.definitions()).transpose()?.unwrap_or_default();
    let programs = ProgramRegistry::new(definitions.programs(&chosen.definitions, &older));
    definitions.activate(chosen.definitions, chosen.deployment);
    Ok(programs)
}

/// Selects the definitions from the directory and the store of the first shard. Blocks.
///
/// # Errors
/// Fails if the definitions are invalid or the store cannot be read.
fn choose(
    definitions: &DefinitionSet,
    catalog: &Catalog,
    store: Option<&Reader>,
    now: Timestamp,
) -> anyhow::Result<InitialDefinitions> {
    let current = store.map(Reader::deployment).transpose()?.flatten();
    let Some(dir) = definitions.dir() else {
        return from_record(definitions, catalog, store, current);
    };
    let files = definitions::read_dir(dir).map_err(DefinitionErrors)?;
    let digest = definitions::digest(&files);
    if current.as_ref().is_some_and(|current| current.definitions_digest == Some(digest)) {
        tracing::info!(dir = %dir.display(), "definitions directory unchanged");
        return from_record(definitions, catalog, store, current);
    }
    let checked = definitions.validate(&files, catalog).map_err(DefinitionErrors)?;
    check_references(&checked.definitions, current.as_ref())?;
    let checked = ValidatedDefinitions { digest: Some(digest), ..checked };
    let is_stored = |hash: &[u8; 16]| {
        store.is_some_and(|store| store.definition(hash).is_ok_and(|definition| definition.is_some()))
    };
    let deployment = DefinitionSet::record(current.as_ref(), &checked, (now, STARTUP_USER), is_stored);
    let number = deployment.number;
    tracing::info!(dir = %dir.display(), number, "definitions directory changed; deployed");
    Ok(InitialDefinitions { definitions: checked.definitions, deployment: Some(deployment) })
}

/// Rejects programs written in Rust that changed under a version that live instances use.
fn check_native<'r>(
    definitions: &DefinitionSet,
    readers: impl Iterator<Item = &'r Reader>,
) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for reader in readers {
        for (stored, record) in reader.definitions()? {
            if definitions.native().any(|program| program.definition_ref().hash == stored.hash) {
                continue;
            }
            let is_same_version = |program: &&Arc<dyn Program>| {
                let reference = program.definition_ref();
                (&reference.saga, reference.version) == (&stored.saga, stored.version)
            };
            let changed = definitions.native().find(is_same_version);
            let Some(difference) = changed.and_then(|program| program.difference(&record)) else { continue };
            let live = reader.pin_counts(None)?.of(&stored.hash).live;
            if live > 0 {
                problems.push(changed_program(&stored, live, &difference));
            }
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(DefinitionErrors(problems).into()) }
}

fn changed_program(stored: &DefinitionRef, live: u64, difference: &str) -> Diagnostic {
    let DefinitionRef { saga, version, .. } = stored;
    let message = format!(
        "version {version} changed, but {live} live instances use its previous content: {difference}"
    );
    let suggestion =
        format!("set version {}, and deploy the previous content as version {version} too", version + 1);
    let file = format!("saga {saga}");
    Diagnostic { file, line: 0, column: 0, path: String::new(), message, suggestion: Some(suggestion) }
}

/// Rejects definitions that contradict each other, unless the current deployment activated all of them.
pub(crate) fn check_references(
    definitions: &[LoadedDefinition],
    current: Option<&Deployment>,
) -> Result<(), DefinitionErrors> {
    let is_active = |hash: &[u8; 16]| {
        current.into_iter().flat_map(Deployment::active).any(|active| active.program.hash == *hash)
    };
    let found = references::contradictions(definitions, is_active);
    if found.is_empty() { Ok(()) } else { Err(DefinitionErrors(found)) }
}

/// Loads the definitions of a store's deployment record from its stored sources.
pub(crate) fn from_record(
    definitions: &DefinitionSet,
    catalog: &Catalog,
    store: Option<&Reader>,
    current: Option<Deployment>,
) -> anyhow::Result<InitialDefinitions> {
    let mut files = Vec::new();
    for deployed in current.iter().flat_map(Deployment::active) {
        let stored = store.map(|store| store.definition(&deployed.program.hash)).transpose()?.flatten();
        let Some((_, source)) = stored else {
            return Err(DefinitionErrors(vec![lost(&deployed.file)]).into());
        };
        files.push(SourceFile { path: (&deployed.file).into(), bytes: source.into() });
    }
    if let Some(Deployment { number, at, deployed_by: by, .. }) = &current {
        tracing::info!(number, %at, by, definitions = files.len(), "definitions of the last deployment are active");
    }
    let checked = definitions.validate(&files, catalog).map_err(DefinitionErrors)?;
    Ok(InitialDefinitions { definitions: checked.definitions, deployment: current })
}

fn lost(file: &str) -> Diagnostic {
    Diagnostic {
        file: file.to_owned(),
        line: 0,
        column: 0,
        path: String::new(),
        message: "it is active, but its source is missing in the store".to_owned(),
        suggestion: Some("change a file of the directory to deploy it again".to_owned()),
    }
}

/// Stores sources and record in one commit. Existing entries are not written again.
pub(crate) fn store_definitions(
    writer: &mut Writer,
    reader: &Reader,
    chosen: &InitialDefinitions,
    now: Timestamp,
) -> anyhow::Result<()> {
    let mut group = Vec::new();
    for definition in &chosen.definitions {
        let program = definition.program.definition_ref();
        let source = definition.source.as_ref().map(|source| source.to_vec());
        if let Some(source) = source.or_else(|| definition.program.record())
            && reader.definition(&program.hash)?.is_none()
        {
            group.push(Change::PutDefinition { program: program.clone(), source });
        }
    }
    if let Some(deployment) = &chosen.deployment
        && reader.deployment()?.as_ref() != Some(deployment)
    {
        group.push(Change::Deploy(Box::new(deployment.clone())));
    }
    if !group.is_empty() {
        let committed = writer.commit(&group, now);
        anyhow::Context::context(committed, "the definitions cannot be stored")?;
    }
    Ok(declare_indexes(reader, &chosen.definitions)?)
}

/// Declares the indexed variables of all active definitions in a store. It builds new indexes in the background.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn declare_indexes(
    reader: &Reader,
    active: &[LoadedDefinition],
) -> Result<(), orlog_store::Error> {
    let indexed = active.iter().map(|definition| {
        let program = &definition.program;
        (program.definition_ref().saga.clone(), program.manifest().indexed.clone())
    });
    reader.declare_indexes(&indexed.collect::<Vec<_>>())
}
