use super::super::parse;

const KEY: &str = "wZzyuoHAp9fWVjyaCgnQ2Tb0Tr9ne0ZcF1i5cW0h5kE=";
const GOOD: &str = r#"
[[path]]
name = "lte"
rat = "lte"
[service]
prefer = ["roadside"]
[observe]
vanetza = "127.0.0.1:5051"
[strategy]
name = "threshold"
[roadside]
interface = "its-g5"
tunnel = "vxlan"
slots = 2
[[roadside.unit]]
station = 1001
name = "rsu1"
address = "10.80.0.11"
inner = "10.81.0.2/24"
[[roadside.unit]]
station = 1002
name = "rsu2"
address = "10.80.0.12"
inner = "10.82.0.2/24"
"#;

#[test]
fn units_precede_the_paths_if_they_are_preferred() {
    let config = parse(GOOD).unwrap_or_else(|fault| panic!("line {}: {}", fault.line, fault.cause));
    assert_eq!((config.unit_rank(), config.ranks()), (0, vec![1]));
    let config = parse(&GOOD.replace("prefer = [\"roadside\"]", "")).ok().expect("readable");
    assert_eq!((config.unit_rank(), config.ranks()), (1, vec![0]));
}

#[test]
fn with_a_controller_no_unit_need_be_configured() {
    let keys = format!("key = \"own.key\"\ncontroller = \"gateway.example:4761\"\ncontroller_key = \"{KEY}\"\n");
    let (head, _) = GOOD.split_once("[[roadside.unit]]").expect("a unit");
    assert!(parse(&format!("{head}{keys}")).is_ok());
    assert!(parse(head).is_err(), "neither unit nor controller");
}

#[test]
fn without_tunnels_neither_the_radio_nor_the_address_of_a_unit_is_needed() {
    let none = GOOD.replace("tunnel = \"vxlan\"", "tunnel = \"none\"").replace("interface = \"its-g5\"\n", "");
    let lines = none.lines().filter(|line| !line.starts_with("address"));
    let text: String = lines.map(|line| format!("{line}\n")).collect();
    assert!(parse(&text).is_ok());
    assert!(parse(&text.replace("\"none\"", "\"gre\"")).is_err());
}

#[test]
fn a_fault_of_the_units_names_its_line_and_what_to_do() {
    let key = format!("inner = \"10.82.0.2/24\"\nkey = \"{KEY}\"");
    let controller =
        |address: &str, key: &str| format!("slots = 2\ncontroller = \"{address}\"\ncontroller_key = \"{key}\"");
    let cases = [
        ("station = 1002", "station = 1001", 20, "units \"rsu1\" and \"rsu2\" have the station id 1001"),
        ("inner = \"10.82.0.2/24\"", "inner = \"10.81.0.9/16\"", 24, "prefixes that overlap"),
        ("inner = \"10.82.0.2/24\"", "inner = \"10.82.0.1/24\"", 24, "whose first address"),
        ("inner = \"10.82.0.2/24\"", "inner = \"10.82.0.2/31\"", 24, "no IPv4 prefix of at most 30 bits"),
        ("inner = \"10.82.0.2/24\"", "inner = \"fd82::2/64\"", 24, "no IPv4 prefix"),
        ("inner = \"10.82.0.2/24\"", "inner = \"10.80.0.2/24\"", 24, "contains an address outside"),
        ("name = \"rsu2\"", "name = \"rsu1\"", 20, "two units are named"),
        ("name = \"rsu2\"", "name = \"lte\"", 20, "that of a path"),
        ("name = \"rsu2\"", "name = \"roadside unit 2\"", 20, "is invalid"),
        ("address = \"10.80.0.12\"", "address = \"10.80.0.11\"", 20, "the address 10.80.0.11"),
        ("address = \"10.80.0.12\"", "", 20, "has no `address`"),
        ("station = 1002", "station = 16778217", 20, "the same VXLAN network"),
        ("tunnel = \"vxlan\"", "tunnel = \"ipip\"", 13, "unknown word `ipip`"),
        ("tunnel = \"vxlan\"", "tunnel = \"crosslane\"", 11, "have no `key`"),
        ("tunnel = \"vxlan\"", "tunnel = \"crosslane\"\nkey = \"own.key\"", 16, "unit \"rsu1\" has no `key`"),
        ("tunnel = \"vxlan\"", "tunnel = \"vxlan\"\nkey = \"own.key\"", 14, "only tunnels of kind"),
        ("inner = \"10.82.0.2/24\"", &key, 25, "only tunnels of kind"),
        ("slots = 2", "slots = 16", 14, "16 slots, with 15 left of 16 paths"),
        ("slots = 2", "slots = 0", 14, "0 slots"),
        ("slots = 2", "home = \"10.99.0.0/24\"", 14, "the home address 10.99.0.0/24 is no IPv4 host"),
        ("slots = 2", "home = \"fd99::7/128\"", 14, "is no IPv4 host"),
        ("slots = 2", "home = \"10.82.0.9/32\"", 14, "belongs to a unit"),
        ("vanetza = \"127.0.0.1:5051\"", "", 11, "no CAM of a unit would arrive"),
        ("slots = 2", "slots = 2\ncontroller = \"192.0.2.1:4761\"", 15, "has no `controller_key`"),
        ("slots = 2", &controller("192.0.2.1:4761", KEY), 15, "a `controller` without a `key`"),
        ("slots = 2", &controller("192.0.2.1", KEY), 15, "\"192.0.2.1\" has no port"),
        ("slots = 2", &controller("192.0.2.1:4761", "short"), 16, "is no public key"),
        ("slots = 2", &format!("controller_key = \"{KEY}\""), 14, "without `controller`"),
        ("rat = \"lte\"", "rat = \"lte\"\nstations = [1001]", 16, "one of a path's `stations`"),
    ];
    for (good, bad, line, expected) in cases {
        let fault = parse(&GOOD.replacen(good, bad, 1)).err().unwrap_or_else(|| panic!("{bad} was accepted"));
        assert!(fault.cause.contains(expected), "{bad}: {}", fault.cause);
        assert_eq!(fault.line, line, "{bad}: {}", fault.cause);
        assert!(!fault.remedy.is_empty());
    }
}
