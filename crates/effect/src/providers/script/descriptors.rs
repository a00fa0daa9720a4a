//! Descriptors that this process inherited: a program that it starts must not receive them.
//!
//! The standard library opens files so that they are closed on exec. Descriptors of the parent
//! process and of libraries can lack this, so that a sandboxed job could use an open file or socket
//! without any right to it.

use std::io;

/// First descriptor after the standard input, output and error.
const FIRST: libc::c_uint = 3;

/// Marks all descriptors of this process, except the standard ones, to be closed when it executes a
/// program.
///
/// # Errors
/// If the kernel does not support the call (Linux 5.11 does).
#[expect(unsafe_code, reason = "rustix does not wrap this call")]
pub fn close_on_exec() -> io::Result<()> {
    // SAFETY: the call changes flags that only an exec reads. It accesses no memory, and all
    // descriptors stay open.
    let code = unsafe {
        libc::syscall(
            libc::SYS_close_range,
            FIRST,
            libc::c_uint::MAX,
            libc::CLOSE_RANGE_CLOEXEC,
        )
    };

    if code == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
