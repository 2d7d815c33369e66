//! Durations, as users write and read them.

use std::time::Duration;

/// Longest time on the command line.
pub const MAX_TIME: Duration = Duration::from_secs(10_000 * 3600);

/// `10s`, `500ms`, `2m`, `1h`.
pub fn duration(text: &str) -> Result<Duration, String> {
    let split = text.find(|letter: char| !(letter.is_ascii_digit() || letter == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let unit_s = match unit {
        "ms" => 0.001,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(format!("{text:?} is not a time; write 10s, 500ms, 2m or 1h")),
    };
    let number: f64 = number.parse().map_err(|_| format!("{number:?} is not a number; write 10s, 500ms, 2m or 1h"))?;
    match number * unit_s {
        0.0 => Err("the time is 0; give more than 0".into()),
        seconds if seconds > MAX_TIME.as_secs_f64() => Err("give at most 10000h".into()),
        seconds => Ok(Duration::from_secs_f64(seconds)),
    }
}

/// A time as people say it: `0.3 s`, `12 s`, `3 min`, `2 h 5 min`, `4 d 3 h`.
pub fn spoken(seconds: f64) -> String {
    let whole = seconds.max(0.0).round() as u64;
    let (minutes, hours, days) = (whole / 60, whole / 3600, whole / 86_400);
    match whole {
        0..10 => format!("{:.1} s", seconds.max(0.0)),
        10..60 => format!("{whole} s"),
        60..3600 => format!("{minutes} min"),
        3600..86_400 => format!("{hours} h {} min", minutes % 60),
        _ => format!("{days} d {} h", hours % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_a_unit_and_are_above_zero() {
        for (text, milliseconds) in [("10s", 10_000), ("500ms", 500), ("1.5m", 90_000), ("1h", 3_600_000)] {
            assert_eq!(duration(text), Ok(Duration::from_millis(milliseconds)), "{text}");
        }
        for text in ["", "10", "s", "0s", "-1s", "1.2.3s", "1e3s", "20000h", "9999999999999999999999h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_is_said_with_the_units_that_matter() {
        let cases = [
            (-1.0, "0.0 s"),
            (0.25, "0.2 s"),
            (9.4, "9.4 s"),
            (59.4, "59 s"),
            (60.0, "1 min"),
            (3_600.0, "1 h 0 min"),
            (7_520.0, "2 h 5 min"),
            (356_400.0, "4 d 3 h"),
        ];
        for (seconds, text) in cases {
            assert_eq!(spoken(seconds), text);
        }
    }
}
