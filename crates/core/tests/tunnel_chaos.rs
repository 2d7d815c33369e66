//! The tunnel's engine under arbitrary loss, duplication, reordering, and lies.
//! `PROPTEST_CASES` says how often; `fuzz/` looks for longer.

mod chaos;

use proptest::prelude::*;

fn script() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..400), prop::collection::vec(any::<u8>(), 2000..6000)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_the_wire_does_each_packet_comes_once_at_most_and_in_order(script in script()) {
        chaos::pair(&script);
    }

    #[test]
    fn whatever_the_other_end_says_the_engine_stays_well(script in script()) {
        chaos::stranger(&script);
    }

    #[test]
    fn whatever_an_authenticated_liar_reports_the_engine_stays_well(script in script()) {
        chaos::liar(&script);
    }
}
