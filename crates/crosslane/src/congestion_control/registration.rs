//! Registers, finds and removes the congestion control in the kernel.

use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use nix::errno::Errno;
use serde::Serialize;

use super::bpf::{self, StructOpsProgram};
use super::object::{CongestionControl, SHIPPED};
use super::{LIA, is_available};
use crate::error::{Error, Result};

const KERNEL_BTF: &str = "/sys/kernel/btf/vmlinux";
/// Bytes of the verifier's messages that are read.
const LOG_BYTES: usize = 1 << 20;
/// Linux `TCP_CONG_NON_RESTRICTED`: every user and namespace may select it.
const NON_RESTRICTED: u32 = 1;
/// Offset of `state` in Linux `bpf_struct_ops_common_value`, and its value while registered.
const STATE_OFFSET: usize = 4;
const STATE_IN_USE: u32 = 1;
/// The maps that are examined at most.
const MAX_MAPS: usize = 100_000;

/// Whether [`LIA`] is registered, and by what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registration {
    /// It is not.
    None,
    /// By a BPF map, as `crosslane cc load` does.
    Map {
        /// Id of the map, as `bpftool map` shows it.
        id: u32,
    },
    /// By something else: a BPF link or a kernel module.
    Other,
    /// It is, but only root sees by what.
    Unknown,
}

/// Whether it is registered.
///
/// # Errors
/// System errors.
pub fn status() -> Result<Registration> {
    if !is_available() {
        return Ok(Registration::None);
    }
    match find() {
        Ok(Some((id, _))) => Ok(Registration::Map { id }),
        Ok(None) => Ok(Registration::Other),
        Err(cause) if is_denied(&cause) => Ok(Registration::Unknown),
        Err(cause) => Err(Error::failure("listing the BPF maps", cause)),
    }
}

/// Registers it; if it is registered, changes nothing.
///
/// # Errors
/// What kernel, BTF, verifier or privileges refuse.
pub fn load() -> Result<Registration> {
    if is_available() {
        return status();
    }
    let btf = fs::read(KERNEL_BTF).map_err(|cause| {
        Error::failure(format!("reading {KERNEL_BTF}"), cause)
            .with_remedy("boot a kernel with CONFIG_DEBUG_INFO_BTF=y, and mount /sys")
    })?;
    register(&CongestionControl::new(SHIPPED, &btf)?)?;
    status()
}

/// Removes it; sockets that use it keep it until they close. If it is not registered, changes nothing.
///
/// # Errors
/// It was registered by something else, or privileges are missing.
pub fn unload() -> Result<()> {
    let attempt = format!("unloading {LIA}");
    if !is_available() {
        return Ok(());
    }
    let (_, map) = find().map_err(|cause| refused(&attempt, cause))?.ok_or_else(|| {
        let remedy = "detach the BPF link that holds it (`bpftool link`), or remove the kernel module";
        Error::failure(&attempt, "it was not loaded by `crosslane cc load`").with_remedy(remedy)
    })?;
    bpf::delete_value(&map).map_err(|cause| refused(&attempt, cause))
}

fn register(control: &CongestionControl) -> Result<()> {
    let attempt = format!("registering {LIA}");
    let refused = |cause| refused(&attempt, cause);
    let map = bpf::create_map(LIA, control.value_bytes, control.value_type).map_err(refused)?;
    let programs = load_programs(control)?;
    let mut value = vec![0; control.value_bytes];
    let mut put = |offset: usize, bytes: &[u8]| value[offset..offset + bytes.len()].copy_from_slice(bytes);
    for (member, program) in control.members.iter().zip(&programs) {
        put(member.offset, &(program.as_raw_fd() as u64).to_ne_bytes());
    }
    put(control.flags_offset, &NON_RESTRICTED.to_ne_bytes());
    put(control.name_offset, LIA.as_bytes());
    bpf::set_value(&map, &mut value).map_err(refused)
}

fn load_programs(control: &CongestionControl) -> Result<Vec<OwnedFd>> {
    let load = |member: &super::object::Member| {
        let program = StructOpsProgram {
            name: &member.name,
            instructions: &member.instructions,
            licence: &control.licence,
            type_id: control.operations_type,
            member: member.number as u32,
        };
        bpf::load_program(&program, &mut []).map_err(|cause| {
            if is_denied(&cause) {
                return refused(&format!("loading {}", member.name), cause);
            }
            let mut log = vec![0; LOG_BYTES];
            drop(bpf::load_program(&program, &mut log));
            rejected(&member.name, &log, &cause)
        })
    };
    control.members.iter().map(load).collect()
}

/// The verifier's last sentence before its statistics.
fn rejected(program: &str, log: &[u8], cause: &io::Error) -> Error {
    let text = String::from_utf8_lossy(log.split(|&byte| byte == 0).next().unwrap_or_default()).into_owned();
    let last = text.lines().rfind(|line| !line.trim().is_empty() && !line.starts_with("processed "));
    let reason = last.map_or_else(|| cause.to_string(), str::to_owned);
    Error::failure(format!("loading {program}"), format!("the kernel's verifier rejects it: {reason}"))
        .with_remedy("report this with the kernel's version: the program needs an adaptation")
}

/// The registered map of ours.
fn find() -> io::Result<Option<(u32, OwnedFd)>> {
    let mut id = 0;
    for _ in 0..MAX_MAPS {
        let Some(next) = bpf::next_map_id(id)? else { break };
        id = next;
        let map = match bpf::open_map(id) {
            Ok(map) => map,
            Err(cause) if cause.raw_os_error() == Some(Errno::ENOENT as i32) => continue,
            Err(cause) => return Err(cause),
        };
        let info = bpf::map_info(&map)?;
        if info.is_struct_ops && info.name == LIA && is_registered(&map, info.value_bytes)? {
            return Ok(Some((id, map)));
        }
    }
    Ok(None)
}

/// True if the map's value registers it, and not a link.
fn is_registered(map: &OwnedFd, value_bytes: usize) -> io::Result<bool> {
    let mut value = vec![0; value_bytes];
    bpf::read_value(map, &mut value)?;
    let state = value.get(STATE_OFFSET..STATE_OFFSET + 4).and_then(|bytes| bytes.try_into().ok());
    Ok(state.map(u32::from_ne_bytes) == Some(STATE_IN_USE))
}

fn is_denied(cause: &io::Error) -> bool {
    cause.raw_os_error().map(Errno::from_raw) == Some(Errno::EPERM)
}

fn refused(attempt: &str, cause: io::Error) -> Error {
    match cause.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EPERM) => {
            let remedy = "run it as root of the machine, outside of containers and user namespaces";
            Error::usage(attempt, "the kernel lets only root use BPF", remedy)
        }
        Some(Errno::ENOSYS) => {
            Error::failure(attempt, "this kernel has no BPF").with_remedy("boot a kernel with CONFIG_BPF_SYSCALL=y")
        }
        Some(Errno::EEXIST) => {
            Error::failure(attempt, "another congestion control has this name").with_remedy("see `crosslane cc status`")
        }
        _ => Error::failure(attempt, cause).with_remedy("see the kernel's log (`dmesg`)"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_verifier_s_last_sentence_is_in_the_error() {
        let log =
            b"0: R1=ctx()\n1: (85) call 99\nunknown func bpf_nonesuch#99\nprocessed 2 insns (limit 1000000)\n\0\0";
        let error = rejected("lia_cong_avoid", log, &io::Error::from_raw_os_error(22)).to_string();
        let expected =
            "while loading lia_cong_avoid: the kernel's verifier rejects it: unknown func bpf_nonesuch#99; report";
        assert!(error.starts_with(expected), "{error}");
        let error = rejected("lia_ssthresh", &[], &io::Error::from_raw_os_error(22)).to_string();
        assert!(error.contains("rejects it: Invalid argument"), "{error}");
    }

    #[test]
    fn a_refusal_names_the_remedy() {
        for (errno, remedy, code) in [
            (Errno::EPERM, "run it as root of the machine", 2),
            (Errno::ENOSYS, "CONFIG_BPF_SYSCALL=y", 1),
            (Errno::EEXIST, "crosslane cc status", 1),
            (Errno::ENOMEM, "dmesg", 1),
        ] {
            let error = refused("registering lia", errno.into());
            assert!(error.to_string().contains(remedy), "{error}");
            assert_eq!(error.exit_code(), code);
        }
    }
}
