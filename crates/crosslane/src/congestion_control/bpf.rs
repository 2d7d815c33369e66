//! The commands of bpf(2) that a struct_ops map needs.

use std::ffi::{CStr, c_char};
use std::io;
use std::mem::{size_of, zeroed};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use aya_obj::btf::{Btf, BtfType, Int, IntEncoding};
use aya_obj::generated::{bpf_attr, bpf_cmd, bpf_insn, bpf_map_info, bpf_map_type, bpf_prog_type};

/// Length of a name in the kernel, with its final zero.
const NAME_LENGTH: usize = 16;

/// A program for one member of a struct_ops type.
pub struct StructOpsProgram<'a> {
    /// Name, of which 15 bytes are kept.
    pub name: &'a str,
    /// Instructions, relocated.
    pub instructions: &'a [bpf_insn],
    /// Licence.
    pub licence: &'a CStr,
    /// Type id of the struct_ops type in the kernel's BTF.
    pub type_id: u32,
    /// Number of the member.
    pub member: u32,
}

/// Loads a program; `log` receives the verifier's messages, if it has a length.
pub fn load_program(program: &StructOpsProgram<'_>, log: &mut [u8]) -> io::Result<OwnedFd> {
    let mut attributes = no_attributes();
    // SAFETY: the union is all zeros, which every variant allows.
    let load = unsafe { &mut attributes.__bindgen_anon_3 };
    load.prog_type = bpf_prog_type::BPF_PROG_TYPE_STRUCT_OPS as u32;
    load.insn_cnt = program.instructions.len() as u32;
    load.insns = program.instructions.as_ptr() as u64;
    load.license = program.licence.as_ptr() as u64;
    load.prog_name = name(program.name);
    load.attach_btf_id = program.type_id;
    load.expected_attach_type = program.member;
    if !log.is_empty() {
        (load.log_level, load.log_size, load.log_buf) = (1, log.len() as u32, log.as_mut_ptr() as u64);
    }
    // SAFETY: instructions, licence and log outlive the call, with the lengths given.
    unsafe { open(bpf_cmd::BPF_PROG_LOAD, &mut attributes) }
}

/// Loads BTF. The kernel requires some of every struct_ops map, and reads nothing in it.
fn load_btf() -> io::Result<OwnedFd> {
    let mut btf = Btf::new();
    let name = btf.add_string("int");
    btf.add_type(BtfType::Int(Int::new(name, 4, IntEncoding::None, 0)));
    let bytes = btf.to_bytes();
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    let load = unsafe { &mut attributes.__bindgen_anon_7 };
    (load.btf, load.btf_size) = (bytes.as_ptr() as u64, bytes.len() as u32);
    // SAFETY: the bytes outlive the call, with the length given.
    unsafe { open(bpf_cmd::BPF_BTF_LOAD, &mut attributes) }
}

/// Creates a struct_ops map; `type_id` is its value's in the kernel's BTF.
pub fn create_map(map_name: &str, value_bytes: usize, type_id: u32) -> io::Result<OwnedFd> {
    let btf = load_btf()?;
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    let create = unsafe { &mut attributes.__bindgen_anon_1 };
    create.map_type = bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32;
    create.key_size = size_of::<u32>() as u32;
    create.value_size = value_bytes as u32;
    create.max_entries = 1;
    create.map_name = name(map_name);
    create.btf_fd = btf.as_raw_fd() as u32;
    create.btf_vmlinux_value_type_id = type_id;
    // SAFETY: the attributes hold no pointer.
    unsafe { open(bpf_cmd::BPF_MAP_CREATE, &mut attributes) }
}

/// Sets the map's one value, which registers it.
pub fn set_value(map: &OwnedFd, value: &mut [u8]) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_UPDATE_ELEM, map, value)
}

/// Reads the map's one value, of the length of `value`.
pub fn read_value(map: &OwnedFd, value: &mut [u8]) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_LOOKUP_ELEM, map, value)
}

/// Deletes the map's one value, which unregisters it.
pub fn delete_value(map: &OwnedFd) -> io::Result<()> {
    element(bpf_cmd::BPF_MAP_DELETE_ELEM, map, &mut [])
}

/// The id of the map that follows the map with `id`; none after the last.
pub fn next_map_id(id: u32) -> io::Result<Option<u32>> {
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    unsafe { &mut attributes.__bindgen_anon_6 }.__bindgen_anon_1.start_id = id;
    // SAFETY: the attributes hold no pointer.
    match unsafe { call(bpf_cmd::BPF_MAP_GET_NEXT_ID, &mut attributes) } {
        // SAFETY: the kernel has set the field.
        Ok(_) => Ok(Some(unsafe { attributes.__bindgen_anon_6 }.next_id)),
        Err(cause) if cause.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(cause) => Err(cause),
    }
}

/// Opens the map with `id`.
pub fn open_map(id: u32) -> io::Result<OwnedFd> {
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    unsafe { &mut attributes.__bindgen_anon_6 }.__bindgen_anon_1.map_id = id;
    // SAFETY: the attributes hold no pointer.
    unsafe { open(bpf_cmd::BPF_MAP_GET_FD_BY_ID, &mut attributes) }
}

/// What a map is.
pub struct MapInfo {
    /// True for a struct_ops map.
    pub is_struct_ops: bool,
    /// Name.
    pub name: String,
    /// Length of its value, in bytes.
    pub value_bytes: usize,
}

/// Asks what a map is.
pub fn map_info(map: &OwnedFd) -> io::Result<MapInfo> {
    // SAFETY: a structure of integers.
    let mut info: bpf_map_info = unsafe { zeroed() };
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    let query = unsafe { &mut attributes.info };
    query.bpf_fd = map.as_raw_fd() as u32;
    query.info_len = size_of::<bpf_map_info>() as u32;
    query.info = (&raw mut info) as u64;
    // SAFETY: `info` outlives the call, with the length given.
    unsafe { call(bpf_cmd::BPF_OBJ_GET_INFO_BY_FD, &mut attributes) }?;
    let name = info.name.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte as u8)).collect();
    let is_struct_ops = info.type_ == bpf_map_type::BPF_MAP_TYPE_STRUCT_OPS as u32;
    Ok(MapInfo { is_struct_ops, name, value_bytes: info.value_size as usize })
}

fn element(command: bpf_cmd, map: &OwnedFd, value: &mut [u8]) -> io::Result<()> {
    let key = 0u32;
    let mut attributes = no_attributes();
    // SAFETY: as in `load_program`.
    let element = unsafe { &mut attributes.__bindgen_anon_2 };
    element.map_fd = map.as_raw_fd() as u32;
    element.key = (&raw const key) as u64;
    if !value.is_empty() {
        element.__bindgen_anon_1.value = value.as_mut_ptr() as u64;
    }
    // SAFETY: key and value outlive the call; the value has the map's length.
    unsafe { call(command, &mut attributes) }.map(|_| ())
}

fn no_attributes() -> bpf_attr {
    // SAFETY: all variants consist of integers.
    unsafe { zeroed() }
}

fn name(text: &str) -> [c_char; NAME_LENGTH] {
    let mut name = [0; NAME_LENGTH];
    name.iter_mut().take(NAME_LENGTH - 1).zip(text.bytes()).for_each(|(to, byte)| *to = byte as c_char);
    name
}

/// # Safety
/// As [`call`]; the command returns a new descriptor.
unsafe fn open(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises.
    unsafe { call(command, attributes).map(|descriptor| OwnedFd::from_raw_fd(descriptor as i32)) }
}

/// # Safety
/// The pointers in the attributes are valid for the command.
unsafe fn call(command: bpf_cmd, attributes: &mut bpf_attr) -> io::Result<i64> {
    // SAFETY: as the caller promises.
    let result =
        unsafe { libc::syscall(libc::SYS_bpf, command as u32, (&raw mut *attributes), size_of::<bpf_attr>() as u32) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
