//! The TUN device of the tunnel: an interface that exchanges GSO packets with
//! the kernel, like a network card with segmentation offload.

use std::fs::File;
use std::io::{self, IoSlice, Read as _, Write as _};
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crosslane_core::packet::gro::PARTS_MAX;
use crosslane_core::packet::gso::Header;
use nix::errno::Errno;

use crate::error::{Error, Result};
use crate::netlink::Wiring;
use crate::netlink::links::{self, Notice};
use crate::tun::make_interface;

/// MTU that IPv6 needs (RFC 8200, section 5), bytes.
const IPV6_MTU_MIN: u32 = 1280;

/// Queue length of the interface, in packets or GSO packets; the kernel's
/// default for a TUN device.
const QUEUE_PACKETS: u32 = 500;

/// Parameters of the interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Name, 1 to 15 bytes.
    pub name: String,
    /// Longest IP packet in the tunnel, in bytes: 68 to 65,535.
    pub mtu: u32,
    /// Its addresses, each with the bits of its prefix.
    pub addresses: Vec<(IpAddr, u8)>,
}

/// Segmentation offloads that the kernel leaves to this program, and accepts from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Offload {
    /// TCP over IPv4 arrives in GSO packets.
    pub tcp4: bool,
    /// TCP over IPv6 arrives in GSO packets.
    pub tcp6: bool,
    /// UDP arrives in GSO packets, and may be written so (Linux 6.2).
    pub udp: bool,
}

/// One TUN device, held by its descriptor: it is removed when this is dropped, unless it
/// is [kept](Device::keep). Every read and write has an
/// [`Header`] in front.
#[derive(Debug)]
pub struct Device {
    file: File,
    offload: Offload,
}

nix::ioctl_write_int_bad!(
    /// Sets the kinds of GSO packets that this program accepts.
    set_offload,
    libc::TUNSETOFFLOAD
);

nix::ioctl_write_int_bad!(
    /// Sets whether the interface outlives its descriptor.
    set_persist,
    libc::TUNSETPERSIST
);

impl Device {
    /// Creates the interface in the network namespace of this thread, or takes over
    /// one that a former agent kept, sets its addresses and brings it
    /// up.
    ///
    /// # Errors
    /// One error message with the remedy: the name is taken or invalid, the
    /// kernel has no TUN devices or forbids them, an address is invalid.
    pub fn open(plan: &Plan) -> Result<Device> {
        check(plan)?;
        let file = make_interface(&plan.name, libc::IFF_VNET_HDR)?;
        let offload = request_offload(&file);
        let mut wiring = Wiring::open()?;
        let interface = wiring.index(&plan.name)?;
        wiring.bring_up(&plan.name, plan.mtu, QUEUE_PACKETS)?;
        let there = addresses(interface)?;
        for &(address, prefix_len) in there.iter().filter(|address| !plan.addresses.contains(address)) {
            wiring.remove_address(interface, address, prefix_len)?;
        }
        for &(address, prefix_len) in plan.addresses.iter().filter(|address| !there.contains(address)) {
            wiring.add_address(interface, address, prefix_len)?;
        }
        Ok(Device { file, offload })
    }

    /// Sets whether the interface, with its addresses and routes, remains when this
    /// is dropped or the process is killed, for the next agent.
    ///
    /// # Errors
    /// The system's.
    pub fn keep(&self, is_kept: bool) -> io::Result<()> {
        // SAFETY: the argument is a number, and the descriptor a TUN device's.
        unsafe { set_persist(self.file.as_raw_fd(), is_kept.into()) }?;
        Ok(())
    }

    /// The offloads that the kernel granted.
    pub fn offload(&self) -> Offload {
        self.offload
    }

    /// Reads one frame, for `gso::split`; returns its length. Does not
    /// block. `frame` has `gso::FRAME_BYTES`.
    ///
    /// # Errors
    /// `WouldBlock` if there is none; the kernel's otherwise.
    pub fn receive(&self, frame: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(frame)
    }

    /// Writes one frame in parts, header first: at most [`PARTS_MAX`].
    ///
    /// # Errors
    /// The kernel's, such as EIO while the interface is down and EINVAL
    /// for anything but an IP packet.
    pub fn send(&self, parts: &[&[u8]]) -> io::Result<()> {
        let mut slices = [IoSlice::new(&[]); PARTS_MAX];
        slices.iter_mut().zip(parts).for_each(|(slice, part)| *slice = IoSlice::new(part));
        (&self.file).write_vectored(&slices[..parts.len().min(PARTS_MAX)]).map(|_| ())
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// As [`Device::send`].
    pub fn send_packet(&self, packet: &[u8]) -> io::Result<()> {
        self.send(&[&Header::default().emit(), packet])
    }
}

impl AsFd for Device {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

/// The addresses of an interface, without those that the kernel adds for IPv6.
fn addresses(interface: u32) -> Result<Vec<(IpAddr, u8)>> {
    let attempt = "reading the addresses of the tunnel's interface";
    let present = links::snapshot().map_err(|cause| Error::failure(attempt, cause))?;
    let own = |notice: &Notice| match notice {
        Notice::Address(event) if event.if_index == interface => Some((event.address, event.prefix_len)),
        _ => None,
    };
    let is_kernels = |address: &IpAddr| matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local());
    Ok(present.iter().filter_map(own).filter(|(address, _)| !is_kernels(address)).collect())
}

fn check(plan: &Plan) -> Result<()> {
    let attempt = || format!("planning the interface {:?}", plan.name);
    if !(68..=65_535).contains(&plan.mtu) {
        return Err(Error::usage(attempt(), format!("its MTU is {}", plan.mtu), "give 68 to 65535"));
    }
    for &(address, prefix_len) in &plan.addresses {
        let bits = if address.is_ipv4() { 32 } else { 128 };
        if prefix_len > bits {
            let cause = format!("the prefix of {address}/{prefix_len} is longer than the address");
            return Err(Error::usage(attempt(), cause, format!("give at most {bits} bits")));
        }
        if address.is_ipv6() && plan.mtu < IPV6_MTU_MIN {
            let cause = format!("it has an IPv6 address and an MTU of {}", plan.mtu);
            return Err(Error::usage(attempt(), cause, format!("IPv6 needs {IPV6_MTU_MIN}")));
        }
    }
    Ok(())
}

/// Requests all offloads, then fewer: kernels before 6.2 have no USO, and a
/// kernel may lack one of the others.
fn request_offload(file: &File) -> Offload {
    let choices = [(true, true, true), (true, true, false), (true, false, false), (false, true, false)];
    let wanted = choices.map(|(tcp4, tcp6, udp)| Offload { tcp4, tcp6, udp });
    // Without any: a device without offload delivers complete packets.
    wanted.into_iter().find(|&offload| try_offload(file, offload).is_ok()).unwrap_or_default()
}

fn try_offload(file: &File, offload: Offload) -> nix::Result<()> {
    let bit = |wanted: bool, bits: libc::c_uint| if wanted { bits } else { 0 };
    let bits = libc::TUN_F_CSUM
        | bit(offload.tcp4, libc::TUN_F_TSO4)
        | bit(offload.tcp6, libc::TUN_F_TSO6)
        | bit(offload.udp, libc::TUN_F_USO4 | libc::TUN_F_USO6);
    let bits = libc::c_int::try_from(bits).map_err(|_| Errno::EINVAL)?;
    // SAFETY: the argument is a number, and the descriptor a TUN device's.
    unsafe { set_offload(file.as_raw_fd(), bits) }.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_plan_is_rejected_in_a_sentence() {
        let plan = |mtu, address: &str, bits| Plan {
            name: "tunnel".into(),
            mtu,
            addresses: vec![(address.parse().unwrap(), bits)],
        };
        for (plan, expected) in [
            (plan(60, "10.0.0.1", 8), "its MTU is 60; give 68 to 65535"),
            (plan(1400, "10.0.0.1", 33), "the prefix of 10.0.0.1/33 is longer than the address; give at most 32 bits"),
            (plan(1200, "fd00::1", 64), "it has an IPv6 address and an MTU of 1200; IPv6 needs 1280"),
        ] {
            let error = check(&plan).unwrap_err();
            assert_eq!(error.to_string(), format!("while planning the interface \"tunnel\": {expected}"));
            assert_eq!(error.exit_code(), 2);
        }
        assert!(check(&plan(1400, "fd00::1", 64)).is_ok());
    }
}
