//! Room to recurse: the parser and the interpreter of CEL take the stack of whoever calls them, much of it for each level.
//! Whoever calls may be a worker thread with little, so what is long or deep runs on a stack of its own.

/// Room for the longest chain of operators that is allowed, in a build without optimization four times over.
const STACK_BYTES: usize = 32 * 1024 * 1024;

/// Does it on a thread with room, and waits for it. Only what is touched of the stack is memory.
pub(super) fn with_room<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, work);
        thread
            .expect("a thread can be started")
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
