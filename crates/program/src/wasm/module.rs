//! A compiled module, and a call into a fresh instance of it under fuel and memory limits.

use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Error, ExternType, Instance, Memory, Module, Store,
    StoreLimits, StoreLimitsBuilder, TrapCode, Val, ValType,
};
use wasmparser::{Parser, Payload};

use crate::diagnostic::Finding;
use crate::limits::{
    MAX_ANSWER_BYTES, MAX_CALL_DEPTH, MAX_FUEL, MAX_LOCALS, MAX_MEMORY_PAGES, MAX_STACK_CELLS,
    MAX_TABLE_ELEMENTS,
};

pub(super) const APPLY: &str = "apply";
pub(super) const MIGRATE: &str = "migrate";
pub(super) const MANIFEST: &str = "manifest";
const ALLOC: &str = "alloc";
const MEMORY: &str = "memory";
const PAGE_BYTES: usize = 64 * 1024;
/// The most imports that one report lists.
const MAX_LISTED: usize = 20;

/// A module that fulfils the contract of exports and imports.
#[derive(Debug)]
pub(super) struct Guest {
    engine: Engine,
    module: Module,
}

impl Guest {
    /// Validates and compiles the whole module, and checks what it imports and exports.
    pub(super) fn compile(bytes: &[u8]) -> Result<Self, Vec<Finding>> {
        let invalid = |why: String| vec![Finding::new("", format!("the module is refused: {why}"))];
        if let Some(why) = too_many_locals(bytes) {
            return Err(invalid(why));
        }
        let engine = Engine::new(&config());
        let module = Module::new(&engine, bytes).map_err(|error| invalid(error.to_string()))?;
        let guest = Self { engine, module };
        let findings = [imports(&guest.module), guest.missing()].concat();
        if findings.is_empty() { Ok(guest) } else { Err(findings) }
    }

    /// Whether it exports a function of that name; the types of those known here are checked.
    pub(super) fn exports(&self, function: &str) -> bool {
        self.module.get_export(function).is_some()
    }

    /// The contents of all custom sections of that name.
    pub(super) fn sections(&self, name: &str) -> Vec<&[u8]> {
        let named = self.module.custom_sections().filter(|section| section.name() == name);
        named.map(|section| section.data()).collect()
    }

    /// Makes an instance and calls nothing in it: what its start function and its segments do wrong shows here.
    pub(super) fn rehearse(&self) -> Result<(), String> {
        let mut visit = Visit::new(self);
        visit.enter(self).map(|_| ()).map_err(|why| visit.lament("the module cannot be instantiated", &why))
    }

    /// Hands over the arguments, calls the function in a fresh instance and fetches its answer.
    ///
    /// # Errors
    /// A sentence that names the function, what went wrong, and the fuel and memory used.
    pub(super) fn call(&self, function: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut visit = Visit::new(self);
        visit.call(self, function, arguments).map_err(|why| visit.lament(function, &why))
    }

    fn missing(&self) -> Vec<Finding> {
        const I: ValType = ValType::I32;
        let required = [(ALLOC, &[I][..], I), (APPLY, &[I; 4], ValType::I64)];
        let optional = [(MIGRATE, &[I; 4][..], ValType::I64), (MANIFEST, &[], ValType::I64)];
        let optional = optional.into_iter().filter(|(name, ..)| self.exports(name));
        let functions = required.into_iter().chain(optional);
        let wrong = functions.filter_map(|(name, takes, gives)| self.wrong_function(name, takes, gives));
        wrong.chain(self.wrong_memory()).collect()
    }

    fn wrong_function(&self, name: &str, takes: &[ValType], gives: ValType) -> Option<Finding> {
        let signature = format!("`{name}({}) -> {}`", list(takes), word(gives));
        let message = match self.module.get_export(name) {
            Some(ExternType::Func(found)) if found.params() == takes && found.results() == [gives] => {
                return None;
            }
            Some(ExternType::Func(found)) => {
                let gives = list(found.results());
                format!(
                    "it must export {signature}, but its `{name}` is ({}) -> ({gives})",
                    list(found.params())
                )
            }
            Some(_) => format!("it must export {signature}, but its `{name}` is no function"),
            None => format!("it must export {signature}"),
        };
        Some(Finding::new("exports", message).suggest("docs/wasm.md lists what a module exports"))
    }

    fn wrong_memory(&self) -> Option<Finding> {
        match self.module.get_export(MEMORY) {
            Some(ExternType::Memory(memory)) if memory.minimum() > MAX_MEMORY_PAGES as u64 => {
                let pages = memory.minimum();
                let message =
                    format!("its memory begins with {pages} pages, the limit is {MAX_MEMORY_PAGES}");
                Some(Finding::new("exports", message))
            }
            Some(ExternType::Memory(_)) => None,
            Some(_) | None => {
                Some(Finding::new("exports", format!("it must export its memory as `{MEMORY}`")))
            }
        }
    }
}

/// The same bytes and the same calls lead to the same results and the same fuel: no threads, no relaxed SIMD (they are
/// not compiled in), one NaN, everything translated before the first call.
fn config() -> Config {
    let mut config = Config::default();
    config.consume_fuel(true);
    config.compilation_mode(CompilationMode::Eager);
    config.enforced_limits(EnforcedLimits::strict());
    config.wasm_multi_memory(false);
    config.set_max_recursion_depth(MAX_CALL_DEPTH);
    config.set_max_stack_height(MAX_STACK_CELLS);
    config
}

/// The first function with more local variables than one may have. What cannot be read is left to the validation.
fn too_many_locals(bytes: &[u8]) -> Option<String> {
    let payloads = Parser::new(0).parse_all(bytes).map_while(Result::ok);
    let bodies = payloads.filter_map(|payload| match payload {
        Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    bodies.enumerate().find_map(|(index, body)| {
        let groups = body.get_locals_reader().ok()?.into_iter().map_while(Result::ok);
        let count: u64 = groups.map(|(count, _)| u64::from(count)).sum();
        let why = || format!("function {index} has {count} local variables, the limit is {MAX_LOCALS}");
        (count > MAX_LOCALS).then(why)
    })
}

fn imports(module: &Module) -> Vec<Finding> {
    let finding = |import: wasmi::ImportType<'_>| {
        let (module, name) = (import.module(), import.name());
        let message = format!("it imports `{module}.{name}`; a saga's module may import nothing");
        let suggestion = match module {
            "wasi_snapshot_preview1" | "wasi_unstable" => "build for wasm32-unknown-unknown, without WASI",
            "env" if name == "abort" => "compile AssemblyScript with `--use abort=` and your own function",
            _ => "remove what needs it, or link it into the module",
        };
        Finding::new("imports", message).suggest(suggestion)
    };
    module.imports().take(MAX_LISTED).map(finding).collect()
}

fn list(types: &[ValType]) -> String {
    types.iter().map(|kind| word(*kind)).collect::<Vec<_>>().join(", ")
}

fn word(kind: ValType) -> String {
    format!("{kind:?}").to_lowercase()
}

/// One stay in one instance.
struct Visit {
    store: Store<StoreLimits>,
    memory: Option<Memory>,
}

impl Visit {
    fn new(guest: &Guest) -> Self {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MAX_MEMORY_PAGES * PAGE_BYTES)
            .table_elements(MAX_TABLE_ELEMENTS)
            .trap_on_grow_failure(true);
        let mut store = Store::new(&guest.engine, limits.build());
        store.limiter(|limits| limits);
        store.set_fuel(MAX_FUEL).expect("the engine is configured to consume fuel");
        Self { store, memory: None }
    }

    fn enter(&mut self, guest: &Guest) -> Result<Instance, String> {
        let instance = Instance::new(&mut self.store, &guest.module, &[]).map_err(|error| reason(&error))?;
        self.memory = instance.get_memory(&self.store, MEMORY);
        Ok(instance)
    }

    fn call(&mut self, guest: &Guest, function: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, String> {
        let instance = self.enter(guest)?;
        let mut values = Vec::with_capacity(2 * arguments.len());
        for bytes in arguments {
            values.extend(self.hand_over(instance, bytes)?);
        }
        let packed = match self.invoke(instance, function, &values, Val::I64(0))? {
            Val::I64(packed) => packed.cast_unsigned(),
            other => return Err(format!("it gave {other:?}")),
        };
        self.fetch(packed >> 32, packed & u64::from(u32::MAX))
    }

    /// Copies bytes into memory that the guest allocates. `alloc(0)` is never called: some guests answer it with a pointer
    /// to nowhere.
    fn hand_over(&mut self, instance: Instance, bytes: &[u8]) -> Result<[Val; 2], String> {
        let length = i32::try_from(bytes.len()).map_err(|_| "its input is longer than 2 GiB".to_owned())?;
        if length == 0 {
            return Ok([Val::I32(0), Val::I32(0)]);
        }
        let pointer = match self.invoke(instance, ALLOC, &[Val::I32(length)], Val::I32(0))? {
            Val::I32(pointer) => pointer,
            other => return Err(format!("its `{ALLOC}` gave {other:?}")),
        };
        let memory = self.memory.ok_or("it has no memory")?;
        let written = memory.write(&mut self.store, pointer.cast_unsigned() as usize, bytes);
        written
            .map_err(|_| format!("its `{ALLOC}({length})` gave {pointer}, which lies outside its memory"))?;
        Ok([Val::I32(pointer), Val::I32(length)])
    }

    fn invoke(
        &mut self,
        instance: Instance,
        name: &str,
        arguments: &[Val],
        gives: Val,
    ) -> Result<Val, String> {
        let function = instance.get_func(&self.store, name).ok_or_else(|| format!("it has no `{name}`"))?;
        let mut results = [gives];
        function.call(&mut self.store, arguments, &mut results).map_err(|error| reason(&error))?;
        let [result] = results;
        Ok(result)
    }

    fn fetch(&self, start: u64, length: u64) -> Result<Vec<u8>, String> {
        if length > MAX_ANSWER_BYTES as u64 {
            return Err(format!("its answer is {length} bytes long, the limit is {MAX_ANSWER_BYTES}"));
        }
        let memory = self.memory.ok_or("it has no memory")?;
        let range = usize::try_from(start).ok().zip(usize::try_from(start + length).ok());
        let found = range.and_then(|(start, end)| memory.data(&self.store).get(start..end));
        let outside = || format!("its answer, {length} bytes at {start}, lies outside its memory");
        found.map(<[u8]>::to_vec).ok_or_else(outside)
    }

    /// The sentence for people: who, what, and how much of what it was given it had used.
    fn lament(&self, function: &str, why: &str) -> String {
        let used = MAX_FUEL - self.store.get_fuel().unwrap_or(0).min(MAX_FUEL);
        let pages = self.memory.map_or(0, |memory| memory.size(&self.store));
        format!("{function}: {why} (fuel: {used} of {MAX_FUEL}, memory: {pages} of {MAX_MEMORY_PAGES} pages)")
    }
}

fn reason(error: &Error) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => "it ran out of fuel".to_owned(),
        Some(TrapCode::GrowthOperationLimited) => format!(
            "it asked for more than {MAX_MEMORY_PAGES} pages of memory, or for a table of more than \
             {MAX_TABLE_ELEMENTS} elements"
        ),
        Some(trap) => format!("it trapped: {trap}"),
        None => error.to_string(),
    }
}
