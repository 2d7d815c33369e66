//! Many datagrams in one system call.

use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::os::fd::AsRawFd;

use socket2::Socket;

use super::control::Control;

/// Maximum messages of one call; each holds up to 64 KiB of coalesced datagrams.
const MESSAGES_MAX: usize = 16;
const MESSAGE_BYTES: usize = 1 << 16;

/// Buffers for one batch, reused for the next.
pub struct ReceiveBuffers {
    bytes: Box<[u8]>,
    names: [libc::sockaddr_storage; MESSAGES_MAX],
    controls: [Control; MESSAGES_MAX],
    lengths: [usize; MESSAGES_MAX],
    /// Messages that the last call received.
    count: usize,
}

/// One datagram.
#[derive(Debug, PartialEq, Eq)]
pub struct Datagram<'a> {
    /// Source; an IPv4-mapped address as IPv4.
    pub from: SocketAddr,
    /// Local address that received it, if the kernel reports it.
    pub at: Option<IpAddr>,
    /// DSCP and ECN of its IP header.
    pub tos: u8,
    /// The payload, which may be decrypted in place.
    pub bytes: &'a mut [u8],
}

impl Default for ReceiveBuffers {
    fn default() -> ReceiveBuffers {
        ReceiveBuffers {
            bytes: vec![0; MESSAGES_MAX * MESSAGE_BYTES].into_boxed_slice(),
            // SAFETY: zeros are a valid sockaddr_storage.
            names: unsafe { std::mem::zeroed() },
            controls: [Control::EMPTY; MESSAGES_MAX],
            lengths: [0; MESSAGES_MAX],
            count: 0,
        }
    }
}

impl ReceiveBuffers {
    /// The datagrams of the last call, in the order of arrival.
    pub fn datagrams(&mut self) -> impl Iterator<Item = Datagram<'_>> {
        let messages = self.names.iter().zip(&self.controls).zip(&self.lengths);
        let taken = self.bytes.chunks_mut(MESSAGE_BYTES).zip(messages).take(self.count);
        taken.filter_map(|(bytes, ((name, control), &len))| Some((bytes, address(name)?, control, len))).flat_map(
            |(bytes, from, control, len)| {
                let (tos, segment, at) = control.read();
                let segment = segment.filter(|&segment| segment > 0).unwrap_or(MESSAGE_BYTES);
                bytes[..len].chunks_mut(segment).map(move |bytes| Datagram { from, at, tos, bytes })
            },
        )
    }

    pub(super) fn fill(&mut self, socket: &Socket) -> io::Result<usize> {
        self.count = 0;
        // SAFETY: zeros are a valid mmsghdr and a valid iovec.
        let (mut heads, mut parts): ([libc::mmsghdr; MESSAGES_MAX], [libc::iovec; MESSAGES_MAX]) =
            unsafe { (std::mem::zeroed(), std::mem::zeroed()) };
        let rooms = self.bytes.chunks_mut(MESSAGE_BYTES).zip(&mut self.names).zip(&mut self.controls);
        for (((bytes, name), control), (head, part)) in rooms.zip(heads.iter_mut().zip(&mut parts)) {
            part.iov_base = bytes.as_mut_ptr().cast();
            part.iov_len = bytes.len();
            let room = control.room();
            head.msg_hdr.msg_name = (&raw mut *name).cast();
            head.msg_hdr.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_hdr.msg_iov = &raw mut *part;
            head.msg_hdr.msg_iovlen = 1;
            head.msg_hdr.msg_control = room.as_mut_ptr().cast();
            head.msg_hdr.msg_controllen = room.len() as _;
        }
        // SAFETY: every head points to a separate part, name and control,
        // with their sizes, and all of them outlive the call.
        let taken = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                heads.as_mut_ptr(),
                MESSAGES_MAX as libc::c_uint,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
            )
        };
        let taken = usize::try_from(taken).map_err(|_| io::Error::last_os_error())?;
        for ((head, len), control) in heads.iter().zip(&mut self.lengths).zip(&mut self.controls) {
            *len = (head.msg_len as usize).min(MESSAGE_BYTES);
            #[allow(clippy::unnecessary_cast)] // Its type differs between C libraries.
            control.written(head.msg_hdr.msg_controllen as usize);
        }
        self.count = taken.min(MESSAGES_MAX);
        Ok(self.count)
    }
}

fn address(name: &libc::sockaddr_storage) -> Option<SocketAddr> {
    let name = &raw const *name;
    // SAFETY: sockaddr_storage has room and alignment for both, and integers
    // have no invalid bits.
    match i32::from(unsafe { (*name).ss_family }) {
        libc::AF_INET => {
            let name = unsafe { &*name.cast::<libc::sockaddr_in>() };
            let ip = name.sin_addr.s_addr.to_ne_bytes();
            Some(SocketAddr::new(ip.into(), u16::from_be(name.sin_port)))
        }
        libc::AF_INET6 => {
            let name = unsafe { &*name.cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(name.sin6_addr.s6_addr), u16::from_be(name.sin6_port));
            match ip.to_ipv4_mapped() {
                Some(ip) => Some(SocketAddr::new(ip.into(), port)),
                // A link-local address needs its interface.
                None => Some(std::net::SocketAddrV6::new(ip, port, 0, name.sin6_scope_id).into()),
            }
        }
        _ => None,
    }
}
