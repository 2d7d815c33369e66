//! 802.11p: PHY rates.

/// PHY rate of 802.11p in a 10 MHz channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PhyRate {
    /// 3 Mbit/s, BPSK 1/2.
    Mbit3,
    /// 4.5 Mbit/s, BPSK 3/4.
    Mbit4_5,
    /// 6 Mbit/s, QPSK 1/2.
    Mbit6,
    /// 9 Mbit/s, QPSK 3/4.
    Mbit9,
    /// 12 Mbit/s, 16-QAM 1/2.
    Mbit12,
    /// 18 Mbit/s, 16-QAM 3/4.
    Mbit18,
    /// 24 Mbit/s, 64-QAM 2/3.
    Mbit24,
    /// 27 Mbit/s, 64-QAM 3/4.
    Mbit27,
}
