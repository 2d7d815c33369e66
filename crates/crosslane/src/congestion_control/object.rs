//! The compiled program, relocated to the structures of a kernel.

use std::ffi::CString;

use aya_obj::Object;
use aya_obj::btf::{Btf, BtfKind};
use aya_obj::generated::bpf_insn;

use super::kernel_types::{Structure, structures};
use crate::error::{Error, Result};

/// `bpf/lia.bpf.o`, made by `make bpf`.
pub const SHIPPED: &[u8] = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/lia.bpf.o"));

/// Sections of the programs, each with the name of its member of `tcp_congestion_ops`.
const SECTIONS: &[u8] = b"struct_ops/";
/// What `aya-obj` reads and relocates in place of [`SECTIONS`], which it does not know.
const READ_AS: &[u8] = b".text.ops_/";
/// Programs have their members' names after this.
const PREFIX: &str = "lia_";

/// The program of one member of `tcp_congestion_ops`.
#[derive(Debug)]
pub struct Member {
    /// Name of the program.
    pub name: String,
    /// Number of the member.
    pub number: usize,
    /// Offset of the member in the map's value, in bytes.
    pub offset: usize,
    /// Instructions.
    pub instructions: Vec<bpf_insn>,
}

/// What the kernel needs to register a congestion control.
#[derive(Debug)]
pub struct CongestionControl {
    /// Licence of the programs.
    pub licence: CString,
    /// Type id of `tcp_congestion_ops`.
    pub operations_type: u32,
    /// Type id of the map's value.
    pub value_type: u32,
    /// Length of the map's value, in bytes.
    pub value_bytes: usize,
    /// Offset of the flags in the map's value, in bytes.
    pub flags_offset: usize,
    /// Offset of the name in the map's value, in bytes.
    pub name_offset: usize,
    /// The programs.
    pub members: Vec<Member>,
}

impl CongestionControl {
    /// Reads an object file and relocates it to the kernel with this BTF.
    ///
    /// # Errors
    /// The object is damaged, or the kernel lacks what it uses.
    pub fn new(object: &[u8], btf: &[u8]) -> Result<CongestionControl> {
        let mut object = parse(object)?;
        let [operations, value] = structures(btf, ["tcp_congestion_ops", "bpf_struct_ops_tcp_congestion_ops"])
            .ok_or_else(|| lacks("BPF congestion control", "CONFIG_BPF_JIT=y, and Linux 5.6 or newer"))?;
        relocate(&mut object, btf)?;
        let lacking = |_| lacks("a member of tcp_congestion_ops", "CONFIG_BPF_JIT=y, and Linux 5.6 or newer");
        let data = value.member("data").map(|(_, offset)| offset).ok_or(()).map_err(lacking)?;
        let place = |name: &str| operations.member(name).map(|(number, offset)| (number, data + offset)).ok_or(());
        let licence = object.license.clone();
        let members = object.functions.into_values().map(|function| {
            let member = function.name.strip_prefix(PREFIX).unwrap_or(&function.name);
            let (number, offset) = place(member).map_err(lacking)?;
            Ok(Member { name: function.name, number, offset, instructions: function.instructions })
        });
        Ok(CongestionControl {
            licence,
            operations_type: operations.id,
            value_type: value.id,
            value_bytes: value.bytes,
            flags_offset: place("flags").map_err(lacking)?.1,
            name_offset: place("name").map_err(lacking)?.1,
            members: members.collect::<Result<_>>()?,
        })
        .and_then(|control| fits(control, &operations, data))
    }
}

/// Checks the bounds that writing the map's value relies on.
fn fits(control: CongestionControl, operations: &Structure, data: usize) -> Result<CongestionControl> {
    match data + operations.bytes <= control.value_bytes && !control.members.is_empty() {
        true => Ok(control),
        false => Err(lacks("a usable BTF", "CONFIG_DEBUG_INFO_BTF=y")),
    }
}

fn parse(object: &[u8]) -> Result<Object> {
    let mut bytes = object.to_vec();
    let mut at = 0;
    while let Some(place) = bytes[at..].windows(SECTIONS.len()).position(|window| window == SECTIONS) {
        at += place;
        bytes[at..at + SECTIONS.len()].copy_from_slice(READ_AS);
    }
    Object::parse(&bytes).map_err(|cause| {
        Error::failure("reading the BPF object of this program", cause)
            .with_remedy("build it with `make bpf`, and crosslane again")
    })
}

fn relocate(object: &mut Object, btf: &[u8]) -> Result<()> {
    let attempt = "relocating LIA to this kernel";
    let kernel = Btf::parse(btf, object.endianness).map_err(|cause| {
        Error::failure(attempt, cause).with_remedy("use a kernel whose BTF (/sys/kernel/btf/vmlinux) is readable")
    })?;
    if kernel.id_by_type_name_kind("mptcp_subflow_context", BtfKind::Struct).is_err() {
        return Err(lacks("MPTCP", "CONFIG_MPTCP=y"));
    }
    let remedy = "report this with the kernel's version: the program needs an adaptation";
    object.relocate_btf(&kernel).map_err(|cause| Error::failure(attempt, cause).with_remedy(remedy))
}

fn lacks(what: &str, option: &str) -> Error {
    Error::failure("looking for what LIA needs", format!("this kernel has no {what}"))
        .with_remedy(format!("boot a kernel with {option}"))
}

#[cfg(test)]
mod tests;
