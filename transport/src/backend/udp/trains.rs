//! When datagrams may be sent as trains (GSO): not where the kernel or the device below cannot.
//!
//! `EIO` and `EOPNOTSUPP` say that the device does not segment or sum: that is permanent. `EMSGSIZE` says that the
//! datagrams of a train are larger than what the interface carries; older kernels say `EINVAL`, which also means a kernel
//! without segmentation, or a port of zero. After these two, trains
//! therefore rest for a number of bursts that doubles each time. A kernel without segmentation soon sees next to none,
//! and one bad address costs the others a few bursts. Trains that the kernel then accepts halve this number again, one
//! step for as many bursts as the rest had. Occasional errors therefore do not add up over a long time.

use std::io;

use super::TRAIN_DATAGRAMS_MAX;

/// Bursts of the first rest.
const REST_BURSTS_MIN: u32 = 16;
const REST_BURSTS_MAX: u32 = 1 << 20;

#[derive(Debug)]
pub(super) struct Trains {
    state: TrainState,
    next_rest: u32,
    /// Bursts since trains came back or the rest was halved.
    well: u32,
}

#[derive(Copy, Clone, Debug, Eq, PartialEq)]
enum TrainState {
    On,
    /// The number of bursts that are left.
    Resting(u32),
    Off,
}

impl Trains {
    pub(super) fn new(is_wanted: bool) -> Self {
        Self {
            state: if is_wanted {
                TrainState::On
            } else {
                TrainState::Off
            },
            next_rest: REST_BURSTS_MIN,
            well: 0,
        }
    }

    /// Datagrams that the next burst may put into one train.
    pub(super) fn datagrams_max(&mut self) -> u32 {
        self.state = match self.state {
            TrainState::Resting(0) => TrainState::On,
            TrainState::Resting(left) => TrainState::Resting(left - 1),
            state => state,
        };
        if self.state == TrainState::On {
            TRAIN_DATAGRAMS_MAX
        } else {
            1
        }
    }

    /// The kernel took all trains of a burst, of which there was at least one.
    pub(super) fn on_taken(&mut self) {
        if self.state != TrainState::On || self.next_rest == REST_BURSTS_MIN {
            return;
        }
        self.well += 1;
        if self.well >= self.next_rest {
            self.well = 0;
            self.next_rest /= 2;
        }
    }

    /// The kernel refused a train. The caller sends its datagrams one by one.
    pub(super) fn on_refused(&mut self, error: &io::Error) {
        match error.raw_os_error() {
            Some(libc::EIO | libc::EOPNOTSUPP) => self.state = TrainState::Off,
            // Several trains of one burst are one piece of news.
            Some(libc::EINVAL | libc::EMSGSIZE) if self.state == TrainState::On => {
                self.state = TrainState::Resting(self.next_rest);
                self.next_rest = (self.next_rest * 2).min(REST_BURSTS_MAX);
                self.well = 0;
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(trains: &mut Trains, number: i32) {
        trains.on_refused(&io::Error::from_raw_os_error(number));
    }

    /// Bursts until trains are tried again.
    fn rest(trains: &mut Trains) -> u32 {
        (0..REST_BURSTS_MAX)
            .find(|_| trains.datagrams_max() > 1)
            .expect("it ends")
    }

    /// One send to a bad address turned segmentation off for all peers, permanently.
    #[test]
    fn an_invalid_send_lets_trains_rest_and_they_come_back() {
        let mut trains = Trains::new(true);
        assert_eq!(trains.datagrams_max(), TRAIN_DATAGRAMS_MAX);
        refuse(&mut trains, libc::EINVAL);
        refuse(&mut trains, libc::EINVAL);
        assert_eq!(rest(&mut trains), REST_BURSTS_MIN);
        refuse(&mut trains, libc::EINVAL);
        assert_eq!(rest(&mut trains), 2 * REST_BURSTS_MIN);
    }

    /// The rest only ever grew: some bad addresses in the lifetime of an endpoint cost all of its peers
    /// segmentation for a million bursts.
    #[test]
    fn trains_that_are_taken_shorten_the_next_rest() {
        let mut trains = Trains::new(true);
        for _ in 0..10 {
            refuse(&mut trains, libc::EINVAL);
            rest(&mut trains);
        }
        assert_eq!(trains.next_rest, REST_BURSTS_MIN << 10);
        for _ in 0..2 * (REST_BURSTS_MIN << 10) {
            trains.on_taken();
        }
        refuse(&mut trains, libc::EINVAL);
        assert_eq!(rest(&mut trains), REST_BURSTS_MIN);
    }

    /// Only `EINVAL` was known here. A train of packets above the size of the interface was refused and lost, again and
    /// again, for as long as the session lived.
    #[test]
    fn trains_above_the_size_of_the_interface_rest() {
        let mut trains = Trains::new(true);
        refuse(&mut trains, libc::EMSGSIZE);
        assert_eq!(rest(&mut trains), REST_BURSTS_MIN);
    }

    #[test]
    fn a_device_that_cannot_segment_is_not_asked_again() {
        for number in [libc::EIO, libc::EOPNOTSUPP] {
            let mut trains = Trains::new(true);
            refuse(&mut trains, number);
            assert!((0..1_000_000).all(|_| trains.datagrams_max() == 1));
        }
    }

    #[test]
    fn other_errors_change_nothing() {
        let mut trains = Trains::new(true);
        refuse(&mut trains, libc::EPERM);
        assert_eq!(trains.datagrams_max(), TRAIN_DATAGRAMS_MAX);
        assert_eq!(Trains::new(false).datagrams_max(), 1);
    }
}
