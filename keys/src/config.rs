//! The limits of keys, names and their files.

/// Bytes of a root, of a user key and of a pre-shared key.
pub const KEY_BYTES: usize = 32;

/// Bytes of a group id.
pub const GROUP_ID_BYTES: usize = 8;

/// Bytes of a root's fingerprint. It says which of a few keys is meant, and proves nothing.
pub const FINGERPRINT_BYTES: usize = 4;

/// The longest name of a user, in bytes. The shortest has one.
pub const NAME_BYTES_MAX: usize = 32;

/// The longest encoded key id, in bytes: what a CONNECT has room for.
pub const KEY_ID_BYTES_MAX: usize = 48;

/// The longest key file, in bytes. A file that a program writes has less than 600.
pub const FILE_BYTES_MAX: usize = 4_096;

/// How often a key file is opened again that was replaced just before it was locked.
pub const LOCK_TRIES_MAX: u32 = 16;

/// Names that are tried for the file that takes a key file's place. Those that are taken were left by interrupted commands.
pub const BESIDE_TRIES_MAX: u32 = 1_000;

/// Random bytes of a new cluster key: group id, member root, user root.
pub const CLUSTER_KEY_RANDOM_BYTES: usize = GROUP_ID_BYTES + 2 * KEY_BYTES;

/// Links that are followed on the way to a file: as many as the kernel follows.
pub const LINKS_MAX: usize = 40;

/// How often a file is opened again that was made or removed just after it was looked at.
pub const OPEN_TRIES_MAX: u32 = 16;
