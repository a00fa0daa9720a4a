//! Active definitions at the start of a node: those of its directory if it changed since its last
//! deployment; otherwise those of the last deployment from any source.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use orlog_actors::ProgramRegistry;
use orlog_effect::Catalog;
use orlog_model::{
    Change, DefinitionRef, DeployedDefinition, Deployment, Name, SagaName, TenantId, Timestamp,
};
use orlog_program::{Diagnostic, Program};
use orlog_store::{Reader, Writer};

use super::unreadable::UnreadableProgram;
use crate::definitions::{
    self, DefinitionErrors, DefinitionSet, LoadedDefinition, OwnedDefinitions, SourceFile,
    ValidatedDefinitions, compile_source, references,
};

/// User of the deployment of a changed directory.
const STARTUP_USER: &str = "node start";

/// Definitions of one owner, to be stored in every store.
pub(crate) struct InitialDefinitions {
    pub(crate) definitions: Vec<LoadedDefinition>,
    pub(crate) deployment: Option<Deployment>,
}

/// Determines the active definitions of all owners and stores them in every store, the first store
/// first. Their programs replace those of the registry.
///
/// # Errors
/// Fails if the shared definitions are invalid, or a store cannot be read or written.
pub(crate) fn activate(
    programs: &ProgramRegistry,
    definitions: &DefinitionSet,
    catalog: &Catalog,
    stores: &mut [(Writer, Reader)],
    now: Timestamp,
    runs_sagas: bool,
) -> anyhow::Result<()> {
    // A node that only executes effects loads no definition.
    if !runs_sagas {
        return Ok(());
    }

    let chosen = choose(
        definitions,
        catalog,
        stores.first().map(|(_, reader)| reader),
        now,
    )?;

    // Before anything is stored: a rejected start changes nothing.
    check_native(definitions, stores.iter().map(|(_, reader)| reader))?;
    definitions.activate(None, chosen.definitions, chosen.deployment);

    let readers: Vec<_> = stores.iter().map(|(_, reader)| reader.clone()).collect();
    follow_contexts(definitions, &readers)?;

    for (writer, reader) in stores {
        store_definitions(writer, reader, &definitions.of(None).into(), now)?;
        store_contexts(definitions, writer, reader, now)?;
    }

    // Only warnings, because a context must not prevent the start of the node.
    for problem in definitions.unmet_by(catalog) {
        tracing::warn!("{problem}");
    }

    let older = readers
        .first()
        .map(Reader::definitions)
        .transpose()?
        .unwrap_or_default();
    programs.replace(definitions.programs(&older));
    Ok(())
}

/// Activates the deployments of contexts that are newer in these stores. Returns them.
///
/// # Errors
/// Fails if a store cannot be read.
pub(crate) fn follow_contexts(
    definitions: &DefinitionSet,
    readers: &[Reader],
) -> Result<Vec<Deployment>, orlog_store::Error> {
    let mut newer = Vec::new();
    for reader in readers {
        for stored in reader.context_deployments()? {
            let context = stored.context.as_ref();
            if !stored.is_newer_than(definitions.of(context).deployment.as_deref()) {
                continue;
            }

            let mut loaded = Vec::new();
            for deployed in stored.active() {
                loaded.push(load_owned(deployed, readers, context)?);
            }

            // `OwnedDefinitions` has its definitions in this order.
            loaded.sort_by(|a, b| a.saga().cmp(b.saga()));
            definitions.activate(context, loaded, Some(stored.clone()));
            newer.push(stored);
        }
    }

    Ok(newer)
}

/// Loads a definition of a context from its stored source. If this release cannot load it, its
/// inputs become dead letters, and other tenants are not affected.
fn load_owned(
    deployed: &DeployedDefinition,
    readers: &[Reader],
    context: Option<&TenantId>,
) -> Result<LoadedDefinition, orlog_store::Error> {
    let mut source = None;
    for reader in readers {
        // Any store may have the source: a deployment that was interrupted has reached only some of
        // them.
        source = source.or(reader.definition(&deployed.program.hash)?);
    }

    let file = std::path::PathBuf::from(&deployed.file);
    let source: Option<Arc<[u8]>> = source.map(|(_, source)| source.into());
    let loaded = match &source {
        Some(bytes) => compile_source(&SourceFile {
            path: file.clone(),
            bytes: Arc::clone(bytes),
        }),
        None => Err(vec![lost(&deployed.file)]),
    };

    let loaded = loaded.unwrap_or_else(|problems| {
        let reason = problems
            .first()
            .map(ToString::to_string)
            .unwrap_or_default();
        let DefinitionRef { saga, version, .. } = &deployed.program;
        let name = context.map(TenantId::as_str);

        tracing::error!(context = name, %saga, version, reason, "definition of a context cannot be \
            loaded");

        let program = Arc::new(UnreadableProgram::new(deployed, reason));
        LoadedDefinition {
            program,
            compiled: None,
            source,
            file: Some(file),
            context: None,
        }
    });
    Ok(LoadedDefinition {
        context: context.cloned(),
        ..loaded
    })
}

/// Stores the definitions of each context in a store, one commit for each, and declares the indexes
/// of all definitions.
pub(crate) fn store_contexts(
    definitions: &DefinitionSet,
    writer: &mut Writer,
    reader: &Reader,
    now: Timestamp,
) -> anyhow::Result<()> {
    for (_, owned) in definitions
        .owners()
        .into_iter()
        .filter(|(context, _)| context.is_some())
    {
        store_definitions(writer, reader, &owned.into(), now)?;
    }
    Ok(declare_indexes(reader, definitions)?)
}

impl From<OwnedDefinitions> for InitialDefinitions {
    fn from(owned: OwnedDefinitions) -> Self {
        let deployment = owned
            .deployment
            .map(|deployment| Deployment::clone(&deployment));
        Self {
            definitions: owned.definitions.to_vec(),
            deployment,
        }
    }
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
    // Without a directory, only deployments change the definitions.
    let Some(dir) = definitions.dir() else {
        return from_record(definitions, catalog, store, current);
    };

    let files = definitions::read_dir(dir).map_err(DefinitionErrors)?;
    let digest = definitions::digest(&files);
    if current
        .as_ref()
        .is_some_and(|current| current.definitions_digest == Some(digest))
    {
        tracing::info!(dir = %dir.display(), "definitions directory unchanged");
        return from_record(definitions, catalog, store, current);
    }

    let checked = definitions
        .validate(None, &files, catalog)
        .map_err(DefinitionErrors)?;
    references::check(&checked.definitions, current.as_ref()).map_err(DefinitionErrors)?;

    let checked = ValidatedDefinitions {
        digest: Some(digest),
        ..checked
    };

    let deployment = DefinitionSet::record(
        current.as_ref(),
        &checked,
        now,
        STARTUP_USER,
        |hash: &[u8; 16]| {
            store.is_some_and(|store| {
                store
                    .definition(hash)
                    .is_ok_and(|definition| definition.is_some())
            })
        },
    );

    let number = deployment.number;
    tracing::info!(dir = %dir.display(), number, "definitions directory changed; deployed");

    Ok(InitialDefinitions {
        definitions: checked.definitions,
        deployment: Some(deployment),
    })
}

/// Rejects programs written in Rust that changed under a version that live instances use.
fn check_native<'r>(
    definitions: &DefinitionSet,
    readers: impl Iterator<Item = &'r Reader>,
) -> anyhow::Result<()> {
    let mut problems = Vec::new();
    for reader in readers {
        for (stored, record) in reader.definitions()? {
            if definitions
                .native()
                .any(|program| program.definition_ref().hash == stored.hash)
            {
                continue;
            }

            let changed = definitions.native().find(|program| {
                let reference = program.definition_ref();
                (&reference.saga, reference.version) == (&stored.saga, stored.version)
            });
            let Some(difference) = changed.and_then(|program| program.difference(&record)) else {
                continue;
            };

            // A program that no live instance uses may change freely, as during development.
            let live = reader.pin_counts(None)?.of(&stored.hash).live;
            if live > 0 {
                problems.push(changed_program(&stored, live, &difference));
            }
        }
    }

    if problems.is_empty() {
        Ok(())
    } else {
        Err(DefinitionErrors(problems).into())
    }
}

fn changed_program(stored: &DefinitionRef, live: u64, difference: &str) -> Diagnostic {
    let DefinitionRef { saga, version, .. } = stored;
    let message = format!(
        "version {version} changed, but {live} live instances use its previous content: \
         {difference}"
    );
    let suggestion = format!(
        "set version {}, and deploy the previous content as version {version} too",
        version + 1
    );

    let file = format!("saga {saga}");
    Diagnostic {
        file,
        line: 0,
        column: 0,
        path: String::new(),
        message,
        suggestion: Some(suggestion),
    }
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
        let stored = store
            .map(|store| store.definition(&deployed.program.hash))
            .transpose()?
            .flatten();
        // The record is activated completely or not at all.
        let Some((_, source)) = stored else {
            return Err(DefinitionErrors(vec![lost(&deployed.file)]).into());
        };

        files.push(SourceFile {
            path: (&deployed.file).into(),
            bytes: source.into(),
        });
    }

    if let Some(Deployment {
        number,
        at,
        deployed_by: by,
        ..
    }) = &current
    {
        tracing::info!(number, %at, by, definitions = files.len(), "definitions of the last \
            deployment are active");
    }

    let checked = definitions
        .validate(None, &files, catalog)
        .map_err(DefinitionErrors)?;
    Ok(InitialDefinitions {
        definitions: checked.definitions,
        deployment: current,
    })
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
    // One commit: a record without its sources could not be activated.
    let mut group = Vec::new();
    for definition in &chosen.definitions {
        let program = definition.program.definition_ref();
        let source = definition.source.as_ref().map(|source| source.to_vec());

        if let Some(source) = source.or_else(|| definition.program.record())
            && reader.definition(&program.hash)?.is_none()
        {
            group.push(Change::PutDefinition {
                program: program.clone(),
                source,
            });
        }
    }

    if let Some(deployment) = &chosen.deployment
        && reader.deployment_of(deployment.context.as_ref())?.as_ref() != Some(deployment)
    {
        group.push(Change::Deploy(Box::new(deployment.clone())));
    }

    if !group.is_empty() {
        let committed = writer.commit(&group, now);
        anyhow::Context::context(committed, "the definitions cannot be stored")?;
    }

    Ok(())
}

/// Declares the indexed variables of the active definitions of all owners and of the built-in sagas
/// in a store. It builds new indexes in the background.
///
/// # Errors
/// Fails if the store cannot be written.
pub(crate) fn declare_indexes(
    reader: &Reader,
    definitions: &DefinitionSet,
) -> Result<(), orlog_store::Error> {
    let mut indexed: BTreeMap<SagaName, BTreeSet<Name>> = BTreeMap::new();
    // Contexts can have definitions of one saga with different variables: a store indexes all of
    // them.
    let mut add = |program: &Arc<dyn Program>| {
        let names = program.manifest().indexed.iter().cloned();
        indexed
            .entry(program.definition_ref().saga.clone())
            .or_default()
            .extend(names);
    };
    for (_, owned) in definitions.owners() {
        owned
            .definitions
            .iter()
            .for_each(|definition| add(&definition.program));
    }

    orlog_sagas::programs().iter().for_each(&mut add);
    let indexed: Vec<_> = indexed
        .into_iter()
        .map(|(saga, names)| (saga, names.into_iter().collect()))
        .collect();

    reader.declare_indexes(&indexed)
}
