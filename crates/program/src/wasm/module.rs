//! Compiled module, and calls into a new instance of it under fuel and memory limits.

use wasmi::{
    CompilationMode, Config, EnforcedLimits, Engine, Error, ExternType, Instance, Memory, Module,
    Store, StoreLimits, StoreLimitsBuilder, TrapCode, Val, ValType,
};
use wasmparser::{Parser, Payload};

use super::limits::{
    MAX_CALL_DEPTH, MAX_LOCALS, MAX_MODULE_OUTPUT_BYTES, MAX_STACK_VALUES, MAX_TABLE_ELEMENTS,
};
use crate::budget::{self, FUEL_PER_UNIT};
use crate::diagnostic::RawDiagnostic;
use crate::limits::{MAX_FUEL, MAX_MEMORY_PAGES};

pub(super) const APPLY: &str = "apply";
pub(super) const MIGRATE: &str = "migrate";
pub(super) const MANIFEST: &str = "manifest";
const ALLOC: &str = "alloc";
const MEMORY: &str = "memory";
const PAGE_BYTES: usize = 64 * 1024;
/// Maximum number of imports in one report.
const MAX_LISTED: usize = 20;

/// Module that meets the contract of exports and imports.
#[derive(Debug)]
pub(super) struct WasmModule {
    engine: Engine,
    module: Module,
}

impl WasmModule {
    /// Validates and compiles the whole module, and checks its imports and exports.
    pub(super) fn compile(bytes: &[u8]) -> Result<Self, Vec<RawDiagnostic>> {
        let invalid =
            |reason: String| vec![RawDiagnostic::new("", format!("invalid module: {reason}"))];
        // A call clears all local variables at the cost of one instruction, so fuel does not bound
        // them.
        if let Some(reason) = too_many_locals(bytes) {
            return Err(invalid(reason));
        }

        let engine = Engine::new(&config());
        let module = Module::new(&engine, bytes).map_err(|error| invalid(error.to_string()))?;
        let guest = Self { engine, module };

        let findings = [imports(&guest.module), guest.missing()].concat();
        if findings.is_empty() {
            Ok(guest)
        } else {
            Err(findings)
        }
    }

    /// Returns whether the module exports a function of that name; the types of known functions are
    /// checked.
    pub(super) fn exports(&self, function: &str) -> bool {
        self.module.get_export(function).is_some()
    }

    /// Returns the contents of all custom sections of that name.
    pub(super) fn sections(&self, name: &str) -> Vec<&[u8]> {
        let named = self
            .module
            .custom_sections()
            .filter(|section| section.name() == name);
        named.map(|section| section.data()).collect()
    }

    /// Creates an instance without a call, to detect failures of the start function and the
    /// segments.
    pub(super) fn check_instantiation(&self) -> Result<(), String> {
        // A start function or a segment that fails would fail each transition.
        let mut call = ModuleCall::new(self);
        call.enter(self)
            .map(|_| ())
            .map_err(|reason| call.error_message("the module cannot be instantiated", &reason))
    }

    /// Passes the arguments, calls the function in a new instance and returns its output.
    ///
    /// # Errors
    /// A sentence with the function, the cause, and the used fuel and memory.
    pub(super) fn call(&self, function: &str, arguments: &[&[u8]]) -> Result<Vec<u8>, String> {
        let mut call = ModuleCall::new(self);
        let output = call
            .call(self, function, arguments)
            .map_err(|reason| call.error_message(function, &reason));
        call.spend_budget();
        output
    }

    fn missing(&self) -> Vec<RawDiagnostic> {
        const I: ValType = ValType::I32;
        let required = [(ALLOC, &[I][..], I), (APPLY, &[I; 4], ValType::I64)];
        let optional = [
            (MIGRATE, &[I; 4][..], ValType::I64),
            (MANIFEST, &[], ValType::I64),
        ];

        let optional = optional.into_iter().filter(|(name, ..)| self.exports(name));
        let functions = required.into_iter().chain(optional);

        let errors = functions
            .filter_map(|(name, params, result)| self.function_error(name, params, result));
        errors.chain(self.memory_error()).collect()
    }

    fn function_error(
        &self,
        name: &str,
        params: &[ValType],
        result: ValType,
    ) -> Option<RawDiagnostic> {
        let signature = format!("`{name}({}) -> {}`", list(params), type_name(result));
        let message = match self.module.get_export(name) {
            Some(ExternType::Func(found))
                if found.params() == params && found.results() == [result] =>
            {
                return None;
            }
            Some(ExternType::Func(found)) => {
                let results = list(found.results());
                format!(
                    "it must export {signature}, but its `{name}` is ({}) -> ({results})",
                    list(found.params())
                )
            }
            Some(_) => format!("it must export {signature}, but its `{name}` is not a function"),
            None => format!("it must export {signature}"),
        };

        Some(
            RawDiagnostic::new("exports", message)
                .with_suggestion("docs/wasm.md lists what a module exports"),
        )
    }

    fn memory_error(&self) -> Option<RawDiagnostic> {
        match self.module.get_export(MEMORY) {
            Some(ExternType::Memory(memory)) if memory.minimum() > MAX_MEMORY_PAGES as u64 => {
                let pages = memory.minimum();
                let message =
                    format!("its initial memory is {pages} pages, the limit is {MAX_MEMORY_PAGES}");
                Some(RawDiagnostic::new("exports", message))
            }
            Some(ExternType::Memory(_)) => None,
            Some(_) | None => Some(RawDiagnostic::new(
                "exports",
                format!("it must export its memory as `{MEMORY}`"),
            )),
        }
    }
}

/// Returns the configuration of the engine.
fn config() -> Config {
    let mut config = Config::default();

    // The same bytes and calls must produce the same results and use the same fuel: no threads, no
    // relaxed SIMD (neither is compiled in), canonical NaN, translation before the first call.
    config.consume_fuel(true);
    config.compilation_mode(CompilationMode::Eager);
    config.enforced_limits(EnforcedLimits::strict());
    config.wasm_multi_memory(false);
    config.set_max_recursion_depth(MAX_CALL_DEPTH);
    config.set_max_stack_height(MAX_STACK_VALUES);
    config
}

/// Returns a message for the first function that exceeds the limit of local variables.
fn too_many_locals(bytes: &[u8]) -> Option<String> {
    // The validation reports unreadable bytes.
    let payloads = Parser::new(0).parse_all(bytes).map_while(Result::ok);
    let bodies = payloads.filter_map(|payload| match payload {
        Payload::CodeSectionEntry(body) => Some(body),
        _ => None,
    });
    bodies.enumerate().find_map(|(index, body)| {
        let groups = body
            .get_locals_reader()
            .ok()?
            .into_iter()
            .map_while(Result::ok);
        let count: u64 = groups.map(|(count, _)| u64::from(count)).sum();
        (count > MAX_LOCALS).then(|| {
            format!("function {index} has {count} local variables, the limit is {MAX_LOCALS}")
        })
    })
}

fn imports(module: &Module) -> Vec<RawDiagnostic> {
    let mut findings = Vec::new();
    for import in module.imports().take(MAX_LISTED) {
        let module = import.module();
        let name = import.name();
        let message =
            format!("it imports `{module}.{name}`; a saga module must not import anything");
        let suggestion = match module {
            "wasi_snapshot_preview1" | "wasi_unstable" => {
                "build for wasm32-unknown-unknown, without WASI"
            }
            "env" if name == "abort" => {
                "compile AssemblyScript with `--use abort=` and your own function"
            }
            _ => "remove the code that needs it, or link it into the module",
        };
        findings.push(RawDiagnostic::new("imports", message).with_suggestion(suggestion));
    }
    findings
}

fn list(types: &[ValType]) -> String {
    types
        .iter()
        .map(|kind| type_name(*kind))
        .collect::<Vec<_>>()
        .join(", ")
}

fn type_name(kind: ValType) -> String {
    format!("{kind:?}").to_lowercase()
}

/// Calls in one instance of a module.
struct ModuleCall {
    store: Store<StoreLimits>,
    memory: Option<Memory>,
    /// Fuel of the call: the limit of a module, or the rest of the budget of the transition.
    fuel: u64,
    is_out_of_fuel: bool,
}

impl ModuleCall {
    fn new(guest: &WasmModule) -> Self {
        let limits = StoreLimitsBuilder::new()
            .memory_size(MAX_MEMORY_PAGES * PAGE_BYTES)
            .table_elements(MAX_TABLE_ELEMENTS)
            .trap_on_grow_failure(true);

        let mut store = Store::new(&guest.engine, limits.build());
        store.limiter(|limits| limits);

        // A module has its own limit, and also shares the budget of its transition.
        let of_transition = budget::remaining().map(|units| units.saturating_mul(FUEL_PER_UNIT));
        let fuel = of_transition.map_or(MAX_FUEL, |fuel| fuel.min(MAX_FUEL));
        store
            .set_fuel(fuel)
            .expect("the engine is configured to consume fuel");

        Self {
            store,
            memory: None,
            fuel,
            is_out_of_fuel: false,
        }
    }

    fn used_fuel(&self) -> u64 {
        self.fuel
            .saturating_sub(self.store.get_fuel().unwrap_or_default())
    }

    /// Spends the used fuel from the budget of the transition.
    fn spend_budget(&self) {
        budget::record(1 + self.used_fuel() / FUEL_PER_UNIT);
        // The limit of a module is an error of the module; less fuel is that of the transition.
        if self.is_out_of_fuel && self.fuel < MAX_FUEL {
            budget::exceed();
        }
    }

    /// Returns the reason of an error of the interpreter.
    fn failure(&mut self, error: &Error) -> String {
        self.is_out_of_fuel |= error.as_trap_code() == Some(TrapCode::OutOfFuel);
        reason(error)
    }

    fn enter(&mut self, guest: &WasmModule) -> Result<Instance, String> {
        let instance = Instance::new(&mut self.store, &guest.module, &[]);
        let instance = instance.map_err(|error| self.failure(&error))?;
        self.memory = instance.get_memory(&self.store, MEMORY);
        Ok(instance)
    }

    fn call(
        &mut self,
        guest: &WasmModule,
        function: &str,
        arguments: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let instance = self.enter(guest)?;

        let mut values = Vec::with_capacity(2 * arguments.len());
        for bytes in arguments {
            values.extend(self.write_argument(instance, bytes)?);
        }

        let packed = match self.invoke(instance, function, &values, Val::I64(0))? {
            Val::I64(packed) => packed.cast_unsigned(),
            other => return Err(format!("it returned {other:?}")),
        };

        self.read_output(packed >> 32, packed & u64::from(u32::MAX))
    }

    /// Copies bytes into memory that the module allocates.
    fn write_argument(&mut self, instance: Instance, bytes: &[u8]) -> Result<[Val; 2], String> {
        let length =
            i32::try_from(bytes.len()).map_err(|_| "its input is longer than 2 GiB".to_owned())?;
        // Some modules return an invalid pointer for `alloc(0)`, so it is never called.
        if length == 0 {
            return Ok([Val::I32(0), Val::I32(0)]);
        }

        let pointer = match self.invoke(instance, ALLOC, &[Val::I32(length)], Val::I32(0))? {
            Val::I32(pointer) => pointer,
            other => return Err(format!("its `{ALLOC}` returned {other:?}")),
        };

        let memory = self.memory.ok_or("it has no memory")?;
        let written = memory.write(&mut self.store, pointer.cast_unsigned() as usize, bytes);
        written.map_err(|_| {
            format!("its `{ALLOC}({length})` returned {pointer}, which is outside its memory")
        })?;
        Ok([Val::I32(pointer), Val::I32(length)])
    }

    fn invoke(
        &mut self,
        instance: Instance,
        name: &str,
        arguments: &[Val],
        result_type: Val,
    ) -> Result<Val, String> {
        let function = instance
            .get_func(&self.store, name)
            .ok_or_else(|| format!("it has no `{name}`"))?;

        let mut results = [result_type];
        let called = function.call(&mut self.store, arguments, &mut results);
        called.map_err(|error| self.failure(&error))?;
        let [result] = results;
        Ok(result)
    }

    fn read_output(&self, start: u64, length: u64) -> Result<Vec<u8>, String> {
        // The module chooses both numbers, so they are checked before the copy.
        if length > MAX_MODULE_OUTPUT_BYTES as u64 {
            return Err(format!(
                "its output is {length} bytes long, the limit is {MAX_MODULE_OUTPUT_BYTES}"
            ));
        }

        let memory = self.memory.ok_or("it has no memory")?;
        // The sum does not overflow: both numbers have 32 bits.
        let range = usize::try_from(start)
            .ok()
            .zip(usize::try_from(start + length).ok());
        let found = range.and_then(|(start, end)| memory.data(&self.store).get(start..end));
        found
            .map(<[u8]>::to_vec)
            .ok_or_else(|| format!("its output, {length} bytes at {start}, is outside its memory"))
    }

    /// Returns the error message: function, cause, used fuel and memory.
    fn error_message(&self, function: &str, reason: &str) -> String {
        let used = self.used_fuel();
        let pages = self.memory.map_or(0, |memory| memory.size(&self.store));
        format!(
            "{function}: {reason} (fuel: {used} of {MAX_FUEL}, memory: {pages} of \
             {MAX_MEMORY_PAGES} pages)"
        )
    }
}

fn reason(error: &Error) -> String {
    match error.as_trap_code() {
        Some(TrapCode::OutOfFuel) => "it ran out of fuel".to_owned(),
        Some(TrapCode::GrowthOperationLimited) => format!(
            "it requested more than {MAX_MEMORY_PAGES} pages of memory, or a table of more than \
             {MAX_TABLE_ELEMENTS} elements"
        ),
        Some(trap) => format!("it trapped: {trap}"),
        None => error.to_string(),
    }
}
