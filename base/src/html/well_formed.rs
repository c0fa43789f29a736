//! Checks that a page is well-formed, for tests of reports.

/// Checks what an XML parser would check. Every element is closed in the order in which it was opened. Every attribute
/// is quoted. No special character is left unescaped.
pub fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let body = page.strip_prefix("<!DOCTYPE html>\n").expect("a doctype");
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        let text = &rest[..at];
        assert!(
            !text.contains('>') || open.last() == Some(&"style"),
            "{text}"
        );
        for after in text.split('&').skip(1) {
            assert!(
                ["amp;", "lt;", "gt;", "quot;"]
                    .iter()
                    .any(|entity| after.starts_with(entity)),
                "{after}"
            );
        }
        let end = at + rest[at..].find('>').expect("a tag's end");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        match tag.strip_prefix('/') {
            Some(name) => assert_eq!(open.pop(), Some(name)),
            None => {
                assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
                let name = tag.split([' ', '/']).next().unwrap_or_default();
                assert!(
                    !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric()),
                    "{tag}"
                );
                if !tag.ends_with('/') {
                    open.push(name);
                }
            }
        }
    }
    assert!(open.is_empty(), "{open:?} stay open");
}
