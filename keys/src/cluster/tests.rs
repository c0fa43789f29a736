//! What a cluster key file looks like, and what is said of one that does not.

use super::*;
use proptest::prelude::*;

fn key() -> ClusterKey {
    ClusterKey::new(GroupId([0x11; 8]), [1; 32], [2; 32])
}

fn error(text: &str) -> String {
    ClusterKey::parse(text)
        .expect_err("no cluster key")
        .to_string()
}

#[test]
fn the_file_has_this_text() {
    let text = key().to_text();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("# Cluster key of a trine group."));
    assert!(lines[1].contains("chmod 600"));
    assert_eq!(lines[2], "trine-cluster-key = 1");
    assert_eq!(lines[3], "group = 1111111111111111");
    assert_eq!(lines[4], format!("member-root = {}", "01".repeat(32)));
    assert_eq!(lines[5], format!("user-root = {}", "02".repeat(32)));
    assert_eq!(lines[6], "check = 92b71ab28e8f7432");
    assert_eq!(lines.len(), 7);
    assert_eq!(ClusterKey::parse(&text), Ok(key()));
}

/// Windows' line ends, further comments and another order change nothing.
#[test]
fn the_form_of_the_lines_does_not_matter() {
    let text = key().to_text().replace('\n', "\r\n");
    assert_eq!(ClusterKey::parse(&text), Ok(key()));
    let text = key()
        .to_text()
        .replace(" = ", "=")
        .replace("\ngroup", "\n\n# of us\n  group");
    assert_eq!(ClusterKey::parse(&text), Ok(key()));
}

#[test]
fn a_file_that_was_cut_off_anywhere_is_refused() {
    let text = key().to_text();
    let whole = text.trim_end().len();
    for end in 0..whole {
        let said = error(&text[..end]);
        let names_it = [
            "cut off",
            "is not `name = value`",
            "this release reads",
            "first line is",
        ];
        assert!(
            names_it.iter().any(|part| said.contains(part)),
            "{end}: {said}"
        );
    }
    assert_eq!(ClusterKey::parse(&text[..whole]), Ok(key()));
    let at_user_root = text.find("user-root").expect("there");
    assert_eq!(
        error(&text[..at_user_root]),
        "line 6: the file ends and `user-root` is missing: it was cut off, copy it again"
    );
    assert_eq!(
        error(&text[..at_user_root + 20]),
        "line 6: `user-root` has 64 digits 0-9 a-f; was the file cut off or changed? Copy it again"
    );
}

#[test]
fn every_mistake_is_named_with_its_line() {
    let text = key().to_text();
    let with = |from: &str, to: &str| error(&text.replacen(from, to, 1));
    assert_eq!(
        error(""),
        "no key is in the file; was it cut off? `trine key new FILE` makes a new one"
    );
    assert_eq!(error("# only\n"), error(""));
    assert_eq!(
        error("trine-key-1:alice:1:3f2a91c0:00:00"),
        "line 1: this is a user's key, and a cluster key file is needed"
    );
    assert_eq!(
        error("-----BEGIN PRIVATE KEY-----"),
        "line 1 is not `name = value`: was the file cut off, or is it none of `trine key new`?"
    );
    assert_eq!(
        with("group =", "grope ="),
        "line 4 has an unknown name: is it a cluster key file of `trine key new`?"
    );
    assert_eq!(
        with("trine-cluster-key = 1\n", ""),
        "line 3: the first line is `trine-cluster-key = 1` in a cluster key file of `trine key new`"
    );
    assert_eq!(
        with("key = 1", "key = 2"),
        "line 3: this release reads version 1 of cluster key files: use a later release"
    );
    assert_eq!(
        with("user-root =", "member-root ="),
        "line 6: `member-root` occurs twice: keep one of the lines, the other belongs to another file"
    );
    assert_eq!(
        with("0101", "01g1"),
        "line 5: `member-root` has 64 digits 0-9 a-f; was the file cut off or changed? Copy it again"
    );
    assert_eq!(
        with("0101", "0102"),
        "line 7: `check` does not match the lines before it: a character was changed, copy the file again"
    );
    assert_eq!(
        error(&format!("{}user-root = 1\n", *text)),
        "line 8 follows `check`, which ends the file: remove what was appended"
    );
}

/// A file and its three steps.
fn steps() -> [ClusterKey; 4] {
    let first = key().accepting([3; 32]).expect("settled");
    let second = first.clone().switched().expect("begun");
    let last = second.clone().settled().expect("switched");
    [key(), first, second, last]
}

#[test]
fn the_member_root_changes_in_three_steps() {
    let [before, first, second, last] = steps();
    assert_eq!(first.member(), before.member());
    let new = first.accepted_member().expect("a second root");
    assert_ne!(new.0, before.member().0);
    assert_eq!(second.member(), new);
    assert_eq!(second.accepted_member(), Some(before.member()));
    assert_eq!((last.member(), last.accepted_member()), (new, None));
    for step in [first, second] {
        assert_eq!(
            step.admin(),
            before.admin(),
            "administrators notice nothing"
        );
        assert_eq!(ClusterKey::parse(&step.to_text()), Ok(step));
    }
}

#[test]
fn a_step_out_of_order_is_refused_and_says_what_comes_next() {
    let [before, first, second, _] = steps();
    let said = |result: Result<ClusterKey, OutOfOrder>| result.expect_err("refused").to_string();
    for step in [&first, &second] {
        assert!(step.clone().accepting([4; 32]).is_err());
    }
    assert!(said(first.clone().settled()).contains("--switch` comes next"));
    assert!(said(second.clone().switched()).contains("--finish` comes next"));
    assert!(said(second.accepting([4; 32])).contains("--finish` comes next"));
    assert!(said(before.clone().switched()).contains("--begin` comes first"));
    assert!(said(before.settled()).contains("--begin` comes first"));
}

/// A server takes the neighbouring steps, in either direction, and none further away: its peers could not connect.
#[test]
fn a_server_goes_one_step_at_a_time() {
    let steps = steps();
    for (from, present) in steps.iter().enumerate() {
        for (to, next) in steps.iter().enumerate() {
            let allowed = from.abs_diff(to) <= 1;
            assert_eq!(next.follows(present).is_ok(), allowed, "{from} to {to}");
        }
    }
    let skipped = steps[3].follows(&steps[0]).expect_err("two steps");
    assert!(matches!(skipped, NotNext::Skipped { .. }));
    assert!(skipped.to_string().contains("the step between"));
    let other_group = ClusterKey::new(GroupId([0x12; 8]), [1; 32], [2; 32]);
    let error = other_group.follows(&key()).expect_err("another group");
    assert!(
        error.to_string().contains("group 1212121212121212"),
        "{error}"
    );
    let other_users = ClusterKey::new(GroupId([0x11; 8]), [1; 32], [5; 32]);
    let error = other_users.follows(&key()).expect_err("other users");
    assert!(error.to_string().contains("all keys of users"), "{error}");
}

#[test]
fn roots_of_two_steps_in_one_file_are_refused() {
    let text = steps()[1].to_text();
    let mixed = text.replace(
        "user-root",
        &format!("last-member-root = {}\nuser-root", "09".repeat(32)),
    );
    assert!(error(&mixed).starts_with("line 7: `next-member-root` and `last-member-root`"));
}

#[test]
fn the_keys_of_each_kind_and_group_differ() {
    let other_group = ClusterKey::new(GroupId([0x12; 8]), [1; 32], [2; 32]);
    let alike = ClusterKey::new(GroupId([0x11; 8]), [1; 32], [1; 32]);
    assert_ne!(key().member(), other_group.member());
    assert_ne!(key().admin(), other_group.admin());
    assert_ne!(key().issuer(), other_group.issuer());
    assert_ne!(
        alike.member().1,
        alike.admin().1,
        "not even if the roots are the same"
    );
}

#[test]
fn random_bytes_are_all_used() {
    let random = std::array::from_fn(|index| index as u8);
    let made = ClusterKey::from_random(&random);
    assert_eq!(made.group().0, random[..8]);
    for at in 0..random.len() {
        let mut other = random;
        other[at] ^= 1;
        assert_ne!(ClusterKey::from_random(&other), made, "{at}");
    }
}

#[test]
fn nothing_secret_is_shown() {
    let shown = format!("{:?}", key());
    assert!(
        !shown.contains("0101") && !shown.contains("1, 1"),
        "{shown}"
    );
}

proptest! {
    #[test]
    fn what_is_written_is_read(random in prop::collection::vec(any::<u8>(), 72), second in any::<Option<[u8; 32]>>()) {
        let mut key = ClusterKey::from_random(&random.try_into().expect("72"));
        if let Some(root) = second {
            key = key.accepting(root).expect("settled");
            if root[0] % 2 == 0 {
                key = key.switched().expect("begun");
            }
        }
        prop_assert_eq!(ClusterKey::parse(&key.to_text()), Ok(key));
    }

    /// A changed character outside of the comment never gives another key.
    #[test]
    fn a_changed_character_gives_no_other_key(at in 0_usize..1_000, character in "[ -~\n]") {
        let text = key().to_text();
        let at = at % text.len();
        let mut changed = String::from(&text[..at]);
        changed.push_str(&character);
        changed.push_str(&text[at + 1..]);
        if let Ok(read) = ClusterKey::parse(&changed) {
            prop_assert_eq!(read, key());
        }
    }

    #[test]
    fn any_text_is_answered(text in "(trine-cluster-key = 1\n)?([a-z-]{0,20} ?= ?[0-9a-f]{0,70}\n){0,8}") {
        let _ = ClusterKey::parse(&text);
    }
}
