//! The kernel's `struct tcp_info`, of any length: it grows every few
//! releases.
//!
//! Source: Linux `include/uapi/linux/tcp.h`.

use std::time::Duration;

use crosslane_core::path::Transport;

/// State of a TCP socket (RFC 9293 §3.3.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TcpState {
    /// The connection is established.
    Established,
    /// Waits for the reply to its SYN.
    SynSent,
    /// Has replied to a SYN.
    SynReceived,
    /// Closed locally; not everything is acknowledged.
    FinWait1,
    /// Closed locally; the peer still sends.
    FinWait2,
    /// Waits until delayed segments have expired.
    TimeWait,
    /// Not connected.
    #[default]
    Closed,
    /// Closed by the peer.
    CloseWait,
    /// Closed by both endpoints; waits for the last acknowledgement.
    LastAck,
    /// Listens.
    Listen,
    /// Closed by both endpoints simultaneously.
    Closing,
}

impl TcpState {
    /// True if this endpoint sends no new data.
    pub fn closed_here(self) -> bool {
        !matches!(
            self,
            TcpState::SynSent | TcpState::SynReceived | TcpState::Established | TcpState::CloseWait | TcpState::Listen
        )
    }

    fn from_kernel(number: u8) -> TcpState {
        match number {
            1 => TcpState::Established,
            2 => TcpState::SynSent,
            3 | 12 => TcpState::SynReceived,
            4 => TcpState::FinWait1,
            5 => TcpState::FinWait2,
            6 => TcpState::TimeWait,
            8 => TcpState::CloseWait,
            9 => TcpState::LastAck,
            10 => TcpState::Listen,
            11 => TcpState::Closing,
            _ => TcpState::Closed,
        }
    }
}

/// Excerpt of `tcp_info`. Fields that an older kernel lacks are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of the socket.
    pub state: TcpState,
    /// Consecutive retransmissions of the oldest segment by timer.
    pub backoff: u8,
    /// Segments sent and not yet acknowledged.
    pub unacked: u32,
    /// Of these, segments that the peer has reported as received.
    pub sacked: u32,
    /// Segments considered lost.
    pub lost: u32,
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Mean deviation of the round-trip time.
    pub rttvar: Duration,
    /// Congestion window in segments.
    pub cwnd: u32,
    /// Retransmissions since the beginning.
    pub total_retrans: u32,
    /// Bytes acknowledged by the peer since the beginning.
    pub bytes_acked: u64,
    /// Bytes received in order since the beginning.
    pub bytes_received: u64,
    /// The receiver's estimate of the round-trip time; zero before the first.
    pub rcv_rtt: Duration,
    /// Segments with data received since the beginning.
    pub segments_received: u32,
    /// Segments received out of order since the beginning.
    pub out_of_order: u32,
    /// Bytes in the queue that have never been sent.
    pub notsent_bytes: u32,
    /// Minimum round-trip time of the last minutes.
    pub min_rtt: Duration,
    /// Delivery rate, most recent sample, in bit/s.
    pub delivery_rate_bit_s: u64,
    /// Segments delivered since the beginning.
    pub delivered: u32,
    /// Bytes of payload sent since the beginning, retransmissions included.
    pub bytes_sent: u64,
}

impl TcpInfo {
    /// The statistics of the connection, of no token and peer.
    pub fn transport(&self) -> Transport {
        Transport {
            token: 0,
            peer: Transport::NO_PEER,
            accepted: false,
            backup: false,
            rtt: self.rtt,
            rttvar: self.rttvar,
            unacked: self.unacked,
            sacked: self.sacked,
            delivered: self.delivered,
            bytes_acked: self.bytes_acked,
            notsent_bytes: self.notsent_bytes,
            bytes_received: self.bytes_received,
            segments_received: self.segments_received,
            out_of_order: self.out_of_order,
            receive_rtt: self.receive_rtt(),
            lost: self.lost,
            retransmitted: self.total_retrans,
            cwnd: self.cwnd,
            min_rtt: Some(self.min_rtt),
            delivery_bit_s: Some(self.delivery_rate_bit_s),
        }
    }

    /// Reads a `struct tcp_info` of any length.
    pub fn parse(bytes: &[u8]) -> TcpInfo {
        let micros = |offset| Duration::from_micros(u64::from(u32_at(bytes, offset)));
        TcpInfo {
            state: TcpState::from_kernel(u8_at(bytes, 0)),
            backoff: u8_at(bytes, 4),
            unacked: u32_at(bytes, 24),
            sacked: u32_at(bytes, 28),
            lost: u32_at(bytes, 32),
            rtt: micros(68),
            rttvar: micros(72),
            cwnd: u32_at(bytes, 80),
            total_retrans: u32_at(bytes, 100),
            bytes_acked: u64_at(bytes, 120),
            bytes_received: u64_at(bytes, 128),
            rcv_rtt: micros(92),
            segments_received: u32_at(bytes, 152),
            out_of_order: u32_at(bytes, 224),
            notsent_bytes: u32_at(bytes, 144),
            min_rtt: micros(148),
            delivery_rate_bit_s: u64_at(bytes, 160).saturating_mul(8),
            delivered: u32_at(bytes, 192),
            bytes_sent: u64_at(bytes, 200),
        }
    }

    /// The receiver's estimate of the round-trip time, if there is one.
    pub fn receive_rtt(&self) -> Option<Duration> {
        (!self.rcv_rtt.is_zero()).then_some(self.rcv_rtt)
    }
}

fn u8_at(bytes: &[u8], offset: usize) -> u8 {
    bytes.get(offset).copied().unwrap_or(0)
}

/// The number in host order at `offset`; 0 beyond the end.
pub(super) fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u32::from_ne_bytes(*chunk))
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    bytes.get(offset..).and_then(<[u8]>::first_chunk).map_or(0, |chunk| u64::from_ne_bytes(*chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_struct_of_any_length_is_read_as_far_as_it_extends() {
        let mut full = [0u8; 248];
        full[0] = 1;
        full[68..72].copy_from_slice(&40_000u32.to_ne_bytes());
        full[160..168].copy_from_slice(&1_000_000u64.to_ne_bytes());
        full[200..208].copy_from_slice(&7u64.to_ne_bytes());
        for length in 0..full.len() {
            let info = TcpInfo::parse(&full[..length]);
            assert_eq!(info.state == TcpState::Established, length > 0);
            assert_eq!(info.rtt, Duration::from_millis(if length >= 72 { 40 } else { 0 }));
            assert_eq!(info.delivery_rate_bit_s, if length >= 168 { 8_000_000 } else { 0 });
            assert_eq!(info.bytes_sent, if length >= 208 { 7 } else { 0 });
        }
    }
}
