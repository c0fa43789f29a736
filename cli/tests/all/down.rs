//! `trine down` ends what `trine up` has begun; what a group in the background of a terminal says.

use crate::common::terminal::{self, AtTerminal};
use crate::common::up::Up;
use crate::common::{program, trine, wait_for};
use trine_base::ports::free_addresses;

#[test]
fn a_group_ends_with_and_without_a_key() {
    for more in [&[][..], &["--insecure"]] {
        let addresses = free_addresses(3).expect("free ports");
        let elsewhere = free_addresses(1).expect("a port")[0].to_string();
        let mut up = Up::start_at(&addresses, more);
        trine(&["put", "k", "v"], &up.peers, b"").expect_status(0);
        trine(&["down"], &elsewhere, b"").expect_error(1, &["no `trine up` of this user"]);
        // One of the addresses is enough.
        let one = addresses[2].to_string();
        let ran = trine(&["down", "--json"], &one, b"").expect_status(0);
        assert_eq!(ran.json()["ended"], serde_json::json!([up.child.id()]));
        let status = wait_for("the end", || up.child.try_wait().expect("wait"));
        assert!(status.success(), "{status}");
        trine(&["down"], &up.peers, b"").expect_error(1, &["no `trine up` of this user"]);
    }
}

/// It named Ctrl-C, which comes to somebody else there, and wrote each change of role behind the prompt.
#[test]
fn in_the_background_it_names_trine_down_and_leaves_the_prompt_alone() {
    let addresses = free_addresses(3).expect("free ports");
    let peers: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    let peers = peers.join(",");
    let mut shell = terminal::shell();
    shell
        .env("TRINE_BASE_PORT", addresses[0].port().to_string())
        .env("PS1", "");
    let mut shell = AtTerminal::start(shell);
    let program = program();
    shell.press(&format!("{} up &\n", program.display()));
    shell.expect("`trine down` ends the group, and with it the data");
    // Another one leads then, which two replicas tell.
    trine(&["leader", "transfer"], &peers, b"").expect_status(0);
    wait_for("all in step", || {
        let status = trine(&["status", "--json"], &peers, b"");
        (status.status == Some(0) && status.json()["failures_tolerated"] == 1).then_some(())
    });
    trine(&["down"], &peers, b"").expect_status(0);
    shell.press("wait; echo over $((40 + 2))\n");
    // Before that the shell tells of its job alone.
    let told = shell.until("over 42");
    assert!(
        !told.contains("follows") && !told.contains("leads"),
        "{told}"
    );
    assert!(!told.contains("stopping"), "{told}");
}
