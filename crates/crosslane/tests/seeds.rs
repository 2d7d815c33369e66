//! Every input in `fuzz/seeds` through its fuzz target's function: small ones that
//! mean something, and those that once were found to break something.
#![allow(missing_docs, clippy::unwrap_used)]

use std::fs;
use std::path::Path;

#[path = "../../core/tests/chaos/mod.rs"]
mod chaos;
#[path = "../../../fuzz/targets/cam.rs"]
mod cam;
#[path = "../../../fuzz/targets/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/targets/decoders.rs"]
mod decoders;
#[path = "../../../fuzz/targets/demands.rs"]
mod demands;
#[path = "../../../fuzz/targets/end.rs"]
mod end;
#[path = "../../../fuzz/targets/import.rs"]
mod import;
#[path = "../../../fuzz/targets/inner.rs"]
mod inner;
#[path = "../../../fuzz/targets/liar.rs"]
mod liar;
#[path = "../../../fuzz/targets/netlink.rs"]
mod netlink;
#[path = "../../../fuzz/targets/offload.rs"]
mod offload;
#[path = "../../../fuzz/targets/transfer.rs"]
mod transfer;

/// Plays all inputs of a target; there is one at least.
fn play(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    for file in files {
        println!("{}", file.display());
        run(&fs::read(&file).unwrap());
    }
}

macro_rules! seeds {
    ($($name:ident: $run:path;)*) => {
        $(
            #[test]
            fn $name() {
                play(stringify!($name), $run);
            }
        )*
    };
}

seeds! {
    cam: cam::run;
    configuration: configuration::run;
    decoders: decoders::run;
    demands: demands::run;
    end: end::run;
    import: import::run;
    inner: inner::run;
    liar: liar::run;
    netlink: netlink::run;
    offload: offload::run;
    transfer: transfer::run;
    engine_liar: chaos::liar;
    pair: chaos::pair;
    stranger: chaos::stranger;
}
