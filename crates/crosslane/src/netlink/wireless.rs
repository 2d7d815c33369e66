//! Stations of Wi-Fi and 802.11p interfaces, by the generic netlink family `nl80211`.
//!
//! Only the needed attributes are decoded, so that none that a driver or a later kernel adds loses a station.
//! Source: Linux `include/uapi/linux/nl80211.h`.

use crosslane_core::path::RadioLink;
use netlink_packet_core::NLM_F_DUMP;
use netlink_sys::protocols::NETLINK_GENERIC;

use super::generic::{Family, GENERIC_HEADER_LEN, Name, Request, u32_attribute};
use super::message::{DecodeError, FIRST_PROTOCOL_TYPE, Message, attributes, frame};
use super::socket::{CallError, OpenError};
use super::subscription::Subscription;

/// Maximum number of stations read of an interface; further ones are dropped.
const MAX_STATIONS: usize = 256;

const NL80211: Name = Name {
    family: "nl80211",
    // Connection quality monitoring reports there (`cfg80211_send_cqm`).
    events: "mlme",
    needs: "Wi-Fi and 802.11p need CONFIG_CFG80211 and a driver",
};

/// Numbers of `enum nl80211_commands`.
mod command {
    pub const GET_STATION: u8 = 17;
    pub const NOTIFY_CQM: u8 = 64;
}

/// Numbers of `enum nl80211_attrs`.
mod attribute {
    pub const IF_INDEX: u16 = 3;
    pub const MAC: u16 = 6;
    pub const STA_INFO: u16 = 21;
}

/// Numbers of `enum nl80211_sta_info`.
mod station {
    pub const INACTIVE_TIME: u16 = 1;
    pub const RX_BYTES: u16 = 2;
    pub const SIGNAL: u16 = 7;
    pub const TX_BITRATE: u16 = 8;
    pub const TX_RETRIES: u16 = 11;
    pub const TX_FAILED: u16 = 12;
    pub const RX_BITRATE: u16 = 14;
    pub const RX_BYTES64: u16 = 23;
    pub const BEACON_RX: u16 = 29;
}

/// Numbers of `enum nl80211_rate_info`, whose values are in 100 kbit/s.
mod rate {
    pub const BITRATE: u16 = 1;
    pub const BITRATE32: u16 = 5;
}

/// A station that an interface communicates with: the access point, or in OCB mode each one that was received.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Station {
    /// Its Ethernet address.
    pub address: [u8; 6],
    /// Signal strength of the last frame from it, in dBm, if the driver measures it.
    pub signal_dbm: Option<i8>,
    /// Time since its last frame that counts as activity, in ms: beacons of an access point do not.
    pub inactive_ms: Option<u32>,
    /// Bytes and beacons received from it: they change when a frame arrives.
    pub received: (u64, u64),
    /// Rates of the last frames, retransmissions and failures.
    pub link: RadioLink,
}

/// A socket for requests.
pub struct Wireless {
    family: Family,
}

impl Wireless {
    /// Opens a socket in the network namespace of this thread.
    ///
    /// # Errors
    /// The kernel has no `nl80211`: there is no Wi-Fi hardware, or its driver is not loaded.
    pub fn open() -> Result<Wireless, OpenError> {
        Ok(Wireless { family: Family::open(NL80211)? })
    }

    /// Subscribes to the events of connection quality monitoring: the index of the interface concerned.
    ///
    /// # Errors
    /// The socket cannot be opened.
    pub fn events(&self) -> Result<Subscription<u32>, OpenError> {
        Ok(Subscription::open(NETLINK_GENERIC, &[self.family.events()?], decode)?)
    }

    /// The stations of an interface. Some drivers ask the device for it, which takes milliseconds.
    ///
    /// # Errors
    /// `ENODEV`: the interface is gone, or no Wi-Fi interface.
    pub fn stations(&mut self, if_index: u32) -> Result<Vec<Station>, CallError> {
        let attributes = vec![u32_attribute(attribute::IF_INDEX, if_index)];
        let mut found = Vec::new();
        self.family.call(Request { command: command::GET_STATION, attributes }, NLM_F_DUMP, |bytes| {
            if found.len() < MAX_STATIONS {
                found.push(read_station(bytes)?);
            }
            Ok(())
        })?;
        Ok(found)
    }
}

/// The interface that an event of connection quality monitoring concerns: its signal crossed a limit, or packets
/// or beacons were lost. `None` for other events. Reads any bytes without panic.
///
/// # Errors
/// The message is malformed.
pub fn decode(bytes: &[u8]) -> Result<Option<u32>, DecodeError> {
    let message = Message::parse(bytes)?;
    if message.kind < FIRST_PROTOCOL_TYPE {
        return Ok(None);
    }
    let Some((header, rest)) = message.payload().split_at_checked(GENERIC_HEADER_LEN) else {
        return Err(frame("an nl80211 event", message.payload(), "no generic netlink header"));
    };
    if header[0] != command::NOTIFY_CQM {
        return Ok(None);
    }
    for attribute in attributes("an nl80211 event", rest) {
        let attribute = attribute?;
        if attribute.kind == attribute::IF_INDEX {
            return attribute.u32("NL80211_ATTR_IFINDEX").map(Some);
        }
    }
    Ok(None)
}

/// The station in the attributes of an answer. Reads any bytes without panic.
///
/// # Errors
/// The attributes are malformed.
pub fn read_station(bytes: &[u8]) -> Result<Station, DecodeError> {
    let mut found = Station::default();
    for attribute in attributes("a station", bytes) {
        let attribute = attribute?;
        match attribute.kind {
            attribute::MAC => found.address = attribute.value.try_into().unwrap_or_default(),
            attribute::STA_INFO => read_info(attribute.value, &mut found)?,
            _ => {}
        }
    }
    Ok(found)
}

fn read_info(bytes: &[u8], found: &mut Station) -> Result<(), DecodeError> {
    let mut bytes64 = None;
    for info in attributes("NL80211_ATTR_STA_INFO", bytes) {
        let info = info?;
        match info.kind {
            station::INACTIVE_TIME => found.inactive_ms = Some(info.u32("NL80211_STA_INFO_INACTIVE_TIME")?),
            station::RX_BYTES => found.received.0 = info.u32("NL80211_STA_INFO_RX_BYTES")?.into(),
            station::RX_BYTES64 => bytes64 = Some(info.u64("NL80211_STA_INFO_RX_BYTES64")?),
            station::BEACON_RX => found.received.1 = info.u64("NL80211_STA_INFO_BEACON_RX")?,
            station::SIGNAL => found.signal_dbm = Some(info.u8("NL80211_STA_INFO_SIGNAL")?.cast_signed()),
            station::TX_RETRIES => found.link.retries = Some(info.u32("NL80211_STA_INFO_TX_RETRIES")?),
            station::TX_FAILED => found.link.failures = Some(info.u32("NL80211_STA_INFO_TX_FAILED")?),
            station::TX_BITRATE => found.link.tx_bit_s = read_rate(info.value)?,
            station::RX_BITRATE => found.link.rx_bit_s = read_rate(info.value)?,
            _ => {}
        }
    }
    found.received.0 = bytes64.unwrap_or(found.received.0);
    Ok(())
}

/// A rate, in bit/s. The wider attribute holds also rates that the other one cannot.
fn read_rate(bytes: &[u8]) -> Result<Option<f64>, DecodeError> {
    let (mut narrow, mut wide) = (None, None);
    for rate in attributes("a rate of nl80211", bytes) {
        let rate = rate?;
        match rate.kind {
            rate::BITRATE => narrow = Some(u32::from(rate.u16("NL80211_RATE_INFO_BITRATE")?)),
            rate::BITRATE32 => wide = Some(rate.u32("NL80211_RATE_INFO_BITRATE32")?),
            _ => {}
        }
    }
    Ok(wide.or(narrow).map(|hundred_kbit_s| f64::from(hundred_kbit_s) * 1e5))
}

#[cfg(test)]
mod tests {
    use netlink_packet_core::{DefaultNla, Emitable};
    use proptest::prelude::*;

    use super::*;

    /// An event of `mac80211_hwsim`: the signal of interface 574 fell below its limit, to -30 dBm (recorded by the
    /// authors of the crate wl-nl80211, MIT).
    const RECORDED: [u8; 56] = [
        0x38, 0x00, 0x00, 0x00, 0x2c, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x40, 0x01,
        0x00, 0x00, 0x08, 0x00, 0x01, 0x00, 0x3b, 0x01, 0x00, 0x00, 0x08, 0x00, 0x03, 0x00, 0x3e, 0x02, 0x00, 0x00,
        0x14, 0x00, 0x5e, 0x00, 0x08, 0x00, 0x03, 0x00, 0x00, 0x00, 0x00, 0x00, 0x08, 0x00, 0x09, 0x00, 0xe2, 0xff,
        0xff, 0xff,
    ];

    fn emit(attributes: &[DefaultNla]) -> Vec<u8> {
        let mut bytes = vec![0; attributes.buffer_len()];
        attributes.emit(&mut bytes);
        bytes
    }

    fn nested(kind: u16, attributes: &[DefaultNla]) -> DefaultNla {
        DefaultNla::new(kind, emit(attributes))
    }

    /// An access point as mac80211 describes it: also attributes that are not decoded.
    fn access_point(signal: DefaultNla) -> Vec<u8> {
        let value = |kind, value: &[u8]| DefaultNla::new(kind, value.to_vec());
        let rate =
            |kind, bit_s: u32| nested(kind, &[value(1, &[0xff, 0xff]), u32_attribute(5, bit_s), value(13, &[9])]);
        let info = [
            u32_attribute(1, 40),
            u32_attribute(2, 7),
            signal,
            value(25, &[0xc5, 0xc3]),
            rate(8, 12_010),
            nested(14, &[value(1, &[60, 0])]),
            u32_attribute(11, 5),
            u32_attribute(12, 2),
            value(23, &5_000_000_007_u64.to_ne_bytes()),
            value(29, &1234_u64.to_ne_bytes()),
            value(999, &[1, 2, 3]),
        ];
        let address = value(6, &[0x6e, 6, 0xe0, 3, 0, 2]);
        emit(&[u32_attribute(3, 4), address, u32_attribute(46, 9), nested(21, &info)])
    }

    #[test]
    fn a_station_has_signal_rates_retries_and_failures() {
        let link = RadioLink { tx_bit_s: Some(1.201e9), rx_bit_s: Some(6e6), retries: Some(5), failures: Some(2) };
        let expected = Station {
            address: [0x6e, 6, 0xe0, 3, 0, 2],
            signal_dbm: Some(-59),
            inactive_ms: Some(40),
            received: (5_000_000_007, 1234),
            link,
        };
        assert_eq!(read_station(&access_point(DefaultNla::new(7, vec![0xc5]))), Ok(expected));
        let fault = read_station(&access_point(u32_attribute(7, 1))).expect_err("a signal of four bytes");
        assert!(fault.to_string().contains("NL80211_STA_INFO_SIGNAL"), "{fault}");
    }

    #[test]
    fn an_event_of_quality_monitoring_names_its_interface_and_others_are_none() {
        assert_eq!(decode(&RECORDED), Ok(Some(574)));
        let mut other = RECORDED;
        other[16] = 46; // NL80211_CMD_CONNECT
        assert_eq!(decode(&other), Ok(None));
    }

    proptest! {
        #[test]
        fn any_bytes_are_read_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..128), place in 0..56_usize, byte: u8) {
            let _ = (read_station(&bytes), decode(&bytes));
            let mut event = RECORDED;
            event[place] = byte;
            let _ = decode(&event);
            let mut station = access_point(DefaultNla::new(7, vec![0xc5]));
            let place = place * station.len() / 56;
            station[place] = byte;
            let _ = read_station(&station);
        }
    }
}
