//! Steering with receive-side scaling, for ports without flow rules: which hash key and which table lead the datagrams
//! for a UDP port to the queue of its endpoint?
//!
//! RSS spreads packets by a Toeplitz hash over addresses and ports, meant to mix them. It is linear, though: each set
//! bit of the key copies the packet's bits, shifted, into the hash. If the right single bit is set, the low bits of the
//! hash are the low bits of the destination port in reverse order, and nothing else. The redirection table then names a
//! queue for each of these values.

/// Bits of what is hashed for UDP over IPv4: two addresses, source port, destination port.
const INPUT_BITS: usize = 96;
/// Bits of the hash.
const HASH_BITS: usize = 32;
/// Bytes of a key where the port does not say how long it must be.
const KEY_BYTES_DEFAULT: usize = 40;
/// Shortest key that all bits of a UDP datagram's addresses are hashed with.
const KEY_BYTES_MIN: usize = (INPUT_BITS + HASH_BITS) / 8;
/// Entries of a redirection table: more bits than a UDP port has would stay zero.
const TABLE_MAX: usize = 1 << 16;

/// A key and a redirection table that send each UDP port to its queue.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Steering {
    /// For `rte_eth_rss_conf`.
    pub key: Vec<u8>,
    /// The queue for each value of the hash's low bits.
    pub table: Vec<u16>,
}

impl Steering {
    /// Queue `i` for `udp_ports[i]`, all else to the first; `key_bytes` and `table_size` are the port's. `Err` says why
    /// that cannot be done.
    ///
    /// # Errors
    ///
    /// The port has no usable table, or two UDP ports are equal in the bits that the table tells apart.
    pub fn new(
        udp_ports: &[u16],
        key_bytes: usize,
        table_size: usize,
    ) -> Result<Self, &'static str> {
        if !table_size.is_power_of_two() || !(2..=TABLE_MAX).contains(&table_size) {
            return Err("no redirection table for RSS");
        }
        let key_bytes = if key_bytes == 0 {
            KEY_BYTES_DEFAULT
        } else {
            key_bytes
        };
        if key_bytes < KEY_BYTES_MIN {
            return Err("too short a key for RSS");
        }
        let index_bits = table_size.trailing_zeros() as usize;
        let mut table = vec![0; table_size];
        let mut taken = vec![false; table_size];
        for (queue, port) in (0..).zip(udp_ports) {
            let index = index_of(*port, index_bits);
            if std::mem::replace(&mut taken[index], true) {
                return Err("two of the UDP ports are the same for RSS: take consecutive ones");
            }
            table[index] = queue;
        }
        // Bit `b` of the hash comes from input bit `i` through key bit `i + 31 - b`. With this key bit alone, the last
        // input bit, which is the lowest of the port, becomes bit `index_bits - 1`, the one before the next lower.
        let bit = INPUT_BITS + HASH_BITS - 1 - index_bits;
        let mut key = vec![0; key_bytes];
        key[bit / 8] = 0x80 >> (bit % 8);
        Ok(Self { key, table })
    }
}

/// Where in a table of `1 << bits` entries the datagrams for `port` are looked up.
fn index_of(port: u16, bits: usize) -> usize {
    let reversed = u32::from(port).reverse_bits() >> (HASH_BITS - bits);
    reversed as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::prng::Prng;

    /// As in the specification of receive-side scaling.
    fn toeplitz(key: &[u8], input: &[u8]) -> u32 {
        let bit = |bytes: &[u8], at: usize| bytes[at / 8] & (0x80 >> (at % 8)) != 0;
        let window = |start| (0..HASH_BITS).fold(0, |w, i| w << 1 | u32::from(bit(key, start + i)));
        (0..input.len() * 8)
            .filter(|at| bit(input, *at))
            .fold(0, |hash, at| hash ^ window(at))
    }

    fn input(source: [u8; 4], destination: [u8; 4], source_port: u16, port: u16) -> Vec<u8> {
        let ports = [source_port.to_be_bytes(), port.to_be_bytes()].concat();
        [&source[..], &destination[..], &ports].concat()
    }

    /// The first of the specification's examples.
    #[test]
    fn the_hash_is_the_one_that_ports_compute() {
        let key = [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3,
            0x8f, 0xb0, 0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3,
            0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ];
        let input = input([66, 9, 149, 187], [161, 142, 100, 80], 2794, 1766);
        assert_eq!(toeplitz(&key, &input), 0x51cc_c178);
    }

    #[test]
    fn every_datagram_finds_the_queue_of_its_udp_port() {
        let mut prng = Prng::new(7);
        for table_size in [2, 4, 64, 128, 512, 2048] {
            for key_bytes in [0, 16, 40, 52] {
                let first = prng.next_u64() as u16;
                let count = table_size.min(40) as u16;
                let ports: Vec<u16> = (0..count).map(|n| first.wrapping_add(n)).collect();
                let steering = Steering::new(&ports, key_bytes, table_size).unwrap();
                for (queue, port) in (0..count).zip(&ports) {
                    for _ in 0..20 {
                        let (a, b) = (prng.next_u64().to_le_bytes(), prng.next_u64() as u16);
                        let hashed = input([a[0], a[1], a[2], a[3]], [10, a[5], a[6], 7], b, *port);
                        let hash = toeplitz(&steering.key, &hashed);
                        let found = steering.table[hash as usize % table_size];
                        assert_eq!(found, queue, "port {port}, {table_size} entries");
                    }
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_told_apart_is_refused() {
        assert!(Steering::new(&[7000, 7128], 40, 128).is_err());
        assert!(Steering::new(&[7000, 7001], 40, 128).is_ok());
        assert!(Steering::new(&[7000, 7001], 40, 0).is_err());
        assert!(Steering::new(&[7000, 7001], 40, 100).is_err());
        assert!(Steering::new(&[7000, 7001], 8, 128).is_err());
    }
}
