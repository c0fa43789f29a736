//! The corpora of Redis clients' bytes.
//!
//! `TRINE_WRITE_CORPUS=1 cargo test -p trine-fuzz-bodies resp` writes the seeds
//! again.

use std::fs;
use trine_fuzz_bodies::resp as bodies;

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

fn replay(target: &str, seeds: impl Iterator<Item = Vec<u8>>, run: fn(&[u8])) {
    if std::env::var_os("TRINE_WRITE_CORPUS").is_some() {
        let directory = trine_corpus::directory(target);
        fs::create_dir_all(&directory).expect("a directory");
        for (number, seed) in seeds.enumerate() {
            fs::write(directory.join(format!("seed-{number:02}")), seed).expect("written");
        }
    }
    trine_corpus::replay(target, MUTATIONS, run);
}

#[test]
fn requests() {
    let seeds = TEXTS.iter().map(|text| text.as_bytes().to_vec());
    replay("resp-requests", seeds, bodies::requests);
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
    replay("resp-connection", seeds, bodies::connection);
}
