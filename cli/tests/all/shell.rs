//! `trine` alone, with its standard input from a pipe.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;

use crate::common::terminal::AtTerminal;
use crate::common::{Cluster, TempFile, command, finish, signal, trine};

#[test]
fn a_script_prints_raw_values_and_ends_with_its_first_failure() {
    let cluster = Cluster::start(&[]);
    let script = |text: &[u8]| trine(&[], &cluster.group.peers(), text);
    let ran = script(
        b"# a comment\nput a 'one two'\nget a\n\nincr n 41\nincr n\nput bin \"\\x00\\xff\"\nget bin\n\
          mget a none n\nset a other nx\ncount",
    );
    let ran = ran.expect_error(1, &["line 10: its version is"]);
    assert_eq!(ran.stdout, b"one two\n41\n42\n\x00\xff\none two\n\n42\n3\n");

    let ran = script(b"version a\n").expect_status(0);
    let version = String::from_utf8(ran.stdout).expect("text");
    let cas = format!(
        "cas a {} x\ncas a {} y\nget a\n",
        version.trim(),
        version.trim()
    );
    let ran = script(cas.as_bytes()).expect_error(1, &["line 2: its version is"]);
    assert_eq!(ran.stdout, b"x\n");

    // A mistake ends the script, and its status counts; a negative answer does not.
    let ran = script(b"get none\nput b\nput c 1\n");
    let ran = ran.expect_error(
        2,
        &["line 1: no such key: none", "line 2: write: put KEY VALUE"],
    );
    assert_eq!(ran.stdout, b"");
    script(b"get c\n").expect_error(1, &["line 1: no such key"]);

    let ran = script(b"set t v ex 100\nttl t\npersist t\nttl t\nquit\nget none\n").expect_status(0);
    let text = String::from_utf8(ran.stdout).expect("text");
    let lines: Vec<&str> = text.lines().collect();
    let left: f64 = lines[0].parse().expect("seconds");
    assert!(
        (1.0..=100.0).contains(&left) && lines[1..] == ["never"],
        "{text}"
    );

    // Commands that the shell takes from the table of the Redis protocol.
    let ran = script(
        b"mset s four r x\nstrlen s\nexists s r none\ntype s\ngetex s ex 100\nmget s none\nexpire s 0\nstrlen s\n",
    );
    let text = String::from_utf8(ran.expect_status(0).stdout).expect("text");
    assert_eq!(text, "4\n2\nstring\nfour\nfour\n\n0\n");

    let ran = trine(&["--json"], &cluster.group.peers(), b"get a\ndel a\n").expect_status(0);
    let lines: Vec<serde_json::Value> = ran
        .stdout
        .split(|&byte| byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| serde_json::from_slice(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[0]["value"], &lines[1]["deleted"]),
        (&"x".into(), &1.into())
    );
}

#[test]
fn keys_are_listed_whole_and_in_parts() {
    let cluster = Cluster::start(&[]);
    let run = |args: &[&str], text: &str| {
        let ran = trine(args, &cluster.group.peers(), text.as_bytes()).expect_status(0);
        String::from_utf8(ran.stdout).expect("text")
    };
    let mut puts = String::from("put other v\n");
    for number in 0..50 {
        puts += &format!("put user:{number} v\n");
    }
    run(&[], &puts);
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&run(&[], "keys *\n")).len(), 51);
    assert_eq!(sorted(&run(&[], "keys user:1?\n")).len(), 10);
    assert_eq!(run(&[], "keys o*\n"), "other\n");
    assert_eq!(run(&["--json"], "keys o*\n"), "{\"key\":\"other\"}\n");
    assert_eq!(run(&[], "keys nothing\n"), "");
}

/// The shell had a SCAN of its own, and no `watch`, `rm` or `export`.
#[test]
fn commands_of_the_command_line_work_in_the_shell() {
    let cluster = Cluster::start(&[]);
    let run = |options: &[&str], script: &str| {
        let ran = trine(options, &cluster.group.peers(), script.as_bytes());
        String::from_utf8(ran.expect_status(0).stdout).expect("text")
    };
    let told = run(
        &[],
        "put user/1 a\nput user/2 b\nput other c\nscan user/ --limit 1\ncount user/ other\n\
                  config get ordered\nrm user/ --yes\nexport -\nclear\nflush --yes\ncount\n",
    );
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(
        lines[..5],
        [
            "user/1\ta",
            "user/\t2",
            "other\t1",
            "ordered: off",
            "2 keys deleted"
        ]
    );
    assert!(
        lines[5].starts_with("{\"key\":\"other\",\"value\":\"c\""),
        "{told}"
    );
    assert_eq!(lines[6..], ["1 key deleted", "0"]);
    let told = run(
        &["--json"],
        "put a b\nscan\nconfig get memory\nrm a --yes\n",
    );
    let lines: Vec<serde_json::Value> = told
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(
        (&lines[1]["key"], &lines[2]["keys"]),
        (&"a".into(), &1.into())
    );
    assert_eq!(
        (&lines[3]["memory"], &lines[4]["deleted"]),
        (&(1_u64 << 30).into(), &1.into())
    );
    trine(&[], &cluster.group.peers(), b"config show serve\n").expect_status(0);
    trine(&[], &cluster.group.peers(), b"rm user/\n").expect_error(2, &["--yes"]);
}

#[test]
fn a_line_that_cannot_be_read_is_named_before_anybody_is_asked() {
    for (script, part) in [
        ("gte k\n", "line 1: no such command: gte; did you mean get?"),
        ("\nput 'k\n", "line 2: the quote ' has no end"),
    ] {
        trine(&[], "127.0.0.1:1", script.as_bytes()).expect_error(2, &[part]);
    }
    let long = vec![b'x'; (8 << 20) + 10];
    trine(&["shell"], "127.0.0.1:1", &long).expect_error(2, &["line 1: the line has more than"]);
    trine(&["shell"], "127.0.0.1:1", b"").expect_status(0);
    // An empty script printed the help as an error.
    let empty = trine(&[], "127.0.0.1:1", b"").expect_status(0);
    assert!(empty.stdout.is_empty() && empty.stderr.is_empty());
}

/// Before: the first failure was the exit status. A missing key hid that nobody knows what became of a later write.
#[test]
fn an_unknown_outcome_at_the_end_of_a_script_outweighs_an_earlier_no() {
    let mut cluster = Cluster::start(&[]);
    let mut script = command(&["shell", "--timeout", "1s"], &cluster.group.peers())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = script.stdin.take().expect("piped");
    lines.write_all(b"get none\n").expect("written");
    let mut complaints = BufReader::new(script.stderr.take().expect("piped"));
    let mut no = String::new();
    complaints.read_line(&mut no).expect("read");
    assert!(no.contains("line 1: no such key: none"), "{no}");
    for node_id in 1..=3 {
        cluster.group.kill(node_id).expect("killed");
    }
    lines.write_all(b"put k v\nget k\n").expect("written");
    drop(lines);
    script.stderr = Some(complaints.into_inner());
    let ran = finish(script).expect_error(3, &["line 2: "]);
    assert!(!ran.stderr.contains("line 3"), "{}", ran.stderr);
}

/// Before: `\status` and `\net` printed documents of many lines, and `help` printed text, also with `--json`.
#[test]
fn each_answer_for_programs_is_a_line() {
    let cluster = Cluster::start(&["--fault-injection"]);
    let script = b"\\status\n\\net show\nhelp cas\nhelp\nput k v\n\\status \nget none\nput k\n";
    let ran = trine(&["--json"], &cluster.group.peers(), script).expect_status(2);
    let text = String::from_utf8(ran.stdout).expect("text");
    let lines: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"))
        .collect();
    assert_eq!(lines.len(), 8, "{text}");
    for of_three in [0, 1, 5] {
        let replicas = lines[of_three]["replicas"].as_array();
        assert_eq!(replicas.map(Vec::len), Some(3), "{text}");
    }
    let help = |line: usize| lines[line]["commands"].as_array().expect("a list");
    assert_eq!(help(2).len(), 1, "{text}");
    assert_eq!(help(2)[0]["form"], "KEY VERSION VALUE");
    assert!(help(3).contains(&help(2)[0]), "{text}");
    assert!(lines[4]["version"].is_u64(), "{text}");
    assert_eq!(lines[6]["error"]["kind"], "negative");
    assert_eq!(lines[7]["error"]["kind"], "usage");
}

/// Before: the shell kept the thread of a client that could not be opened. It said that the next write was sent and may
/// be applied, and the one after that went without its capture.
#[test]
fn a_command_without_a_client_is_not_said_to_be_sent() {
    let cluster = Cluster::start(&[]);
    let file = TempFile::holding("shell-capture", "not a capture");
    let words = ["shell", "--capture", file.path()];
    let mut shell = AtTerminal::start(command(&words, &cluster.group.peers()));
    shell.expect("trine> ");
    for _ in 0..3 {
        shell.press("put k v\r");
        shell.expect("is not a capture, and is not overwritten");
        shell.expect("trine> ");
    }
    std::fs::remove_file(&file.0).expect("removed");
    shell.press("put k v\r");
    shell.expect("ok, version");
    assert!(file.0.exists(), "the client that was opened is captured");
}

/// A script that waited for its next line did not notice Ctrl-C before that line came. A script with quick answers did
/// not notice it at all, because the shell checked only while an answer was late.
#[test]
fn ctrl_c_ends_a_script_wherever_it_is_and_says_how_far_it_came() {
    let cluster = Cluster::start(&[]);
    let start = || {
        let mut command = command(&[], &cluster.group.peers());
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped());
        piped.stderr(Stdio::piped()).spawn().expect("starts")
    };
    // It waits for a third line, which does not come.
    let mut waiting = start();
    let mut lines = waiting.stdin.take().expect("piped");
    lines.write_all(b"incr n 6\nincr n\n").expect("written");
    let mut answers = BufReader::new(waiting.stdout.take().expect("piped"));
    let mut seen = String::new();
    while seen != "6\n7\n" {
        assert!(answers.read_line(&mut seen).expect("read") > 0, "{seen}");
    }
    signal(waiting.id(), "INT");
    waiting.stdout = Some(answers.into_inner());
    finish(waiting).expect_error(130, &["interrupted: 2 lines done"]);
    drop(lines);

    // It always has another line.
    let mut busy = start();
    let mut lines = busy.stdin.take().expect("piped");
    let feeder = std::thread::spawn(move || while lines.write_all(b"incr n\n").is_ok() {});
    let mut answers = BufReader::new(busy.stdout.take().expect("piped"));
    answers.read_line(&mut seen).expect("read");
    signal(busy.id(), "TERM");
    busy.stdout = Some(answers.into_inner());
    let ended = finish(busy);
    assert!(matches!(ended.status, Some(130 | 3)), "{}", ended.stderr);
    assert!(ended.stderr.contains("line"), "{}", ended.stderr);
    feeder.join().expect("it ends with its reader");
}

/// The line editor waited for the terminal while keys lay in its own buffer. A command and Enter that came in one write,
/// as from a paste, were not answered until another key arrived. Keys that were typed while a command ran were lost.
#[test]
fn keys_that_arrive_together_are_all_read() {
    let cluster = Cluster::start(&[]);
    cluster.ok(&["put", "k", "the-value"]);
    let mut shell = AtTerminal::start(command(&[], &cluster.group.peers()));
    shell.expect("trine> ");
    shell.press("get k\r");
    shell.expect("the-value");
    shell.expect("trine> ");
    shell.press("put k second\rget k\rcount\r");
    shell.expect("\r\nsecond\r\n");
    shell.expect("\r\n1\r\n");
}

/// Tab completes keys, with the ordered index and without. Where nobody answers it says nothing, and the line goes on.
#[test]
fn tab_completes_keys_and_is_silent_without_a_group() {
    for more in [&[][..], &["--ordered"]] {
        let cluster = Cluster::start(more);
        cluster.ok(&["put", "greeting:long", "the-value"]);
        cluster.ok(&["put", "other", "v"]);
        let mut shell = AtTerminal::start(command(&[], &cluster.group.peers()));
        shell.expect("trine> ");
        shell.press("get gree\t");
        shell.expect("greeting:long");
        shell.press("\r");
        shell.expect("the-value");
    }
    let mut shell = AtTerminal::start(command(&["shell", "--timeout", "1s"], "127.0.0.1:1"));
    shell.expect("trine> ");
    shell.press("get gree\t\tx\r");
    shell.expect("greex");
    shell.expect("nothing was read");
    shell.press("quit\r");
}

/// Two lines that were pasted were one command: `unlink p1` and `unlink p2` deleted the key `unlink`, too. No word could have a
/// line end.
#[test]
fn each_pasted_line_is_a_command_and_quotes_go_over_line_ends() {
    let cluster = Cluster::start(&[]);
    for key in ["unlink", "p1", "p2"] {
        cluster.ok(&["put", key, "v"]);
    }
    let mut shell = AtTerminal::start(command(&[], &cluster.group.peers()));
    let paste = |text: &str| format!("\x1b[200~{text}\x1b[201~");
    shell.expect("trine> ");
    // A mistake in the middle costs its own line only.
    shell.press(&paste(
        "unlink p1\r\nno-such\r\nunlink p2\r\n\r\nput two 'first\r\nsecond\tthird'\r\nget tw",
    ));
    for answer in [
        "\r\n1\r\n",
        "no such command: no-such",
        "trine> unlink p2\r\n1\r\n",
        "ok, version",
    ] {
        shell.expect(answer);
    }
    // The last line can be finished.
    shell.expect("get tw");
    shell.press("o\r");
    shell.expect("\"first\\nsecond\\tthird\"");
    shell.press("get unlink\r");
    shell.expect("\r\nv\r\n");
    // A quote goes on in the next line at the keyboard, too, and in a script.
    shell.press("put typed 'a\r");
    shell.expect("the quote ' is still open");
    shell.press("b'\rget typed\r");
    shell.expect("\r\na\r\nb\r\n");
    // Ahead of the prompt the terminal takes 4,096 bytes of a line, and drops what is more.
    shell.expect("trine> ");
    shell.press(&paste("put long '"));
    shell.press(&paste(&"x".repeat(100_000)));
    shell.press("'\rstrlen long\r");
    shell.expect("\r\n100000\r\n");
    shell.press(&paste("put a 1\nquit\nput a 2\n"));
    let child = shell.child();
    assert!(child.wait().expect("it ends").success());

    let script = b"put s 'a\r\nb'\nget s\nget none\nget s\nput s \"c\nd";
    let ran = trine(&[], &cluster.group.peers(), script);
    let ran = ran.expect_error(
        2,
        &["line 4: no such key", "line 6: the quote \" has no end"],
    );
    assert_eq!(ran.stdout, b"a\nb\na\nb\n");
    assert_eq!(cluster.ok(&["get", "a"]), b"1");
}
