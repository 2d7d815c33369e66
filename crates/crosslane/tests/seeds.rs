//! Runs every input in `fuzz/seeds` through the function of its fuzz target: small valid
//! inputs, and inputs that once caused a failure. Then repeats each with random mutations;
//! `SEED_MUTATIONS` is their number.
// Two targets include the same gateway module.
#![allow(missing_docs, clippy::unwrap_used, clippy::duplicate_mod)]

use std::fs;
use std::panic::catch_unwind;
use std::path::Path;

use crosslane_core::rng::Rng;

#[path = "../../../fuzz/targets/cam.rs"]
mod cam;
#[path = "../../core/tests/chaos/mod.rs"]
mod chaos;
#[path = "../../../fuzz/targets/configuration.rs"]
mod configuration;
#[path = "../../../fuzz/targets/decoders.rs"]
mod decoders;
#[path = "../../../fuzz/targets/demands.rs"]
mod demands;
#[path = "../../../fuzz/targets/end.rs"]
mod end;
#[path = "../../../fuzz/targets/handshake.rs"]
mod handshake;
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
#[path = "../../../fuzz/targets/roadside.rs"]
mod roadside;
#[path = "../../../fuzz/targets/transfer.rs"]
mod transfer;

/// Default number of mutations of each input.
const MUTATIONS: u32 = 50;
/// Bytes with a special meaning in many formats.
const SPECIAL_BYTES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'"', b'-', b'9'];

/// Runs all inputs of a target; fails if there is none.
fn run_target(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(target);
    let mut files: Vec<_> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    let seeds: Vec<Vec<u8>> = files.iter().map(|file| fs::read(file).unwrap()).collect();
    for (file, seed) in files.iter().zip(&seeds) {
        println!("{}", file.display());
        run(seed);
    }
    let mutations = std::env::var("SEED_MUTATIONS").map_or(MUTATIONS, |count| count.parse().unwrap());
    let mut random = Rng::new(1, target);
    for seed in (0..mutations).flat_map(|_| &seeds) {
        let mutated = mutated(seed, &seeds, &mut random);
        let result = catch_unwind(|| run(&mutated));
        assert!(result.is_ok(), "failing input: {}", mutated.escape_ascii());
    }
}

/// Applies up to eight mutations: bytes set or inserted, bits flipped, parts removed, duplicated or taken from another input.
fn mutated(seed: &[u8], seeds: &[Vec<u8>], random: &mut Rng) -> Vec<u8> {
    let mut bytes = seed.to_vec();
    for _ in 0..=random.below(8) {
        let at = random.below(bytes.len() as u32 + 1) as usize;
        let end = (at + random.below(16) as usize).min(bytes.len());
        match random.below(7) {
            0 => bytes.truncate(at.max(4)),
            1 => drop(bytes.drain(at..end)),
            2 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part);
            }
            3 => {
                let other = &seeds[random.below(seeds.len() as u32) as usize];
                let from = random.below(other.len() as u32 + 1) as usize;
                let to = (from + random.below(64) as usize).min(other.len());
                bytes.splice(at..at, other[from..to].iter().copied());
            }
            _ if at == bytes.len() => bytes.push(random.below(256) as u8),
            4 => bytes[at] = SPECIAL_BYTES[random.below(8) as usize],
            5 => bytes[at] ^= 1 << random.below(8),
            _ => bytes[at] = random.below(256) as u8,
        }
    }
    bytes
}

macro_rules! seeds {
    ($($name:ident: $run:path;)*) => {
        $(
            #[test]
            fn $name() {
                run_target(stringify!($name), $run);
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
    handshake: handshake::run;
    import: import::run;
    inner: inner::run;
    liar: liar::run;
    netlink: netlink::run;
    offload: offload::run;
    roadside: roadside::run;
    transfer: transfer::run;
    engine_liar: chaos::liar;
    pair: chaos::pair;
    stranger: chaos::stranger;
}
