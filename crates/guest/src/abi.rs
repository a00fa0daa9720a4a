//! Pointers and lengths: transfer of bytes between the runner and the module.
#![expect(
    unsafe_code,
    reason = "the runner passes addresses in the memory of the module"
)]

/// Allocates memory for the runner to write to. It is never freed: each transition has its own
/// module instance.
#[must_use]
pub fn alloc(length: usize) -> *mut u8 {
    Vec::with_capacity(length).leak().as_mut_ptr()
}

/// Calls the function with both texts and returns its output as `address << 32 | length`.
pub fn call(
    function: fn(&[u8], &[u8]) -> Vec<u8>,
    first: *const u8,
    first_length: usize,
    second: *const u8,
    second_length: usize,
) -> u64 {
    // Leaked, because the runner reads it after the call. The memory ends with the module instance.
    let output = function(bytes(first, first_length), bytes(second, second_length)).leak();
    ((output.as_ptr() as u64) << 32) | output.len() as u64
}

fn bytes(address: *const u8, length: usize) -> &'static [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the runner wrote this many bytes to memory that `alloc` returned, and no code frees
    // or changes them.
    unsafe { std::slice::from_raw_parts(address, length) }
}
