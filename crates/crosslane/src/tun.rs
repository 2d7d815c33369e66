//! TUN devices: interfaces whose packets a program reads and writes.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use nix::errno::Errno;

use crate::error::{Error, Result};

const DEVICE: &str = "/dev/net/tun";

/// One TUN device, held by its descriptor: it is removed when this is dropped.
/// Packets are whole IP packets, one a call, without any header in front, and
/// never GSO packets (no IFF_VNET_HDR).
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

nix::ioctl_write_ptr_bad!(
    /// Creates the interface that the request names.
    set_interface,
    libc::TUNSETIFF,
    libc::ifreq
);

impl Tun {
    /// Creates the device `name` (1 to 15 bytes) in the network namespace of this
    /// thread; it stays down.
    ///
    /// # Errors
    /// The name is no valid interface name, is taken, or the kernel forbids it.
    pub fn open(name: &str) -> Result<Tun> {
        Ok(Tun { file: make_interface(name, 0)?, name: name.to_owned() })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads one packet that the kernel sends over this interface. Does not block.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; the kernel's otherwise.
    pub fn receive(&self, packet: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(packet)
    }

    /// Passes one packet to the kernel as if received on this interface.
    ///
    /// # Errors
    /// The kernel's, such as EIO while the interface is down.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        (&self.file).write(packet).map(|_| ())
    }
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// Opens the device from which interfaces are created, as a check that it is usable.
///
/// # Errors
/// One error message with the remedy.
pub fn open_device() -> Result<File> {
    let opened = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open(DEVICE);
    opened.map_err(|cause| {
        let attempt = format!("opening {DEVICE}");
        match cause.kind() {
            io::ErrorKind::NotFound => {
                Error::usage(attempt, cause, "the kernel needs CONFIG_TUN (`modprobe tun` may load it)")
            }
            _ => Error::usage(attempt, cause, format!("run as root or `chmod 0666 {DEVICE}`")),
        }
    })
}

/// Creates the interface `name` and returns its descriptor, which
/// does not block; `flags` are added to IFF_TUN and IFF_NO_PI.
pub(crate) fn make_interface(name: &str, flags: libc::c_int) -> Result<File> {
    let attempt = || format!("making the TUN device {name:?}");
    let file = open_device()?;
    let request =
        interface_request(name, flags).map_err(|cause| Error::usage(attempt(), cause, "choose another name"))?;
    // SAFETY: `request` is a whole ifreq whose name ends with a zero.
    let make = || unsafe { set_interface(file.as_raw_fd(), &request) };
    make().map_err(|cause| match cause {
        // The name belongs to another program, or to an interface of another kind.
        Errno::EBUSY | Errno::EINVAL => {
            Error::usage(attempt(), "an interface has this name already", "choose another name")
        }
        Errno::EPERM => Error::usage(attempt(), cause, "run as root or with the capability CAP_NET_ADMIN"),
        _ => Error::failure(attempt(), cause),
    })?;
    Ok(file)
}

/// Checks that an interface can have this name.
///
/// # Errors
/// The rule that the name violates.
pub(crate) fn check_name(name: &str) -> Result<(), &'static str> {
    let printable = name.bytes().all(|byte| byte.is_ascii_graphic() && !matches!(byte, b'/' | b':' | b'%'));
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || !printable || matches!(name, "." | ".." | "lo") {
        return Err("an interface's name has 1 to 15 letters, digits, - or _");
    }
    Ok(())
}

fn interface_request(name: &str, flags: libc::c_int) -> Result<libc::ifreq, &'static str> {
    check_name(name)?;
    // SAFETY: zeros are a valid ifreq.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_TUN | libc::IFF_NO_PI | flags) as libc::c_short;
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_no_interface_can_have_is_rejected() {
        for name in ["", "sixteen-letters-", "a/b", "a b", "lo", ".."] {
            assert!(interface_request(name, 0).is_err(), "{name:?}");
        }
        assert!(interface_request("fifteen-letters", 0).is_ok());
    }
}
