//! The files for packages are made from the options themselves, and they are usable.

use std::io::Write;
use std::process::{Command, Output, Stdio};

use crate::common::program;

fn run(arguments: &[&str]) -> Output {
    let done = Command::new(program()).args(arguments).output();
    done.expect("the program runs")
}

/// Names of the commands, as the help lists them.
fn commands() -> Vec<String> {
    let help = String::from_utf8(run(&["help"]).stdout).expect("text");
    let (groups, _) = help.split_once("\nOptions:").expect("options");
    let names: Vec<String> = groups
        .lines()
        .filter_map(|line| line.strip_prefix("  ")?.split_whitespace().next())
        .map(str::to_owned)
        .collect();
    assert!(names.len() > 30, "{help}");
    names
}

#[test]
fn every_shell_gets_a_script_that_knows_every_command() {
    for shell in ["bash", "elvish", "fish", "powershell", "zsh"] {
        let done = run(&["completions", shell]);
        assert!(done.status.success(), "{shell}");
        let script = String::from_utf8(done.stdout).expect("text");
        for command in commands() {
            assert!(script.contains(&command), "{shell}: {command}");
        }
    }
}

/// `trine sim --help` listed RDMA devices.
#[test]
fn pages_and_help_of_commands_without_a_network_do_not_name_its_options() {
    let text = |arguments: &[&str]| String::from_utf8(run(arguments).stdout).expect("text");
    for command in ["sim", "config", "log-level", "recover"] {
        assert!(
            !text(&[command, "--help"]).contains("--transport"),
            "{command}"
        );
    }
    assert!(!text(&["config", "show", "--help"]).contains("--transport"));
    assert!(text(&["status", "--help"]).contains("--transport"));
}

#[test]
fn bash_reads_its_script() {
    let script = run(&["completions", "bash"]).stdout;
    let mut bash = Command::new("bash")
        .args(["--norc", "-n"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut input = bash.stdin.take().expect("a pipe");
    input.write_all(&script).expect("written");
    drop(input);
    assert!(bash.wait().expect("an end").success());
}

/// What bash offers for the last of these words.
fn offered(words: &[&str]) -> Vec<String> {
    let script = String::from_utf8(run(&["completions", "bash"]).stdout).expect("text");
    let (last, cur) = (words.len() - 1, words[words.len() - 1]);
    let line = format!(
        "\nCOMP_WORDS=({}); COMP_CWORD={last}; _trine trine \"{cur}\" \"{}\"; printf '%s\\n' \"${{COMPREPLY[@]}}\"\n",
        words.join(" "),
        words[last - 1]
    );
    let mut bash = Command::new("bash")
        .args(["--norc", "-s"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("bash");
    let mut input = bash.stdin.take().expect("a pipe");
    input
        .write_all((script + &line).as_bytes())
        .expect("written");
    drop(input);
    let done = bash.wait_with_output().expect("an end");
    let text = String::from_utf8(done.stdout).expect("text");
    text.lines().map(str::to_owned).collect()
}

/// Levels were not completed at all, and of a list only the first word.
#[test]
fn bash_completes_levels_and_each_word_of_a_list() {
    assert_eq!(offered(&["trine", "serve", "--log-level", "de"]), ["debug"]);
    assert_eq!(
        offered(&["trine", "log-level", "--at", "x", "--output", "js"]),
        ["json"]
    );
    let list = ["trine", "serve", "--log-level", "warn,tr"];
    assert_eq!(offered(&list), ["warn,trace"]);
    let first = offered(&["trine", "chaos", "--faults", "pa"]);
    assert!(
        !first.is_empty() && first.iter().all(|word| word.starts_with("pa")),
        "{first:?}"
    );
    let second = offered(&["trine", "chaos", "--faults", "kill,pa"]);
    let expected: Vec<String> = first.iter().map(|word| format!("kill,{word}")).collect();
    assert_eq!(second, expected);
}

/// systemd gives a unit up that starts five times within ten seconds. With a second between two starts a replica that died at
/// once stayed away for good.
#[test]
fn the_unit_starts_a_replica_again_for_as_long_as_it_dies() {
    let path = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../packaging/systemd/trine@.service"
    );
    let unit = std::fs::read_to_string(path).expect("the unit");
    let of_unit = unit.split("[Unit]").nth(1).expect("a section");
    let of_unit = of_unit.split("\n[").next().expect("its end");
    assert!(of_unit.contains("\nStartLimitIntervalSec=0\n"), "{of_unit}");
    assert!(unit.contains("\nRestart=on-failure\nRestartSec=1s\n"));
}

#[test]
fn every_command_has_a_page() {
    let directory = std::env::temp_dir().join(format!("trine-man-{}", std::process::id()));
    let done = run(&["man", "--into", directory.to_str().expect("text")]);
    assert!(done.status.success(), "{done:?}");
    for command in commands() {
        let page = std::fs::read_to_string(directory.join(format!("trine-{command}.1")));
        let page = page.expect(&command);
        assert!(page.contains(".SH SYNOPSIS"), "{command}");
        assert!(command != "sim" || !page.contains("gid"), "{page}");
    }
    std::fs::remove_dir_all(&directory).expect("removed");
}

#[test]
fn pages_that_cannot_be_written_are_an_error_with_the_directory() {
    let done = run(&["man", "--into", "/proc/nowhere"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&done.stderr).contains("/proc/nowhere"));
}

#[test]
fn the_doctor_tells_its_findings_to_programs_too() {
    let done = run(&["doctor", "--json"]);
    let findings: serde_json::Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let findings = findings["findings"].as_array().expect("a list");
    assert!(
        findings
            .iter()
            .any(|finding| finding["check"] == "clock source")
    );
}
