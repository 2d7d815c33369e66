//! Probes through the tunnel to a roadside unit: a datagram that the unit returns. A unit that
//! does not know them answers by its kernel, that nothing listens there: that proves it as well.

use std::future::poll_fn;
use std::io::ErrorKind;
use std::net::SocketAddrV4;
use std::task::{Context, Poll};

use crosslane_core::roadside::connection_manager::MAX_PROBE_BYTES;
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;

use super::home_address::{HELLO_PORT, Way};
use crate::error::{Error, Result};

/// First byte of a probe and of its answer, the version of its form; the rest is padding.
pub const PROBE: u8 = 2;
/// Maximum length of a probe, in bytes.
pub const MAX_BYTES: usize = MAX_PROBE_BYTES as usize;
/// Datagrams received in a row from one unit.
const IN_A_ROW: usize = 16;

/// The socket of probes to one unit.
pub struct ProbeSocket(UdpSocket);

impl ProbeSocket {
    /// A socket whose datagrams take this tunnel.
    ///
    /// # Errors
    /// The kernel rejects it.
    pub fn open(way: &Way) -> Result<ProbeSocket> {
        let attempt = || format!("probing the roadside unit of {}", way.net);
        let unit = way.net.hosts().next().ok_or_else(|| Error::failure(attempt(), "its prefix has no address"))?;
        let open = || {
            let socket = std::net::UdpSocket::bind((way.net.addr(), 0))?;
            socket.set_nonblocking(true)?;
            socket.connect(SocketAddrV4::new(unit, HELLO_PORT))?;
            UdpSocket::from_std(socket)
        };
        open().map(ProbeSocket).map_err(|cause| Error::failure(attempt(), cause))
    }

    /// Sends a probe of this length. One that fails is a probe without an answer.
    pub fn send(&self, bytes: u16) {
        let mut probe = [0; MAX_BYTES];
        probe[0] = PROBE;
        drop(self.0.try_send(&probe[..usize::from(bytes).clamp(1, MAX_BYTES)]));
    }

    fn poll_answer(&self, context: &mut Context<'_>) -> Poll<()> {
        for _ in 0..IN_A_ROW {
            let mut bytes = [0; MAX_BYTES];
            let mut buffer = ReadBuf::new(&mut bytes);
            match self.0.poll_recv(context, &mut buffer) {
                Poll::Ready(Ok(())) if buffer.filled().first() == Some(&PROBE) => return Poll::Ready(()),
                Poll::Ready(Err(cause)) if cause.kind() == ErrorKind::ConnectionRefused => return Poll::Ready(()),
                Poll::Ready(_) => {}
                Poll::Pending => return Poll::Pending,
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// The station of the next unit that answers. Safe to cancel.
pub async fn answer<'a>(sockets: impl Iterator<Item = (u32, &'a ProbeSocket)> + Clone) -> u32 {
    poll_fn(|context| {
        let mut ready = sockets.clone().filter(|(_, socket)| socket.poll_answer(context).is_ready());
        ready.next().map_or(Poll::Pending, |(station, _)| Poll::Ready(station))
    })
    .await
}
