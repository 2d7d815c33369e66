//! Numbers of days and of months that begin on a given day.

use chrono::{Datelike, Days, NaiveDate};

/// Number of a day.
pub fn day(date: NaiveDate) -> i32 {
    date.num_days_from_ce()
}

/// Number of the month in which a date is, if months begin on this day, or else on their last one.
pub fn month(date: NaiveDate, reset_day: u8) -> i32 {
    let number = date.year() * 12 + date.month0() as i32;
    if date < beginning(number, reset_day) { number - 1 } else { number }
}

/// The day after this one.
pub fn end_of_day(date: NaiveDate) -> NaiveDate {
    date.checked_add_days(Days::new(1)).unwrap_or(date)
}

/// First day of the month after that of a date.
pub fn end_of_month(date: NaiveDate, reset_day: u8) -> NaiveDate {
    beginning(month(date, reset_day) + 1, reset_day)
}

/// First day of a month.
fn beginning(number: i32, reset_day: u8) -> NaiveDate {
    let (year, month) = (number.div_euclid(12), number.rem_euclid(12) as u32 + 1);
    let mut days = (1..=u32::from(reset_day)).rev();
    days.find_map(|day| NaiveDate::from_ymd_opt(year, month, day)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn date(text: &str) -> NaiveDate {
        text.parse().unwrap()
    }

    #[test]
    fn a_month_begins_on_its_day_or_else_on_its_last() {
        for (reset_day, of, ends) in [
            (1, "2026-11-30", "2026-12-01"),
            (1, "2026-12-01", "2027-01-01"),
            (15, "2026-11-14", "2026-11-15"),
            (15, "2026-11-15", "2026-12-15"),
            (31, "2027-01-30", "2027-01-31"),
            (31, "2027-01-31", "2027-02-28"),
            (31, "2027-02-27", "2027-02-28"),
            (31, "2027-02-28", "2027-03-31"),
            (31, "2028-02-28", "2028-02-29"),
            (30, "2028-02-29", "2028-03-30"),
            (29, "2027-12-31", "2028-01-29"),
        ] {
            assert_eq!(end_of_month(date(of), reset_day), date(ends), "{reset_day} {of}");
        }
    }

    #[test]
    fn every_day_of_ten_years_is_in_the_month_before_the_next_reset() {
        for reset_day in [1, 15, 28, 29, 30, 31] {
            let (mut now, mut number) = (date("2020-01-01"), month(date("2020-01-01"), reset_day));
            while now < date("2030-01-01") {
                let (next, end) = (end_of_day(now), end_of_month(now, reset_day));
                assert!(now < end && day(next) == day(now) + 1);
                let expected = if next == end { number + 1 } else { number };
                number = month(next, reset_day);
                assert_eq!(number, expected, "{reset_day} {next}");
                now = next;
            }
        }
    }
}
