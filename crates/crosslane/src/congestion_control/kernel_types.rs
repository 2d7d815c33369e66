//! Structures of the kernel, from its BTF (Linux `Documentation/bpf/btf.rst`).
//!
//! `aya-obj` reads BTF too, but publishes no members.

/// A structure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Structure {
    /// Id of the type.
    pub id: u32,
    /// Length in bytes.
    pub bytes: usize,
    /// Names and offsets in bytes of its members, in their order.
    pub members: Vec<(String, usize)>,
}

impl Structure {
    /// Number and offset in bytes of a member.
    pub fn member(&self, name: &str) -> Option<(usize, usize)> {
        let number = self.members.iter().position(|(member, _)| member == name)?;
        Some((number, self.members[number].1))
    }
}

const MAGIC: u16 = 0xeb9f;
/// Length of the part that all types have.
const TYPE_BYTES: usize = 12;
/// Length of a member of a structure.
const MEMBER_BYTES: usize = 12;
const KIND_STRUCT: u32 = 4;

/// The structures with these names; none if the bytes are no BTF or one is missing.
pub fn structures<const N: usize>(btf: &[u8], names: [&str; N]) -> Option<[Structure; N]> {
    let [type_start, type_length, string_start, string_length] = [8, 12, 16, 20].map(|at| word(btf, at));
    let header = word(btf, 4)? as usize;
    let magic = u16::from_le_bytes([*btf.first()?, *btf.get(1)?]);
    let part = |start: Option<u32>, length: Option<u32>| {
        let start = header.checked_add(start? as usize)?;
        btf.get(start..start.checked_add(length? as usize)?)
    };
    let (types, strings) = (part(type_start, type_length)?, part(string_start, string_length)?);
    if magic != MAGIC {
        return None;
    }
    let mut found = [const { None }; N];
    let (mut at, mut id) = (0, 1);
    while at < types.len() {
        let (name, info, bytes) = (word(types, at)?, word(types, at + 4)?, word(types, at + 8)?);
        let (kind, count) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        let details = at + TYPE_BYTES;
        at = details + details_bytes(kind, count)?;
        if kind == KIND_STRUCT
            && let Some(place) = names.iter().position(|wanted| string(strings, name) == Some(wanted))
        {
            let bit_fields = info >> 31 == 1;
            let members = (0..count).map(|number| {
                let member = details + number * MEMBER_BYTES;
                let bits = word(types, member + 8)?;
                let bits = if bit_fields { bits & 0x00ff_ffff } else { bits };
                Some((string(strings, word(types, member)?)?.to_owned(), bits as usize / 8))
            });
            let members = members.collect::<Option<_>>()?;
            found[place].get_or_insert(Structure { id, bytes: bytes as usize, members });
        }
        id += 1;
    }
    let found: Option<Vec<_>> = found.into_iter().collect();
    found?.try_into().ok()
}

/// Length of what follows the common part of a type.
fn details_bytes(kind: u32, count: usize) -> Option<usize> {
    match kind {
        2 | 7..=12 | 16 | 18 => Some(0),
        1 | 14 | 17 => Some(4),
        3 => Some(12),
        6 | 13 => Some(8 * count),
        KIND_STRUCT | 5 | 15 | 19 => Some(12 * count),
        _ => None,
    }
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn string(strings: &[u8], at: u32) -> Option<&str> {
    let rest = strings.get(at as usize..)?;
    std::str::from_utf8(rest.split(|&byte| byte == 0).next()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// BTF with an integer and a structure `pair` of two members.
    fn btf() -> Vec<u8> {
        let strings = b"\0int\0pair\0first\0second\0";
        let types: &[u32] = &[1, 1 << 24, 4, 32, 5, 4 << 24 | 2, 8, 10, 1, 0, 16, 1, 32];
        let mut bytes = 0xeb9f_u16.to_le_bytes().to_vec();
        bytes.extend([1, 0]);
        let length = types.len() as u32 * 4;
        [24, 0, length, length, strings.len() as u32].iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        types.iter().for_each(|word| bytes.extend(word.to_le_bytes()));
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn a_structure_has_its_id_length_and_members() {
        let [pair] = structures(&btf(), ["pair"]).unwrap();
        assert_eq!((pair.id, pair.bytes), (2, 8));
        assert_eq!(
            [pair.member("first"), pair.member("second"), pair.member("third")],
            [Some((0, 0)), Some((1, 4)), None]
        );
        assert_eq!(structures(&btf(), ["pair", "triple"]), None);
    }

    #[test]
    fn cut_or_changed_bytes_give_nothing_and_do_not_panic() {
        let whole = btf();
        for length in 0..whole.len() {
            assert_eq!(structures(&whole[..length], ["pair"]), None, "{length} bytes");
        }
        for at in 0..whole.len() {
            for byte in [0, 0x7f, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let _ = structures(&changed, ["pair"]);
            }
        }
    }
}
