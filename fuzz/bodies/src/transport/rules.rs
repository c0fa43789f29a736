//! Text as people write it: faults of links, probabilities, Ethernet addresses,
//! ports of DPDK. Whatever is read is written, and reads back the same. A
//! refused text is quoted.

use std::fmt::{Debug, Display};
use std::str::FromStr;

use trine_dpdk::DpdkConfig;
use trine_dpdk::mac::MacAddr;
use trine_transport::backend::Faults;
use trine_transport::prng::Ratio;

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else {
        return;
    };
    if let Some(faults) = read::<Faults>(text) {
        let ratios = [
            faults.loss,
            faults.duplicate,
            faults.reorder,
            faults.corrupt,
        ];
        for ratio in ratios {
            assert!(ratio.numerator() <= ratio.denominator(), "{ratio}");
            assert_eq!(read::<Ratio>(&ratio.to_string()), Some(ratio));
        }
        assert!(faults.delay.is_none_or(|(least, most)| least <= most));
        assert_eq!(faults.is_none(), faults.to_string().is_empty(), "{faults}");
    }
    let _ = read::<Ratio>(text);
    let _ = read::<MacAddr>(text);
    match text.parse::<DpdkConfig>() {
        Ok(port) => assert_eq!(port.next_hop(port.ip), port.ip),
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}

fn read<T>(text: &str) -> Option<T>
where
    T: FromStr<Err: Display> + PartialEq + Debug + Display,
{
    match text.parse::<T>() {
        Ok(value) => {
            let written = value.to_string();
            assert_eq!(written.parse().ok().as_ref(), Some(&value), "{written}");
            Some(value)
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            None
        }
    }
}
