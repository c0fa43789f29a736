//! `keys` asks for pages of keys, and shows those that fit.

use serde_json::{Map, Value};
use trine_base::answers::{response_of, unexpected};
use trine_base::bars::above_bars;
use trine_base::failure::Failure;
use trine_base::network::Network;
use trine_base::output::{insert_bytes, print_all};
use trine_commands::Pattern;
use trine_kvstore::{Cursor, Found, Response};

use super::Shell;
use super::answer::{Form, printable};
use super::parse::page;

impl<N: Network> Shell<'_, N> {
    /// Shows all keys that fit, a page at a time. Ctrl-C ends it.
    pub(super) fn keys(&mut self, pattern: &Pattern) -> Result<(), Failure> {
        let mut from = Cursor::START;
        loop {
            let (keys, next) = self.page(from, 0, pattern)?;
            let lines = lines(&keys, self.form);
            above_bars(|| print_all(&lines));
            if next == Cursor::START {
                return Ok(());
            }
            from = next;
        }
    }

    fn page(
        &mut self,
        from: Cursor,
        count: u32,
        pattern: &Pattern,
    ) -> Result<(Vec<Vec<u8>>, Cursor), Failure> {
        let answer = self.worker.call(&page(from, count, pattern.prefix()))?;
        match response_of(&answer)? {
            Response::Page(page) => match &page.found {
                Found::Keys(keys) => {
                    let fitting = keys.iter().filter(|key| pattern.fits(key));
                    Ok((fitting.map(<[u8]>::to_vec).collect(), page.next))
                }
                Found::Items(_) => Err(unexpected(&Response::Page(page.clone()))),
            },
            other => Err(unexpected(&other)),
        }
    }
}

/// Keys, each on its line.
fn lines(keys: &[Vec<u8>], form: Form) -> Vec<u8> {
    let line = |key: &Vec<u8>| match form {
        Form::People => printable(key).into_bytes(),
        Form::Raw => key.clone(),
        Form::Json => document(key).to_string().into_bytes(),
    };
    let mut text = Vec::new();
    for key in keys {
        text.extend(line(key));
        text.push(b'\n');
    }
    text
}

fn document(key: &[u8]) -> Value {
    let mut object = Map::new();
    insert_bytes(&mut object, "key", key);
    Value::Object(object)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_shown_as_values_are() {
        let keys = [b"plain".to_vec(), vec![0xff, b'\n']];
        let text = |form| String::from_utf8_lossy(&lines(&keys, form)).into_owned();
        assert_eq!(text(Form::People), "plain\n\"\\xff\\n\"\n");
        assert_eq!(lines(&keys, Form::Raw), b"plain\n\xff\n\n");
        assert_eq!(
            text(Form::Json),
            "{\"key\":\"plain\"}\n{\"key_base64\":\"/wo=\"}\n"
        );
    }
}
