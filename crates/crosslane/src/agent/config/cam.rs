//! The section `[cam]`: the vehicle's own CAMs.

use std::net::SocketAddr;

use serde::Deserialize;
use toml::Spanned;

use super::Config;
use super::checks::Complaint;

/// Station types of what moves (TS 102 894-2, DE_StationType); 15 is a roadside unit.
const MOVING: std::ops::RangeInclusive<u8> = 1..=14;

/// The section.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CamConfig {
    /// MQTT broker of an on-board unit that takes CAMs as vanetza-nap does.
    pub broker: Spanned<SocketAddr>,
    /// Station type of the vehicle (TS 102 894-2): 5 passenger car, 6 bus, …
    #[serde(default = "passenger_car")]
    pub station_type: Spanned<u8>,
}

fn passenger_car() -> Spanned<u8> {
    Spanned::new(0..0, 5)
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let Some(section) = &config.cam else { return Ok(()) };
    let (place, cam) = (section.span().start, section.get_ref());
    if config.observe.gpsd.is_none() {
        let cause = "[cam] without `observe.gpsd`: a CAM needs the vehicle's position".into();
        return Err((place, cause, "set observe.gpsd, as \"127.0.0.1:2947\""));
    }
    if !MOVING.contains(cam.station_type.get_ref()) {
        let cause = format!("station_type is {}, which is no vehicle", cam.station_type.get_ref());
        return Err((cam.station_type.span().start, cause, "give 5 for a passenger car, 6 for a bus (TS 102 894-2)"));
    }
    if cam.broker.get_ref().port() == 0 {
        let cause = format!("the broker {} has no port", cam.broker.get_ref());
        return Err((cam.broker.span().start, cause, "give the on-board unit's address, as \"127.0.0.1:1883\""));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;

    const GOOD: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[strategy]
name = "threshold"
[observe]
gpsd = "127.0.0.1:2947"
[cam]
broker = "127.0.0.1:1883"
station_type = 6
"#;

    #[test]
    fn a_vehicle_is_a_passenger_car_unless_it_says_otherwise() {
        let station_type = |text: &str| {
            let config = parse(text).ok().expect("readable");
            *config.cam.expect("a section").get_ref().station_type.get_ref()
        };
        assert_eq!((station_type(GOOD), station_type(&GOOD.replace("station_type = 6", ""))), (6, 5));
    }

    #[test]
    fn a_fault_of_the_section_names_its_line_and_what_to_do() {
        let cases = [
            ("gpsd = \"127.0.0.1:2947\"", "", 9, "a CAM needs the vehicle's position"),
            ("station_type = 6", "station_type = 15", 11, "which is no vehicle"),
            ("127.0.0.1:1883", "127.0.0.1:0", 10, "has no port"),
            ("broker = \"127.0.0.1:1883\"", "", 9, "`broker` is missing"),
            ("127.0.0.1:1883", "obu:1883", 10, "invalid socket address"),
        ];
        for (good, bad, line, expected) in cases {
            let fault = parse(&GOOD.replacen(good, bad, 1)).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert_eq!(fault.line, line, "{bad}: {}", fault.cause);
            assert!(fault.cause.contains(expected) && !fault.remedy.is_empty(), "{bad}: {}", fault.cause);
        }
    }
}
