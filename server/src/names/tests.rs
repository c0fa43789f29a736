//! Names of peers that do not resolve, resolve late, change, or lead to this machine.

use super::*;

fn at(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

fn all(texts: &[&str]) -> Vec<SocketAddr> {
    texts.iter().map(|text| at(text)).collect()
}

/// This replica's entry, and those of the others with what they stand for.
fn names(own: &str, others: &[(&str, &[&str])]) -> PeerNames {
    let others = others.iter().zip(2..);
    PeerNames {
        own: Own {
            item: own.to_owned(),
            address: own.parse().ok(),
        },
        listed: others
            .map(|((item, found), node_id)| Listed {
                addresses: all(found),
                ..Listed::new(NodeId(node_id), item)
            })
            .collect(),
        lookups: None,
    }
}

#[test]
fn a_lookup_that_fails_or_brings_nothing_of_use_takes_no_address_away() {
    let own = at("10.0.0.1:7");
    let mut listed = Listed::new(NodeId(2), "r2.example:7");
    assert!(listed.take(own, Ok(all(&["10.0.0.2:7"]))));
    for found in [
        Err("Temporary failure in name resolution".to_owned()),
        Ok(all(&["[2001:db8::2]:7"])),
        Ok(all(&["10.0.0.1:7"])),
    ] {
        assert!(!listed.take(own, found.clone()), "{found:?}");
        assert_eq!(listed.addresses, all(&["10.0.0.2:7"]));
        assert!(listed.problem.is_some(), "{found:?}");
    }
    assert!(listed.take(own, Ok(all(&["10.0.0.3:7"]))));
    assert_eq!(listed.problem, None);
}

/// A name service that gives its answers in turn would move a replica with each of them.
#[test]
fn of_many_addresses_the_present_one_stays_first_and_eight_are_kept() {
    let own = at("10.0.0.1:7");
    let mut listed = Listed::new(NodeId(2), "r2.example:7");
    let many = |from: u8| (from..from + 100).map(|n| SocketAddr::from(([10, 0, 1, n], 7)));
    listed.take(own, Ok(all(&["10.0.1.90:7"])));
    listed.take(own, Ok(many(1).rev().collect()));
    assert_eq!(listed.addresses.len(), CANDIDATES_MAX);
    assert_eq!(
        listed.addresses[..3],
        all(&["10.0.1.90:7", "10.0.1.1:7", "10.0.1.2:7"])
    );
    assert!(
        !listed.take(own, Ok(many(1).collect())),
        "nothing has changed"
    );
    listed.take(own, Ok(many(100).collect()));
    assert_eq!(listed.addresses[0], at("10.0.1.100:7"));
}

#[test]
fn a_silent_name_is_asked_for_more_often_and_never_twice_at_a_time() {
    let (own, start) = (at("10.0.0.1:7"), Instant::now());
    let mut listed = Listed::new(NodeId(2), "r2.example:7");
    assert!(listed.is_due(start, false));
    listed.asked_at = Some(start);
    assert!(
        !listed.is_due(start + ASK_EVERY, true),
        "a lookup that hangs is left alone"
    );
    listed.take(own, Ok(all(&["10.0.0.2:7"])));
    let answered = listed.answered_at.expect("just now");
    assert!(!listed.is_due(answered + ASK_SILENT_EVERY, false));
    assert!(listed.is_due(answered + ASK_SILENT_EVERY, true));
    assert!(listed.is_due(answered + ASK_EVERY, false));
    assert!(!Listed::new(NodeId(3), "10.0.0.3:7").is_due(start + ASK_EVERY, true));
}

/// The own name of a Debian host stands for 127.0.1.1 there. Such a replica blamed the others, which never heard of it.
#[test]
fn an_own_address_on_loopback_is_refused_among_other_machines() {
    let refused = |own: &str, others: &[(&str, &[&str])]| names(own, others).check_own().err();
    let machines: &[(&str, &[&str])] = &[("r2:7", &["10.0.0.2:7"]), ("r3:7", &[])];
    let failure = refused("127.0.1.1:7", machines).expect("refused");
    assert_eq!(failure.exit_status(), 2);
    let text = failure.to_string();
    assert!(
        text.contains("127.0.1.1:7") && text.contains("loopback"),
        "{text}"
    );
    assert!(text.contains("/etc/hosts"), "{text}");
    let local: &[(&str, &[&str])] = &[("r2:7", &["127.0.0.1:8"]), ("r3:7", &["10.0.0.3:7"])];
    for (own, others) in [
        ("10.0.0.1:7", machines),
        ("127.0.1.1:7", local),
        ("127.0.1.1:7", &[("r2:7", &[])]),
        ("127.0.1.1:7", &[]),
    ] {
        assert_eq!(refused(own, others), None, "{own} {others:?}");
    }
}

#[test]
fn the_own_address_is_of_the_groups_family_and_none_on_loopback_where_another_will_do() {
    let own = all(&["127.0.1.1:7", "[2001:db8::1]:7", "10.0.0.1:7"]);
    for (others, chosen) in [
        (&[("r2:7", &["10.0.0.2:7"][..])][..], "10.0.0.1:7"),
        (&[("r2:7", &[][..])], "10.0.0.1:7"),
        (
            &[
                ("r2:7", &["[2001:db8::2]:7"]),
                ("r3:7", &["[2001:db8::3]:7"]),
            ],
            "[2001:db8::1]:7",
        ),
        (
            &[("[2001:db8::2]:7", &["[2001:db8::2]:7"])],
            "[2001:db8::1]:7",
        ),
        (
            &[("localhost:8", &["127.0.0.1:8", "127.0.0.2:8"])],
            "127.0.1.1:7",
        ),
    ] {
        assert_eq!(
            names("r1:7", others).choose_own(&own),
            at(chosen),
            "{others:?}"
        );
    }
}

#[test]
fn two_names_for_one_address_are_told() {
    let names = names(
        "10.0.0.1:7",
        &[
            ("r2:7", &["10.0.0.2:7"]),
            ("r3:7", &["10.0.0.2:7"]),
            ("r4:7", &[]),
        ],
    );
    let status: Vec<EntryStatus> = (0..3).map(|number| names.state_of(number)).collect();
    assert_eq!(
        status,
        [
            EntryStatus::Fine(at("10.0.0.2:7")),
            EntryStatus::Shared(at("10.0.0.2:7")),
            EntryStatus::Missing
        ]
    );
    assert!(
        names.listed[1]
            .words(status[1])
            .contains("one of them is wrong")
    );
    assert!(
        names.listed[2]
            .words(status[2])
            .contains("continuing without node 4")
    );
}
