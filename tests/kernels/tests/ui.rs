//! A launch with a wrong number, order or type of arguments does not compile; the messages are in `ui/`.

#[test]
fn wrong_launches_do_not_compile() {
    trybuild::TestCases::new().compile_fail("tests/ui/*.rs");
}
