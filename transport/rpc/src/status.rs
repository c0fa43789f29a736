//! The last byte of each typed response: whether the handler ran, and how it ended.
//!
//! At the end, so that the response itself begins where the message does, aligned.

use super::error::{CallError, CallRefusal};
use super::message::Message;
use trine_transport::buf::{MESSAGE_BYTES_MAX, MsgBuf, Pool};

/// PROTOCOL.md section 8.
#[derive(Copy, Clone, Debug, Eq, PartialEq)]
#[repr(u8)]
pub(super) enum Status {
    Ok = 0,
    UnknownType = 1,
    BadRequest = 2,
    Overloaded = 3,
    Unanswered = 4,
    ResponseTooLarge = 5,
}

/// Bytes that the layer adds to a response.
pub(super) const STATUS_BYTES: usize = 1;

/// A response with a value; a status alone if there is no room for it, `None` if not even for that.
pub(super) fn response(pool: &Pool, value: &impl Message) -> Option<MsgBuf> {
    let len = value.encoded_len();
    if len + STATUS_BYTES > MESSAGE_BYTES_MAX {
        return bare(pool, Status::ResponseTooLarge);
    }
    let Some(mut buffer) = pool.alloc(len + STATUS_BYTES) else {
        return bare(pool, Status::Unanswered);
    };
    value.encode(&mut buffer[..len]);
    buffer[len] = Status::Ok as u8;
    Some(buffer)
}

/// A response that is only a status.
pub(super) fn bare(pool: &Pool, status: Status) -> Option<MsgBuf> {
    let mut buffer = pool.alloc(STATUS_BYTES)?;
    buffer[0] = status as u8;
    Some(buffer)
}

/// The value of a response.
pub(super) fn read<T: Message>(bytes: &[u8]) -> Result<T, CallError> {
    let Some((status, value)) = bytes.split_last() else {
        return Err(CallError::Unanswered);
    };
    match *status {
        0 => T::decode(value).map_err(CallError::BadResponse),
        1 => Err(CallError::Refused(CallRefusal::UnknownType)),
        2 => Err(CallError::Refused(CallRefusal::BadRequest)),
        3 => Err(CallError::Refused(CallRefusal::Overloaded)),
        5 => Err(CallError::ResponseTooLarge),
        // A later version's statuses are none that we can name.
        _ => Err(CallError::Unanswered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use trine_transport::buf::PoolConfig;

    #[test]
    fn each_status_is_read_as_what_it_says() {
        let pool = Pool::new(PoolConfig { bytes_max: 1 << 20 });
        let value = response(&pool, &7_u32).expect("memory");
        assert_eq!(read::<u32>(&value), Ok(7));
        let cases = [
            (
                Status::UnknownType,
                CallError::Refused(CallRefusal::UnknownType),
            ),
            (
                Status::BadRequest,
                CallError::Refused(CallRefusal::BadRequest),
            ),
            (
                Status::Overloaded,
                CallError::Refused(CallRefusal::Overloaded),
            ),
            (Status::Unanswered, CallError::Unanswered),
            (Status::ResponseTooLarge, CallError::ResponseTooLarge),
        ];
        for (status, error) in cases {
            let buffer = bare(&pool, status).expect("memory");
            assert_eq!(read::<u32>(&buffer), Err(error));
        }
        assert_eq!(read::<u32>(&[]), Err(CallError::Unanswered));
        assert!(matches!(
            read::<u32>(&[1, 0]),
            Err(CallError::BadResponse(_))
        ));
    }

    #[test]
    fn a_response_without_room_says_so() {
        let pool = Pool::new(PoolConfig {
            bytes_max: 64 << 10,
        });
        let large = vec![0_u8; 1 << 20];
        let answer = response(&pool, &large).expect("memory for a byte");
        assert_eq!(read::<Vec<u8>>(&answer), Err(CallError::Unanswered));
        let beyond = vec![0_u8; MESSAGE_BYTES_MAX];
        let answer = response(&pool, &beyond).expect("memory for a byte");
        assert_eq!(read::<Vec<u8>>(&answer), Err(CallError::ResponseTooLarge));
    }
}
