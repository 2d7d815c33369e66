//! Counting with a clock, a calendar and a counter of the test.

use proptest::prelude::*;

use super::*;

const MB: u64 = 1_000_000;

fn date(text: &str) -> NaiveDate {
    text.parse().unwrap()
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_millis(ms)
}

fn limits(month_mb: u64) -> Limits {
    let limit = Limit { soft: month_mb * MB * 9 / 10, hard: month_mb * MB };
    Limits { day: None, month: Some(limit), reset_day: 1 }
}

fn reading(if_index: u32, bytes: u64) -> Option<Reading> {
    Some(Reading { if_index, bytes })
}

const TODAY: &str = "2026-11-25";

fn meter(kept: Option<Kept>) -> Meter {
    Meter::new(limits(100), kept, date(TODAY))
}

/// Bytes of the month after a check.
fn counted(meter: &mut Meter, ms: u64, today: &str, present: Option<Reading>) -> u64 {
    meter.check(at(ms), date(today), present);
    meter.uses()[0].bytes
}

/// The same agent after a SIGKILL, with the state that was written last.
fn restarted(kept: &Kept) -> Meter {
    meter(Some(kept.clone()))
}

/// The same after a loss of power.
fn rebooted(kept: &Kept) -> Meter {
    let mut kept = kept.clone();
    kept.after_boot();
    meter(Some(kept))
}

#[test]
fn an_interface_that_exists_at_the_first_start_is_counted_from_then_on() {
    let mut meter = meter(None);
    assert_eq!(counted(&mut meter, 0, TODAY, reading(3, 900 * MB)), 0);
    assert_eq!(counted(&mut meter, 50, TODAY, reading(3, 900 * MB + 5)), 5);
}

#[test]
fn an_interface_that_is_created_later_or_again_is_counted_from_zero() {
    let mut meter = meter(None);
    let all = [None, reading(3, 10), reading(3, 15), reading(4, 20), None, reading(5, 2), reading(5, 1), reading(5, 4)];
    let counts: Vec<u64> =
        all.into_iter().enumerate().map(|(n, now)| counted(&mut meter, n as u64 * 50, TODAY, now)).collect();
    assert_eq!(counts, [0, 10, 15, 35, 35, 37, 38, 41]);
}

#[test]
fn a_restart_in_the_same_boot_counts_exactly() {
    let mut first = meter(None);
    counted(&mut first, 0, TODAY, reading(3, 100));
    counted(&mut first, 50, TODAY, reading(3, 400));
    let kept = first.save(at(50));
    assert_eq!(counted(&mut restarted(&kept), 0, TODAY, reading(3, 900)), 800, "what was not saved, too");
    assert_eq!(counted(&mut restarted(&first.finish()), 0, TODAY, reading(3, 400)), 300);
    // The interface was created again while no agent ran: what was not saved before is unknown.
    assert_eq!(counted(&mut restarted(&kept), 0, TODAY, reading(4, 900)), 300 + MIN_RESERVE + 900);
    let mut waits = restarted(&kept);
    assert_eq!(counted(&mut waits, 0, TODAY, None), 300, "the counter may still be continued");
    assert_eq!(waits.finish().ahead, MIN_RESERVE);
    assert_eq!(counted(&mut waits, 50, TODAY, reading(3, 500)), 400);
}

#[test]
fn after_a_loss_of_power_the_reserve_and_the_whole_counter_are_added() {
    let mut first = meter(None);
    counted(&mut first, 0, TODAY, reading(3, 100));
    counted(&mut first, 50, TODAY, reading(3, 400));
    let kept = first.save(at(50));
    let mut next = rebooted(&kept);
    assert_eq!(next.uses()[0].bytes, 300 + MIN_RESERVE, "before the interface exists");
    assert_eq!(counted(&mut next, 0, TODAY, reading(3, 900)), 300 + MIN_RESERVE + 900);
    assert_eq!(counted(&mut rebooted(&first.finish()), 0, TODAY, reading(3, 900)), 1200, "after an orderly end");
}

#[test]
fn a_month_begins_at_zero_and_clocks_may_jump() {
    let mut meter = meter(None);
    counted(&mut meter, 0, "2026-11-30", reading(3, 0));
    assert_eq!(counted(&mut meter, 1, "2026-11-30", reading(3, 10)), 10);
    assert_eq!(counted(&mut meter, 2, "1970-01-01", reading(3, 11)), 11, "a clock that is not set");
    assert_eq!(counted(&mut meter, 3, "2037-05-05", reading(3, 12)), 1, "a clock that is ahead");
    assert_eq!(counted(&mut meter, 4, "2026-11-30", reading(3, 13)), 13, "and was corrected");
    assert_eq!(counted(&mut meter, 5, "2026-12-01", reading(3, 14)), 1, "the next month");
    assert_eq!(counted(&mut meter, 6, "2026-11-30", reading(3, 15)), 2, "a clock that is late");
    assert_eq!(counted(&mut meter, 7, "2026-12-01", reading(3, 16)), 3);
}

#[test]
fn another_reset_day_does_not_lose_what_was_counted() {
    let mut first = meter(None);
    counted(&mut first, 0, TODAY, reading(3, 0));
    counted(&mut first, 1, TODAY, reading(3, 70));
    let limits = Limits { reset_day: 26, ..limits(100) };
    let mut next = Meter::new(limits, Some(first.finish()), date(TODAY));
    assert_eq!(counted(&mut next, 0, TODAY, reading(3, 71)), 71);
    assert_eq!(counted(&mut next, 1, "2026-11-26", reading(3, 72)), 1);
}

#[test]
fn a_level_is_reported_once_and_written_at_once() {
    let limits = Limits { day: None, month: Some(Limit { soft: 90, hard: 100 }), reset_day: 1 };
    let mut meter = Meter::new(limits, None, date(TODAY));
    let mut level = |today: &str, bytes| {
        let changed = meter.check(at(bytes), date(today), reading(3, bytes));
        let is_due = meter.is_due(at(bytes));
        meter.save(at(bytes));
        (changed, is_due)
    };
    assert_eq!(level(TODAY, 0), (None, true), "the first state");
    assert_eq!(level(TODAY, 89), (None, false));
    assert_eq!(level(TODAY, 90), (Some(Volume::Scarce), true));
    assert_eq!(level(TODAY, 99), (None, false));
    assert_eq!(level(TODAY, 100), (Some(Volume::Exhausted), true));
    assert_eq!(level("2026-11-26", 101), (None, true), "another day");
    assert_eq!(level("2026-12-01", 102), (Some(Volume::Available), true));
    assert_eq!(meter.level(), Volume::Available);
}

#[test]
fn the_period_that_lasts_longest_closes_a_path() {
    let limit = Limit { soft: 5, hard: 10 };
    let limits = Limits { day: Some(limit), month: Some(limit), reset_day: 1 };
    let mut meter = Meter::new(limits, None, date(TODAY));
    counted(&mut meter, 0, TODAY, reading(3, 0));
    meter.check(at(1), date(TODAY), reading(3, 20));
    let shown: Vec<_> = meter.uses().iter().map(|of| (of.period, of.bytes, of.resets.to_string())).collect();
    assert_eq!(shown, [("month", 20, "2026-12-01".into()), ("day", 20, "2026-11-26".into())]);
}

#[test]
fn a_reserve_that_is_not_needed_any_more_is_given_back() {
    let mut meter = meter(None);
    for second in 0..20 {
        counted(&mut meter, second * 1000, TODAY, reading(3, second * 10 * MB));
        meter.save(at(second * 1000));
    }
    assert!(meter.kept.ahead > 90 * MB, "{}", meter.kept.ahead);
    let mut writes = 0;
    for second in 20..60 {
        counted(&mut meter, second * 1000, TODAY, reading(3, 190 * MB));
        if meter.is_due(at(second * 1000)) {
            meter.save(at(second * 1000));
            writes += 1;
        }
    }
    assert!(meter.kept.ahead <= MAX_SURPLUS * MIN_RESERVE && writes <= 3, "{writes} writes, {}", meter.kept.ahead);
}

/// Rate of the test's link: 100 Mbit/s.
const LINK_BYTES_S: u64 = 12_500_000;
/// Between two checks.
const STEP_MS: u64 = super::super::PERIOD.as_millis() as u64;

/// Traffic for a number of steps, as a share of the link's rate.
fn traffic() -> impl Strategy<Value = Vec<(u64, f64)>> {
    let share = prop_oneof![Just(0.0), Just(1.0), 0.0..0.02, 0.0..1.0];
    prop::collection::vec((1..400_u64, share), 1..30)
}

proptest! {
    /// A write takes up to 50 ms. The power may fail at any time: also within a write, and between two checks.
    #[test]
    fn at_most_a_megabyte_is_lost_with_the_power(
        traffic in traffic(),
        write_steps in prop::collection::vec(0..=1_u64, 64),
    ) {
        let steps: Vec<u64> = traffic.iter().flat_map(|(steps, share)| {
            let bytes = (LINK_BYTES_S as f64 * share * STEP_MS as f64 / 1000.0) as u64;
            std::iter::repeat_n(bytes, *steps as usize)
        }).collect();
        let mut meter = Meter::new(limits(1_000_000), None, date(TODAY));
        counted(&mut meter, 0, TODAY, reading(3, 0));
        let (mut carried, mut on_disk, mut writing, mut writes) = (0, meter.save(at(0)), None, 0);
        for (step, bytes) in steps.iter().enumerate() {
            // Just before the next check.
            let lost_at = carried + bytes * 9 / 10;
            let known = rebooted(&on_disk).uses()[0].bytes;
            prop_assert!(known + MB >= lost_at, "{known} of {lost_at} bytes are known in step {step}");
            prop_assert!(known <= lost_at + on_disk.ahead, "{known} instead of {lost_at} in step {step}");
            carried += bytes;
            let now = step as u64 + 1;
            meter.check(at(now * STEP_MS), date(TODAY), reading(3, carried));
            if let Some((_, kept)) = writing.take_if(|(ends, _)| now >= *ends) {
                on_disk = kept;
            }
            if writing.is_none() && meter.is_due(at(now * STEP_MS)) {
                writing = Some((now + write_steps[writes % 64], meter.save(at(now * STEP_MS))));
                writes += 1;
                // One that ends at once is on the disk before the next check.
                if let Some((_, kept)) = writing.take_if(|(ends, _)| now >= *ends) {
                    on_disk = kept;
                }
            }
        }
        // One for each half of a reserve, and those that only make it smaller.
        let most = 1 + 2 * carried / MIN_RESERVE + steps.len() as u64 * STEP_MS / 10_000;
        prop_assert!(writes as u64 <= most, "{writes} writes for {carried} bytes");
    }

    /// Neither a SIGKILL nor a clock that is late or ahead for a while loses a byte.
    #[test]
    fn nothing_is_lost_when_the_agent_is_killed_and_the_clock_jumps(
        steps in prop::collection::vec((0..100_000_u64, any::<bool>(), 0..5_usize), 1..100),
    ) {
        const DATES: [&str; 5] = [TODAY, TODAY, "1970-01-01", "2026-10-31", "2037-05-05"];
        let (mut meter, mut carried) = (meter(None), 0);
        counted(&mut meter, 0, TODAY, reading(3, 0));
        let mut on_disk = meter.save(at(0));
        for (step, (bytes, is_killed, clock)) in steps.into_iter().enumerate() {
            carried += bytes;
            let ms = (step as u64 + 1) * STEP_MS;
            if is_killed {
                meter = restarted(&on_disk);
            }
            let known = counted(&mut meter, ms, DATES[clock], reading(3, carried));
            prop_assert!(DATES[clock] != TODAY || known == carried, "{known} instead of {carried} in step {step}");
            if meter.is_due(at(ms)) {
                on_disk = meter.save(at(ms));
            }
        }
    }
}
