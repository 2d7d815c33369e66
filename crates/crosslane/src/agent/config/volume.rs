//! The table `[path.volume]`: how much a path may carry in a day and in a month.

use std::ops::RangeInclusive;

use crosslane_core::volume::Limit;
use serde::Deserialize;
use toml::Spanned;

use super::Config;
use super::checks::Complaint;

/// Limits that can be given, in MB.
const LIMITS_MB: RangeInclusive<u32> = 1..=100_000_000;
/// Days of a month.
const DAYS: RangeInclusive<u8> = 1..=31;

/// The table; one MB is 10⁶ bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VolumeConfig {
    /// Bytes sent and received in a day of local time, in MB.
    pub day_mb: Option<Spanned<u32>>,
    /// The same in a month.
    pub month_mb: Option<Spanned<u32>>,
    /// Day on which the month begins, or else the last day of a shorter month; 1 if unset.
    pub reset_day: Option<Spanned<u8>>,
    /// Share of a limit from which on the path is spared.
    #[serde(default = "most")]
    pub soft: Spanned<f64>,
}

fn most() -> Spanned<f64> {
    Spanned::new(0..0, 0.9)
}

impl VolumeConfig {
    /// The limit of a day.
    pub fn day(&self) -> Option<Limit> {
        self.limit(self.day_mb.as_ref())
    }

    /// The limit of a month.
    pub fn month(&self) -> Option<Limit> {
        self.limit(self.month_mb.as_ref())
    }

    /// Day on which the month begins.
    pub fn reset_day(&self) -> u8 {
        self.reset_day.as_ref().map_or(1, |day| *day.get_ref())
    }

    fn limit(&self, mb: Option<&Spanned<u32>>) -> Option<Limit> {
        let hard = u64::from(*mb?.get_ref()) * 1_000_000;
        Some(Limit { soft: (hard as f64 * self.soft.get_ref()) as u64, hard })
    }
}

/// What does not depend on the machine.
pub(super) fn check(config: &Config) -> Result<(), Complaint> {
    let volumes = config.paths.iter().filter_map(|path| path.get_ref().volume.as_ref());
    volumes.into_iter().try_for_each(|volume| check_volume(volume.span().start, volume.get_ref()))
}

fn check_volume(place: usize, volume: &VolumeConfig) -> Result<(), Complaint> {
    let limits = [("day_mb", &volume.day_mb), ("month_mb", &volume.month_mb)];
    for (key, mb) in limits.into_iter().filter_map(|(key, mb)| Some((key, mb.as_ref()?))) {
        if !LIMITS_MB.contains(mb.get_ref()) {
            return Err((mb.span().start, format!("{key} is {}", mb.get_ref()), "give 1 to 100000000"));
        }
    }
    if let Some(day) = &volume.reset_day {
        if !DAYS.contains(day.get_ref()) {
            return Err((
                day.span().start,
                format!("reset_day is {}", day.get_ref()),
                "give a day of a month, 1 to 31",
            ));
        }
        if volume.month_mb.is_none() {
            let cause = "`reset_day` without `month_mb`: a day begins at midnight".into();
            return Err((day.span().start, cause, "set `month_mb`, or remove `reset_day`"));
        }
    }
    if volume.day_mb.is_none() && volume.month_mb.is_none() {
        let cause = "a volume with neither `day_mb` nor `month_mb` limits nothing".into();
        return Err((place, cause, "give one of them, or remove the table"));
    }
    let soft = *volume.soft.get_ref();
    if !(soft > 0.0 && soft <= 1.0) {
        return Err((volume.soft.span().start, format!("soft is {soft}"), "give a share above 0, at most 1"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    const GOOD: &str = r#"
[strategy]
name = "threshold"
[[path]]
name = "lte"
rat = "lte"
[path.volume]
month_mb = 5000
reset_day = 31
soft = 0.5
[[path]]
name = "nr"
rat = "nr"
"#;

    #[test]
    fn a_volume_is_that_of_the_path_above_it() {
        let config = parse(GOOD).ok().expect("readable");
        let of = |path: usize| config.paths[path].get_ref().volume.as_ref().map(Spanned::get_ref);
        assert!(of(1).is_none());
        let lte = of(0).expect("a volume");
        let expected = Limit { soft: 2_500_000_000, hard: 5_000_000_000 };
        assert_eq!((lte.day(), lte.month(), lte.reset_day()), (None, Some(expected), 31));
        let config = parse(&GOOD.replace("month_mb = 5000\nreset_day = 31\nsoft = 0.5", "day_mb = 10")).ok();
        let lte = config.expect("readable").paths[0].get_ref().volume.clone().expect("a volume").into_inner();
        let expected = Limit { soft: 9_000_000, hard: 10_000_000 };
        assert_eq!((lte.day(), lte.month(), lte.reset_day()), (Some(expected), None, 1));
    }

    #[test]
    fn a_fault_of_a_volume_names_its_line_and_what_to_do() {
        let cases = [
            ("month_mb = 5000\nreset_day = 31\nsoft = 0.5", "", 7, "limits nothing"),
            ("month_mb = 5000", "day_mb = 5000", 9, "`reset_day` without `month_mb`"),
            ("month_mb = 5000", "month_mb = 0", 8, "month_mb is 0"),
            ("month_mb = 5000", "month_mb = 100000001", 8, "month_mb is 100000001"),
            ("month_mb = 5000", "month_mb = -5", 8, "-5"),
            ("month_mb = 5000", "month_gb = 5", 8, "month_gb"),
            ("reset_day = 31", "reset_day = 0", 9, "reset_day is 0"),
            ("reset_day = 31", "reset_day = 32", 9, "reset_day is 32"),
            ("soft = 0.5", "soft = 0.0", 10, "soft is 0"),
            ("soft = 0.5", "soft = 1.01", 10, "soft is 1.01"),
            ("soft = 0.5", "soft = nan", 10, "soft is NaN"),
        ];
        for (good, bad, line, expected) in cases {
            let fault = parse(&GOOD.replacen(good, bad, 1)).err().unwrap_or_else(|| panic!("{bad} was accepted"));
            assert_eq!(fault.line, line, "{bad}: {}", fault.cause);
            assert!(fault.cause.contains(expected) && !fault.remedy.is_empty(), "{bad}: {}", fault.cause);
        }
    }
}
