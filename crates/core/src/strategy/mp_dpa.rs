//! Nota 2020, Algorithm 1: each object over the preferred path, over the others too when it would be late.

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use super::{Entry, Strategy};
use crate::allocate::mp_dpa::{MpDpa, Params};
use crate::allocate::{Allocator, Mode};
use crate::assess::{Assessor, throughput::Rate};
use crate::path::PathSpec;

/// Its entry in the catalogue.
pub const ENTRY: Entry = Entry::new::<Params>("mp-dpa", "Algorithm 1 of Nota 2020");

impl Strategy for Params {
    fn assessors(&self, _: &PathSpec) -> Vec<Box<dyn Assessor + Send>> {
        vec![Box::new(Rate::default())]
    }

    fn lacks(&self, mode: Mode) -> Option<&'static str> {
        matches!(mode, Mode::CostFirst | Mode::Interactive).then_some("it chooses the paths by the deadlines already")
    }

    fn allocator(&self, _: Mode) -> Box<dyn Allocator + Send> {
        Box::new(MpDpa::new(*self))
    }

    fn needs_deadlines(&self) -> bool {
        true
    }
}
