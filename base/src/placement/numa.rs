//! NUMA nodes: which processors belong to one, and the kernel's memory policy.
#![allow(unsafe_code)]

use std::io;

use crate::failure::Failure;

/// The mask has room for this many nodes; Linux itself has at most 1,024.
const NODES_MAX: u32 = 1024;
/// Processor numbers are below this; Linux on any machine has at most 8,192.
const PROCESSORS_MAX: u32 = 1 << 16;
const WORD_BITS: u32 = u64::BITS;
/// See set_mempolicy(2): take memory from the node while it has some, then from others.
const MPOL_PREFERRED: libc::c_long = 1;

/// The processors of a node.
pub(super) fn processors(node: u32) -> Result<Vec<u32>, Failure> {
    let path = format!("/sys/devices/system/node/node{node}/cpulist");
    let list = std::fs::read_to_string(path).map_err(|_| {
        let online = std::fs::read_to_string("/sys/devices/system/node/online");
        Failure::usage(
            format!("--numa-node {node}: this machine has no such node"),
            match online {
                Ok(online) => format!("its nodes are {}", online.trim()),
                Err(_) => "its kernel does not support NUMA nodes; omit the option".to_owned(),
            },
        )
    })?;
    parse_list(list.trim()).ok_or_else(|| {
        Failure::usage(
            format!("--numa-node {node}: the kernel's list {list:?} cannot be parsed"),
            "",
        )
    })
}

/// Reads "0-3,8".
fn parse_list(list: &str) -> Option<Vec<u32>> {
    // The standard library takes a sign, too.
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse::<u32>().ok()).flatten()
    };
    let mut found = Vec::new();
    for part in list.split(',').filter(|part| !part.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (number(first)?, number(last)?);
        if first > last || last >= PROCESSORS_MAX {
            return None;
        }
        found.extend(first..=last);
    }
    Some(found)
}

/// The calling thread, and threads that it starts, take their memory from `node` while it has some.
pub(super) fn prefer(node: u32) -> Result<(), Failure> {
    if node >= NODES_MAX {
        return Err(Failure::usage(
            format!("--numa-node {node}: nodes are numbered below {NODES_MAX}"),
            "",
        ));
    }
    let mut mask = [0_u64; (NODES_MAX / WORD_BITS) as usize];
    mask[(node / WORD_BITS) as usize] = 1 << (node % WORD_BITS);
    // SAFETY: the kernel reads NODES_MAX bits from `mask`. The mask has that many bits and outlives the call. The count
    // passed is one more, because the kernel takes one off, see set_mempolicy(2). The kernel writes nothing to this
    // process.
    let result = unsafe {
        libc::syscall(
            libc::SYS_set_mempolicy,
            MPOL_PREFERRED,
            mask.as_ptr(),
            libc::c_ulong::from(NODES_MAX) + 1,
        )
    };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    Err(Failure::usage(
        format!("--numa-node {node}: the kernel rejects the memory policy: {error}"),
        "omit the option, or allow set_mempolicy(2) where a container forbids it",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(parse_list("0-2,5"), Some(vec![0, 1, 2, 5]));
        assert_eq!(parse_list(""), Some(vec![]));
        for wrong in [
            "x",
            "1-",
            "-1",
            "2-1",
            "0-4294967295",
            "0,99999",
            "+1",
            "0-+2",
        ] {
            assert_eq!(parse_list(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_node_that_is_not_there_is_refused() {
        let failure = processors(999).expect_err("no such node");
        assert!(failure.to_string().contains("no such node"), "{failure}");
        assert!(prefer(1_000_000).is_err());
    }
}
