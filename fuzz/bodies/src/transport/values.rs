//! The content of a peer's typed message: a value that is read is written as the same bytes.

use std::fmt::Debug;

use trine_rpc::Message;

pub fn run(data: &[u8]) {
    macro_rules! read {
        ($($value:ty),* $(,)?) => {$( read::<$value>(data); )*};
    }
    read!(
        (),
        bool,
        u8,
        u16,
        u32,
        u64,
        u128,
        i8,
        i16,
        i32,
        i64,
        i128,
        Vec<u8>,
        String,
        [u8; 3],
        Option<u32>,
        Option<Option<bool>>,
        Result<u32, String>,
        Result<Option<u32>, Vec<u8>>,
    );
}

fn read<T: Message + PartialEq + Debug>(data: &[u8]) {
    match T::decode(data) {
        Ok(value) => {
            let mut written = vec![0xaa; value.encoded_len()];
            value.encode(&mut written);
            assert_eq!(written, data, "{value:?}");
        }
        Err(error) => assert!(!error.to_string().is_empty()),
    }
}
