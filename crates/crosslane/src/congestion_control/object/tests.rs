use sha2::{Digest, Sha256};

use super::*;

/// The kernel's BTF; none, after printing the reason, where there is none.
fn kernel_btf() -> Option<Vec<u8>> {
    std::fs::read("/sys/kernel/btf/vmlinux")
        .inspect_err(|cause| eprintln!("NOT RUN: /sys/kernel/btf/vmlinux: {cause}"))
        .ok()
}

fn error_of(object: &[u8], btf: &[u8]) -> String {
    CongestionControl::new(object, btf).unwrap_err().to_string()
}

#[test]
fn the_shipped_object_is_made_from_the_shipped_source() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/");
    let sums = std::fs::read_to_string(format!("{folder}SHA256SUMS")).unwrap();
    assert_eq!(sums.lines().count(), 2);
    for line in sums.lines() {
        let (sum, name) = line.split_once("  ").unwrap();
        let digest = Sha256::digest(std::fs::read(format!("{folder}{name}")).unwrap());
        let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(digest, sum, "{name} has changed: run `make bpf`");
    }
}

#[test]
fn the_shipped_object_fits_this_kernel() {
    let Some(btf) = kernel_btf() else { return };
    let control = CongestionControl::new(SHIPPED, &btf).unwrap();
    let mut names: Vec<_> = control.members.iter().map(|member| member.name.as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, ["lia_cong_avoid", "lia_ssthresh", "lia_undo_cwnd"]);
    assert_eq!(control.licence.to_str(), Ok("Dual BSD/GPL"));
    assert!(
        control.members.iter().all(|member| member.offset < control.value_bytes && !member.instructions.is_empty())
    );
}

#[test]
fn the_object_has_the_name_that_the_loader_gives_it() {
    let name = [super::super::LIA.as_bytes(), &[0; 13]].concat();
    assert!(SHIPPED.windows(16).any(|window| window == name), "another loader would register it under another name");
}

#[test]
fn a_broken_object_is_one_sentence_with_a_remedy() {
    let Some(btf) = kernel_btf() else { return };
    for length in [0, 1, 63, 64, 200, SHIPPED.len() / 2, SHIPPED.len() - 1] {
        let error = error_of(&SHIPPED[..length], &btf);
        assert!(error.starts_with("while reading the BPF object of this program: "), "{length} bytes: {error}");
        assert!(error.ends_with("make bpf`, and crosslane again") && !error.contains('\n'), "{error}");
    }
}

#[test]
fn a_kernel_without_what_it_needs_is_one_sentence_with_a_remedy() {
    let Some(btf) = kernel_btf() else { return };
    let renamed = |from: &str| {
        let mut btf = btf.clone();
        let name = [b"\0", from.as_bytes(), b"\0"].concat();
        let at = btf.windows(name.len()).position(|window| window == name).unwrap();
        btf[at + 1] = b'X';
        btf
    };
    let error = error_of(SHIPPED, &renamed("bpf_struct_ops_tcp_congestion_ops"));
    assert!(error.contains("this kernel has no BPF congestion control; boot a kernel with"), "{error}");
    let error = error_of(SHIPPED, &renamed("mptcp_subflow_context"));
    assert!(error.contains("this kernel has no MPTCP; boot a kernel with CONFIG_MPTCP=y"), "{error}");
    let error = error_of(SHIPPED, b"no BTF");
    assert!(error.contains("this kernel has no BPF congestion control"), "{error}");
}
