//! A filter of system calls (seccomp(2)) that holds each `socket` call for TCP until a supervisor answers it.
//!
//! It is a program of classic BPF over `struct seccomp_data`. The arguments of `socket` are values, not pointers, so
//! what the supervisor reads is what the kernel executes.

use std::io;
use std::mem::offset_of;
use std::os::fd::{FromRawFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::prctl;

/// `AUDIT_ARCH_*` (linux/audit.h) of this program. System calls of other architectures, as of 32-bit programs, pass.
const ARCHITECTURE: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else if cfg!(target_arch = "riscv64") {
    Some(0xc000_00f3)
} else {
    None
};
/// The bits of a socket's type without `SOCK_CLOEXEC` and `SOCK_NONBLOCK` (linux/net.h, `SOCK_TYPE_MASK`).
const TYPE_MASK: u32 = 0xf;

/// Sets the filter for this process and all that it becomes or starts. Returns the descriptor that receives the calls.
///
/// A process without CAP_SYS_ADMIN gives up privileges by setuid programs (`no_new_privs`), as the kernel requires.
///
/// # Errors
/// The kernel refuses it: EBUSY if there is such a filter already, EINVAL or ENOSYS if it is too old.
pub fn set() -> io::Result<OwnedFd> {
    let architecture = ARCHITECTURE.ok_or(io::ErrorKind::Unsupported)?;
    match listen(architecture) {
        Err(Errno::EACCES) => {
            prctl::set_no_new_privs()?;
            Ok(listen(architecture)?)
        }
        other => Ok(other?),
    }
}

fn listen(architecture: u32) -> Result<OwnedFd, Errno> {
    let mut instructions = instructions(architecture);
    let program = libc::sock_fprog { len: instructions.len() as u16, filter: instructions.as_mut_ptr() };
    // SAFETY: the instructions outlive the call, with the length given.
    let result = unsafe {
        let flags = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER;
        libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program)
    };
    let descriptor = Errno::result(result)?;
    // SAFETY: the kernel has made this descriptor for us.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor as i32) })
}

/// Holds `socket(AF_INET or AF_INET6, SOCK_STREAM, 0 or IPPROTO_TCP)`; all other calls pass.
fn instructions(architecture: u32) -> [libc::sock_filter; 15] {
    let argument = |number: usize| load(offset_of!(libc::seccomp_data, args) + number * size_of::<u64>() + LOW_HALF);
    let pass = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    [
        load(offset_of!(libc::seccomp_data, arch)),
        jump(architecture, 0, 12),
        load(offset_of!(libc::seccomp_data, nr)),
        jump(libc::SYS_socket as u32, 0, 10),
        argument(0),
        jump(libc::AF_INET as u32, 1, 0),
        jump(libc::AF_INET6 as u32, 0, 7),
        argument(1),
        pass(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, TYPE_MASK),
        jump(libc::SOCK_STREAM as u32, 0, 4),
        argument(2),
        jump(0, 1, 0),
        jump(libc::IPPROTO_TCP as u32, 0, 1),
        pass(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_USER_NOTIF),
        pass(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ]
}

/// Offset of the low half of a 64-bit argument.
const LOW_HALF: usize = if cfg!(target_endian = "big") { 4 } else { 0 };

/// Loads a 32-bit word of the system call's data.
fn load(offset: usize) -> libc::sock_filter {
    let code = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    libc::sock_filter { code, jt: 0, jf: 0, k: offset as u32 }
}

/// Skips `equal` instructions if the loaded word is `k`, otherwise `other`.
fn jump(k: u32, equal: u8, other: u8) -> libc::sock_filter {
    let code = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    libc::sock_filter { code, jt: equal, jf: other, k }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the filter returns for a call.
    fn run(architecture: u32, number: i64, arguments: [u64; 3]) -> u32 {
        let mut data = [0_u8; size_of::<libc::seccomp_data>()];
        data[..4].copy_from_slice(&(number as u32).to_ne_bytes());
        data[4..8].copy_from_slice(&architecture.to_ne_bytes());
        for (place, argument) in arguments.into_iter().enumerate() {
            data[16 + 8 * place..24 + 8 * place].copy_from_slice(&argument.to_ne_bytes());
        }
        let instructions = instructions(ARCHITECTURE.unwrap());
        let (mut next, mut word) = (0, 0);
        loop {
            let instruction = instructions[next];
            next += 1;
            match u32::from(instruction.code) & 7 {
                libc::BPF_LD => {
                    let from = instruction.k as usize;
                    word = u32::from_ne_bytes(data[from..from + 4].try_into().unwrap());
                }
                libc::BPF_ALU => word &= instruction.k,
                libc::BPF_JMP if word == instruction.k => next += usize::from(instruction.jt),
                libc::BPF_JMP => next += usize::from(instruction.jf),
                _ => return instruction.k,
            }
        }
    }

    #[test]
    fn only_socket_calls_for_tcp_are_held() {
        let [v4, v6, unix] = [libc::AF_INET, libc::AF_INET6, libc::AF_UNIX].map(|family| family as u64);
        let [stream, datagram] = [libc::SOCK_STREAM, libc::SOCK_DGRAM].map(|kind| kind as u64);
        let flags = (libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK) as u64;
        let [tcp, mptcp, sctp] = [libc::IPPROTO_TCP, libc::IPPROTO_MPTCP, libc::IPPROTO_SCTP].map(|one| one as u64);
        let own = ARCHITECTURE.unwrap();
        let is_held = |architecture, number, arguments| {
            let result = run(architecture, number, arguments);
            assert!([libc::SECCOMP_RET_ALLOW, libc::SECCOMP_RET_USER_NOTIF].contains(&result));
            result == libc::SECCOMP_RET_USER_NOTIF
        };
        for family in [v4, v6] {
            for kind in [stream, stream | flags] {
                for protocol in [0, tcp] {
                    assert!(is_held(own, libc::SYS_socket, [family, kind, protocol]));
                    assert!(!is_held(own + 1, libc::SYS_socket, [family, kind, protocol]), "another architecture");
                    assert!(!is_held(own, libc::SYS_connect, [family, kind, protocol]));
                }
                assert!(!is_held(own, libc::SYS_socket, [family, kind, mptcp]), "the supervisor's");
                assert!(!is_held(own, libc::SYS_socket, [family, kind, sctp]));
            }
            assert!(!is_held(own, libc::SYS_socket, [family, datagram, 0]));
        }
        assert!(!is_held(own, libc::SYS_socket, [unix, stream, 0]));
    }
}
