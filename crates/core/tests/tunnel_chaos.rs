//! The tunnel's engine under arbitrary loss, duplication, reordering and false reports. `PROPTEST_CASES`
//! sets the number of cases; `fuzz/` runs longer.

use proptest::prelude::*;

use crate::chaos;

fn script() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![prop::collection::vec(any::<u8>(), 0..400), prop::collection::vec(any::<u8>(), 2000..6000)]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn each_packet_is_delivered_at_most_once_and_in_order_on_any_wire(script in script()) {
        chaos::pair(&script);
    }

    #[test]
    fn the_engine_stays_within_its_limits_for_any_input(script in script()) {
        chaos::stranger(&script);
    }

    #[test]
    fn the_engine_stays_within_its_limits_for_any_false_report(script in script()) {
        chaos::liar(&script);
    }
}
