//! A control group in a condition of a class.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::Deserialize;

/// Where the hierarchy of version 2 is, alone or beside those of version 1.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// File that every control group of version 2 has.
const MARKER: &str = "cgroup.controllers";
/// Maximum number of groups that are looked at for one connection.
const MAX_GROUPS: usize = 1024;

/// A control group of version 2, by its path from the root of the hierarchy, with all below it.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
pub struct Cgroup(pub String);

impl TryFrom<String> for Cgroup {
    type Error = String;

    fn try_from(path: String) -> Result<Cgroup, String> {
        let parts = path.strip_prefix('/').map(|rest| rest.split('/').collect::<Vec<_>>());
        let is_part = |part: &&str| !part.is_empty() && *part != "." && *part != "..";
        match parts {
            Some(parts) if parts.iter().all(is_part) => Ok(Cgroup(path)),
            _ => Err(format!(
                "`cgroup` is {path:?}, which is no path of a control group; write it as \"/system.slice/telemetry.service\""
            )),
        }
    }
}

impl Cgroup {
    /// Whether every group of the other is one of this.
    pub fn contains_group(&self, other: &Cgroup) -> bool {
        other.0.strip_prefix(&self.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// Whether a group with this id is this one, or below it. A group that does not exist contains none.
    pub fn contains(&self, id: u64) -> bool {
        let Some(root) = root() else { return false };
        let mut folders = vec![root.join(&self.0[1..])];
        let mut looked_at = 0;
        while let Some(folder) = folders.pop() {
            looked_at += 1;
            if fs::metadata(&folder).is_ok_and(|found| found.ino() == id) {
                return true;
            }
            let room = MAX_GROUPS.saturating_sub(looked_at + folders.len());
            let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
            let below = entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            folders.extend(below.take(room).map(|entry| entry.path()));
        }
        false
    }

    /// Its folder; `None`: there is no such group now.
    pub fn folder(&self) -> Option<PathBuf> {
        Some(root()?.join(&self.0[1..])).filter(|folder| folder.join(MARKER).exists())
    }
}

/// The root of the hierarchy.
fn root() -> Option<&'static Path> {
    ROOTS.into_iter().map(Path::new).find(|root| root.join(MARKER).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(path: &str) -> Result<Cgroup, String> {
        path.to_owned().try_into()
    }

    #[test]
    fn a_path_starts_at_the_root_and_goes_down() {
        assert!(group("/system.slice/a.service").is_ok());
        for wrong in ["", "/", "a", "/a/../b", "/a//b", "/a/"] {
            assert!(group(wrong).unwrap_err().contains("which is no path"), "{wrong}");
        }
    }

    #[test]
    fn a_group_contains_those_below_it() {
        let [parent, child, other] = ["/a", "/a/b", "/ab"].map(|path| group(path).unwrap());
        assert!(parent.contains_group(&child) && parent.contains_group(&parent));
        assert!(!child.contains_group(&parent) && !parent.contains_group(&other));
        assert!(!group("/no-such-group").unwrap().contains(1));
    }
}
