//! Replays the fuzz corpora, and mutations of them, through the same functions as the fuzzers.
//!
//! `TRINE_WRITE_CORPUS=1 cargo test -p trine-resp --test corpus` writes the seeds anew.

#[path = "../fuzz/bodies.rs"]
mod bodies;

use std::fs;
use std::path::{Path, PathBuf};

/// Mutations of every file; the fuzzers make the rest.
const MUTATIONS: u32 = 300;

const TEXTS: &[&str] = &[
    "PING\r\nSET a 1\r\nGET a\r\nINCR a\r\nMGET a b c\r\n",
    "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$5\r\nhello\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$6\r\nDBSIZE\r\n",
    "MULTI\r\nSET a x\r\nINCR a\r\nPING\r\nMSET a 1 b 2\r\nEXEC\r\nDISCARD\r\n",
    "WATCH a b\r\nSET a 2\r\nMULTI\r\nGET a\r\nEXEC\r\nUNWATCH\r\n",
    "HELLO 3 AUTH default p SETNAME me\r\nCLIENT LIST\r\nINFO\r\nGET none\r\nMULTI\r\nHELLO 2\r\nGET a\r\nEXEC\r\n",
    "AUTH p\r\nSET k v EX 10 NX GET\r\nGETEX k PERSIST\r\nGETDEL k\r\nTTL k\r\nEXPIRE k 0\r\n",
    "*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$4\r\nINCR\r\n$1\r\nn\r\n*2\r\n$3\r\nDEL\r\n$1\r\nn\r\n*0\r\n*-1\r\n",
    "COMMAND DOCS get\r\nCOMMAND INFO get none\r\nCOMMAND COUNT\r\nCONFIG GET *\r\nNOSUCH 'a b' \"\\x00\"\r\nQUIT\r\n",
    "*1\r\n$5000\r\n",
    "GETSET k v\r\nAPPEND k w\r\nSTRLEN k\r\nEXISTS k k\r\nSETEX k 1 v\r\nPEXPIREAT k 5\r\nTYPE k\r\nRESET\r\nSELECT 1\r\n",
];

fn directory(target: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fuzz/corpus")
        .join(target)
}

fn corpus(target: &str, seeds: impl Iterator<Item = Vec<u8>>) -> Vec<Vec<u8>> {
    let directory = directory(target);
    if std::env::var_os("TRINE_WRITE_CORPUS").is_some() {
        fs::create_dir_all(&directory).expect("a directory");
        for (number, seed) in seeds.enumerate() {
            fs::write(directory.join(format!("seed-{number:02}")), seed).expect("written");
        }
    }
    let entries = fs::read_dir(&directory).expect("the corpus is checked in");
    let mut paths: Vec<PathBuf> = entries
        .map(|entry| entry.expect("an entry").path())
        .collect();
    paths.sort();
    assert!(!paths.is_empty(), "the corpus of {target} is not empty");
    paths
        .iter()
        .map(|path| fs::read(path).expect("the file is readable"))
        .collect()
}

/// Runs the files as they are, then with bytes changed, cut or doubled (splitmix64, fixed seed).
fn replay(files: &[Vec<u8>], run: fn(&[u8])) {
    let mut state = 1_u64;
    let mut draw = |bound: usize| {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((mixed ^ (mixed >> 31)) % bound.max(1) as u64) as usize
    };
    for bytes in files {
        run(bytes);
        for _ in 0..MUTATIONS {
            let mut mutated = bytes.clone();
            for _ in 0..=draw(4) {
                let at = draw(mutated.len());
                match draw(5) {
                    0 => mutated.truncate(at),
                    1 => mutated.insert(at.min(mutated.len()), draw(256) as u8),
                    2 => {
                        let again = mutated[at.min(mutated.len())..].to_vec();
                        mutated.extend_from_slice(&again);
                    }
                    _ if mutated.is_empty() => {}
                    3 => mutated[at] ^= 1 << draw(8),
                    _ => mutated[at] = b"*$\r\n09- "[draw(8)],
                }
            }
            run(&mutated);
        }
    }
}

#[test]
fn requests() {
    let seeds = TEXTS.iter().map(|text| text.as_bytes().to_vec());
    replay(&corpus("requests", seeds), bodies::requests);
}

#[test]
fn connections() {
    // Each with another password, cut and end of its calls.
    let seeds = TEXTS
        .iter()
        .zip([
            0x80_u8, 0xf0, 0x10, 0x40, 0xf1, 0x21, 0xfe, 0xf2, 0x30, 0xc0,
        ])
        .map(|(text, how)| [&[how], text.as_bytes()].concat());
    replay(&corpus("connection", seeds), bodies::connection);
}
