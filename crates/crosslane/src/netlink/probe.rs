//! Checks that this kernel and this network namespace have what the agent needs.

use std::fs;
use std::io;
use std::path::Path;

use nix::errno::Errno;

use super::path_manager;
use super::socket::OpenError;

/// Whether this is Linux of that version, or a later one.
pub fn is_linux(major: u32, minor: u32) -> bool {
    let Ok(machine) = nix::sys::utsname::uname() else { return false };
    let release = machine.release().to_str().unwrap_or_default();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse().ok());
    (numbers.next(), numbers.next()) >= (Some(major), Some(minor))
}

/// A missing requirement of the user-space path manager, with the remedy.
#[derive(Debug, thiserror::Error)]
pub enum ProbeError {
    /// The kernel has no MPTCP.
    #[error(
        "while looking for MPTCP: this kernel has no net.mptcp.enabled; boot one with CONFIG_MPTCP=y (Linux 5.19 or newer)"
    )]
    NoMptcp,
    /// MPTCP is disabled.
    #[error("while looking for MPTCP: it is disabled in this network namespace; run `sysctl -w net.mptcp.enabled=1`")]
    Disabled,
    /// The kernel has MPTCP, but no choice of path manager.
    #[error(
        "while looking for the user-space path manager: this kernel has neither net.mptcp.path_manager nor net.mptcp.pm_type; boot Linux 5.19 or newer"
    )]
    NoChoice,
    /// The kernel does not offer the user-space path manager.
    #[error("while looking for the user-space path manager: this kernel offers only `{0}`; boot one with it")]
    NotOffered(String),
    /// Access to the path manager's events is denied.
    #[error(
        "while subscribing to MPTCP events: not permitted; run as root, with CAP_NET_ADMIN, or in a separate user namespace (`unshare -rn`)"
    )]
    NotPermitted,
    /// Netlink failed.
    #[error(transparent)]
    Netlink(OpenError),
    /// A setting cannot be read or written.
    #[error(
        "while {attempt} {setting}: {cause}; check that /proc is mounted read-write and that you have CAP_NET_ADMIN here"
    )]
    Setting {
        /// `reading` or `writing`.
        attempt: &'static str,
        /// Name of the setting.
        setting: &'static str,
        /// The system's error.
        #[source]
        cause: io::Error,
    },
}

/// The path manager of a connection, which opens and closes its subflows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathManager {
    /// The kernel, from its endpoints.
    Kernel,
    /// A program, by commands.
    UserSpace,
}

const ENABLED: &str = "net/mptcp/enabled";
const PATH_MANAGER: &str = "net/mptcp/path_manager";
const OFFERED: &str = "net/mptcp/available_path_managers";
/// The setting before Linux 6.15, a number; newer kernels keep it up to date.
const PM_TYPE: &str = "net/mptcp/pm_type";

/// Checks that this program can manage connections of this thread's network
/// namespace. Changes nothing; does not check which path manager is
/// selected at present ([`select_path_manager`]).
pub fn probe() -> Result<(), ProbeError> {
    probe_settings(Path::new("/proc/sys"))?;
    match path_manager::events() {
        Ok(_) => Ok(()),
        Err(OpenError::Socket(cause)) if cause.raw_os_error() == Some(Errno::EPERM as i32) => {
            Err(ProbeError::NotPermitted)
        }
        Err(cause) => Err(ProbeError::Netlink(cause)),
    }
}

/// Selects the path manager of connections that begin from now on in this
/// thread's network namespace; present ones keep theirs.
pub fn select_path_manager(choice: PathManager) -> Result<(), ProbeError> {
    let root = Path::new("/proc/sys");
    let (setting, value) = match (root.join(PATH_MANAGER).exists(), choice) {
        (true, PathManager::Kernel) => (PATH_MANAGER, "kernel"),
        (true, PathManager::UserSpace) => (PATH_MANAGER, "userspace"),
        (false, PathManager::Kernel) => (PM_TYPE, "0"),
        (false, PathManager::UserSpace) => (PM_TYPE, "1"),
    };
    fs::write(root.join(setting), value).map_err(|cause| ProbeError::Setting { attempt: "writing", setting, cause })
}

/// The setting, with its value, that selects the user-space path manager on this kernel.
pub fn user_space_setting() -> &'static str {
    match Path::new("/proc/sys").join(PATH_MANAGER).exists() {
        true => "net.mptcp.path_manager=userspace",
        false => "net.mptcp.pm_type=1",
    }
}

/// The path manager of connections that begin now in this thread's network
/// namespace.
///
/// # Errors
/// The setting does not exist or cannot be read.
pub fn selected_path_manager() -> Result<PathManager, ProbeError> {
    let root = Path::new("/proc/sys");
    let name = read(root, PATH_MANAGER)?;
    match name.or(read(root, PM_TYPE)?).as_deref() {
        Some("userspace" | "1") => Ok(PathManager::UserSpace),
        Some(_) => Ok(PathManager::Kernel),
        None => Err(ProbeError::NoChoice),
    }
}

fn probe_settings(root: &Path) -> Result<(), ProbeError> {
    match read(root, ENABLED)?.as_deref() {
        None => return Err(ProbeError::NoMptcp),
        Some("0") => return Err(ProbeError::Disabled),
        Some(_) => {}
    }
    let by_name = read(root, PATH_MANAGER)?.is_some();
    if !by_name && read(root, PM_TYPE)?.is_none() {
        return Err(ProbeError::NoChoice);
    }
    match read(root, OFFERED)? {
        Some(offered) if !offered.split_whitespace().any(|name| name == "userspace") => {
            Err(ProbeError::NotOffered(offered))
        }
        _ => Ok(()),
    }
}

/// A setting; `None` if this kernel lacks it.
fn read(root: &Path, setting: &'static str) -> Result<Option<String>, ProbeError> {
    match fs::read_to_string(root.join(setting)) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(cause) if cause.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(cause) => Err(ProbeError::Setting { attempt: "reading", setting, cause }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(settings: &[(&str, &str)]) -> String {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("net/mptcp")).unwrap();
        for (name, value) in settings {
            fs::write(root.path().join(name), value).unwrap();
        }
        probe_settings(root.path()).map_or_else(|error| error.to_string(), |()| "ok".to_owned())
    }

    #[test]
    fn every_missing_requirement_is_one_sentence_with_its_remedy() {
        assert!(verdict(&[]).contains("boot one with CONFIG_MPTCP=y"));
        assert!(verdict(&[(ENABLED, "0\n")]).contains("sysctl -w net.mptcp.enabled=1"));
        assert!(verdict(&[(ENABLED, "1\n")]).contains("boot Linux 5.19"));
        let without = [(ENABLED, "1\n"), (PATH_MANAGER, "kernel\n"), (OFFERED, "kernel\n")];
        assert!(verdict(&without).contains("offers only `kernel`"));
    }

    #[test]
    fn old_and_new_settings_of_the_path_manager_are_accepted() {
        assert_eq!(verdict(&[(ENABLED, "1\n"), (PM_TYPE, "0\n")]), "ok");
        let new = [(ENABLED, "1\n"), (PATH_MANAGER, "kernel\n"), (OFFERED, "kernel userspace\n")];
        assert_eq!(verdict(&new), "ok");
    }
}
