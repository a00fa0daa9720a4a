//! Version check: a stored instance continues only under the graph that it started with, apart from
//! new names.

use crate::definition::Definition;
use crate::graph::Graph;

/// Returns whether instances of a stored graph can continue with a definition: the graphs are equal
/// after steps are renamed.
///
/// # Errors
/// The first difference, with its remedy.
pub(crate) fn check(stored: &Graph, definition: &Definition) -> Result<(), String> {
    // New names first, so that only real differences remain.
    let renamed = stored.clone().renamed(&definition.renamed);
    if *renamed.hash() == *definition.hash {
        return Ok(());
    }

    let difference = difference(&renamed, &definition.graph);
    Err(format!(
        "it started with another version of workflow \"{}\": {difference}; register that version \
        too, or map its names with `renamed`",
        stored.name
    ))
}

/// Returns the first difference between two versions of a workflow.
pub(crate) fn difference(stored: &Graph, current: &Graph) -> String {
    let find = |graph: &Graph, name: &str| graph.steps().find(|step| step.name == name).cloned();
    for step in stored.steps() {
        match find(current, &step.name) {
            None => return format!("step \"{}\" is missing now", step.name),
            Some(now) if now.signature != step.signature => {
                return format!(
                    "step \"{}\" was `{}` and is `{}`",
                    step.name, step.signature, now.signature
                );
            }
            Some(_) => {}
        }
    }

    match current
        .steps()
        .find(|step| find(stored, &step.name).is_none())
    {
        Some(step) => format!("step \"{}\" is new", step.name),
        None => "its steps have another order or nesting".to_owned(),
    }
}
