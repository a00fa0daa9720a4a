//! Pointers and lengths: how the runner hands bytes over, and how it gets them back.
#![expect(unsafe_code, reason = "the runner gives addresses in the memory of the module")]

/// Memory for the runner to write to. Nothing is freed: every transition has an instance of its own.
#[must_use]
pub fn alloc(length: usize) -> *mut u8 {
    Vec::with_capacity(length).leak().as_mut_ptr()
}

/// Calls it with both texts and gives its answer as `address << 32 | length`.
pub fn call(
    function: fn(&[u8], &[u8]) -> Vec<u8>,
    first: (*const u8, usize),
    second: (*const u8, usize),
) -> u64 {
    let answer = function(bytes(first), bytes(second)).leak();
    ((answer.as_ptr() as u64) << 32) | answer.len() as u64
}

fn bytes((address, length): (*const u8, usize)) -> &'static [u8] {
    if length == 0 {
        return &[];
    }
    // SAFETY: the runner wrote so many bytes to memory that `alloc` gave it, and nobody frees or changes them.
    unsafe { std::slice::from_raw_parts(address, length) }
}
