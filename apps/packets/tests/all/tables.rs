//! The tables against simple models.

use proptest::collection::vec;
use proptest::prelude::*;
use trine_kvstore::interleave::batch;
use trine_packets::error::TableError;
use trine_packets::ipv4::{Dir24, Route4};
use trine_packets::ipv6::{Route6, Table6};
use trine_packets::names::{Name, NameTable, Prefix, encode};
use trine_packets::patterns::Dfa;
use trine_packets::switch::{Station, Stations};
use trine_transport::prng::Prng;

/// The results of lookups in their order, in batches of two sizes, which must agree.
macro_rules! found {
    ($keys:expr, $key:ident => $find:expr) => {{
        let keys = $keys;
        let mut results = vec![None; keys.len()];
        let start = |i: usize| {
            let $key = &keys[i];
            $find
        };
        batch::<4, _>(keys.len(), start, |i, result| results[i] = Some(result));
        batch::<1, _>(keys.len(), start, |i, result| {
            assert_eq!(results[i], Some(result));
        });
        let found = results.into_iter();
        found
            .map(|result| result.expect("every lookup"))
            .collect::<Vec<_>>()
    }};
}

/// Addresses in a few narrow ranges, so that prefixes meet.
fn address4() -> impl Strategy<Value = u32> {
    (0..4_u32, any::<u32>(), 0..=32_u32).prop_map(|(high, low, bits)| {
        let low = low.checked_shr(bits).unwrap_or(0);
        high << 30 | low & 0x3fff_ffff
    })
}

fn route4() -> impl Strategy<Value = Route4> {
    (address4(), 0..=32_u8, 0..9_u16).prop_map(|(address, length, hop)| Route4 {
        address,
        length,
        hop,
    })
}

fn route6() -> impl Strategy<Value = Route6> {
    (address4(), any::<u8>(), 0..=128_u8, 0..9_u16).prop_map(|(high, low, length, hop)| Route6 {
        address: u128::from(high) << 96 | u128::from(low & 3) << 40,
        length,
        hop,
    })
}

/// The longest prefix wins, and of two equal ones the later.
fn longest<R: Copy, K: PartialEq>(routes: &[R], of: impl Fn(R) -> (K, K, u8, u16)) -> Option<u16> {
    let matching = routes
        .iter()
        .map(|route| of(*route))
        .filter(|(start, key, ..)| start == key);
    matching
        .max_by_key(|(.., length, _)| *length)
        .map(|(.., hop)| hop)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn ipv4_finds_the_longest_prefix(
        routes in vec(route4(), 0..40),
        mut keys in vec(address4(), 1..60),
    ) {
        let table = Dir24::build(&routes).expect("routes");
        keys.extend(routes.iter().flat_map(|route| {
            let start = route.start();
            [start, start.wrapping_sub(1), route.address]
        }));
        let found = found!(&keys, key => table.find::<4>(*key));
        for (key, found) in keys.iter().zip(found) {
            let model = longest(&routes, |route| {
                let own = Route4 { address: *key, ..route };
                (route.start(), own.start(), route.length, route.hop)
            });
            prop_assert_eq!(found, model, "{:x}", key);
        }
    }

    #[test]
    fn ipv6_finds_the_longest_prefix(routes in vec(route6(), 0..40), hosts in vec(any::<u64>(), 1..20)) {
        let table = Table6::build(&routes).expect("routes");
        let mut keys: Vec<u128> = hosts.iter().map(|host| u128::from(*host) << 64).collect();
        keys.extend(routes.iter().flat_map(|route| {
            let start = route.start();
            [start, start.wrapping_sub(1), route.address, route.address ^ 1 << 70]
        }));
        let found = found!(&keys, key => table.find::<4>(*key));
        for (key, found) in keys.iter().zip(found) {
            let model = longest(&routes, |route| {
                let own = Route6 { address: *key, ..route };
                (route.start(), own.start(), route.length, route.hop)
            });
            prop_assert_eq!(found, model, "{:x}", key);
        }
    }

    #[test]
    fn a_station_is_behind_its_last_port(
        stations in vec((0..50_u64, 0..8_u8), 0..200),
        seed in any::<u64>(),
    ) {
        let stations: Vec<Station> = stations.iter().map(|&(mac, port)| Station { mac, port }).collect();
        let table = Stations::build(&stations, &mut Prng::new(seed)).expect("room");
        let keys: Vec<u64> = (0..60).chain([1 << 47]).collect();
        let found = found!(&keys, key => table.find::<4>(*key));
        for (key, found) in keys.iter().zip(found) {
            let last = stations.iter().rev().find(|station| station.mac == *key);
            prop_assert_eq!(found, last.map(|station| station.port));
        }
    }

    #[test]
    fn a_name_has_the_last_port_of_its_longest_prefix(
        names in vec((vec(vec(0..3_u8, 0..3), 1..5), 0..8_u8), 0..60),
        seed in any::<u64>(),
    ) {
        let prefixes: Vec<Prefix> =
            names.iter().map(|(name, port)| Prefix { name: encode(name), port: *port }).collect();
        let table = NameTable::build(&prefixes, &mut Prng::new(seed)).expect("room");
        // Known names, one component longer ones, and an unknown one.
        let longer = |prefix: &Prefix| [prefix.name.clone(), encode(&[b"more"])].concat();
        let mut keys: Vec<Vec<u8>> = prefixes.iter().map(|prefix| prefix.name.clone()).collect();
        keys.extend(prefixes.iter().map(longer));
        keys.push(encode(&[b"unknown"]));
        let named: Vec<Name<'_>> =
            keys.iter().map(|key| Name::of(key, table.seed()).expect("a name")).collect();
        let found = found!(&named, name => table.find_longest::<4>(name));
        for (name, found) in named.iter().zip(found) {
            let known = |components| {
                let (bytes, _) = name.prefix(components);
                prefixes.iter().rev().find(|prefix| prefix.name == bytes)
            };
            let longest = (1..=name.components()).rev().find_map(known);
            prop_assert_eq!(found, longest.map(|prefix| prefix.port));
        }
    }

    #[test]
    fn patterns_are_found_wherever_they_are(
        patterns in vec(vec(0..3_u8, 1..6), 0..12),
        contents in vec(vec(0..3_u8, 0..40), 1..12),
    ) {
        let dfa = Dfa::build(&patterns).expect("patterns");
        let found = found!(&contents, content => dfa.is_match::<4>(content));
        for (content, found) in contents.iter().zip(found) {
            let is_in = |pattern: &Vec<u8>| content.windows(pattern.len()).any(|part| part == pattern);
            prop_assert_eq!(found, patterns.iter().any(is_in), "{:?}", content);
        }
    }
}

#[test]
fn what_does_not_fit_a_table_is_refused_by_name() {
    let route = Route4 {
        address: 0,
        length: 33,
        hop: 0,
    };
    let error = Dir24::build(&[route]).err().expect("too long");
    assert_eq!(
        error,
        TableError::PrefixTooLong {
            length: 33,
            most: 32
        }
    );
    let route = Route4 {
        address: 0,
        length: 8,
        hop: 0x7fff,
    };
    assert!(matches!(
        Dir24::build(&[route]).err(),
        Some(TableError::HopTooLarge { .. })
    ));
    let long = |number: u32| Route4 {
        address: number << 8,
        length: 25,
        hop: 0,
    };
    let routes: Vec<Route4> = (0..=1 << 15).map(long).collect();
    assert!(matches!(
        Dir24::build(&routes).err(),
        Some(TableError::TooManyGroups { .. })
    ));
    assert!(Dir24::build(&routes[1..]).is_ok(), "one less fits");
    let route = Route6 {
        address: 0,
        length: 129,
        hop: 0,
    };
    assert!(Table6::build(&[route]).is_err());

    let prng = &mut Prng::new(1);
    for mac in [1 << 48, 1 << 40] {
        let station = Station { mac, port: 0 };
        assert!(matches!(
            Stations::build(&[station], prng).err(),
            Some(TableError::Key(_))
        ));
    }
    for name in [
        vec![],
        vec![7, 0],
        vec![8, 5, 1],
        encode(&[b"x"; 9]),
        encode(&[[0; 1_100]]),
    ] {
        assert!(NameTable::build(&[Prefix { name, port: 0 }], prng).is_err());
    }
    assert!(matches!(Dfa::build(&[""]).err(), Some(TableError::Key(_))));
    assert!(Dfa::build(&["a".repeat(257)]).is_err());
}
