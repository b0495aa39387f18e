use super::*;

fn words(line: &str) -> Vec<String> {
    let environment = Environment::from_pairs([("A", "va"), ("SP", " x  y "), ("EMPTY", "")]);
    let lexed = lex(
        line.as_bytes(),
        &environment,
        &Pseudo {
            line: 7,
            file: "f.cfg",
            section: Some("web"),
        },
    );
    assert_eq!(lexed.fault, None, "{line}");
    lexed
        .words
        .into_iter()
        .map(|word| word.text.into())
        .collect()
}

fn fault_of(line: &str) -> (FaultKind, u32) {
    let lexed = lex(
        line.as_bytes(),
        &Environment::default(),
        &Pseudo {
            line: 1,
            file: "",
            section: None,
        },
    );
    let fault = lexed.fault.unwrap();
    (fault.kind, fault.at)
}

/// Every line of this table was put to HAProxy 2.8.25 (`-dC`).
#[test]
fn words_as_haproxy_sees_them() {
    for (line, want) in [
        (r"a b\", vec!["a", r"b\"]),
        ("a b # c", vec!["a", "b"]),
        ("a b#c d", vec!["a", "b"]),
        (r#"a "b c" d"#, vec!["a", "b c", "d"]),
        (r"a 'b \n c' d", vec!["a", r"b \n c", "d"]),
        (
            r#"a "x\ny" \"q \x41 \1 \$A"#,
            vec!["a", "x\ny", "\"q", "A", r"\1", r"\$A"],
        ),
        (
            r#"a $A ${A} "$A" "${A}" "${B-de f}" "${A-x}""#,
            vec!["a", "$A", "${A}", "va", "va", "de f", "va"],
        ),
        (r#"a "x${SP[*]}y" z"#, vec!["a", "x", "x", "y", "y", "z"]),
        (r#"a "${SP[*]}" z"#, vec!["a", "", "x", "y", "", "z"]),
        (r#"a "${B[*]-p q}" z"#, vec!["a", "p", "q", "z"]),
        (r#"a "$A[*]" z"#, vec!["a", "va[*]", "z"]),
        (r#"a "" b"#, vec!["a", "", "b"]),
        (r#"a b """#, vec!["a", "b"]),
        (r#"a "${EMPTY}" b"#, vec!["a", "", "b"]),
        (r#"a "${B}" d"#, vec!["a", "d"]),
        (r#"a x"${B}" y"#, vec!["a", "xy"]),
        (r#"a "${B}x" y"#, vec!["a", "x", "y"]),
        (r#"a "${B} " y"#, vec!["a", " ", "y"]),
        (r#"a "q${B}"   "z""#, vec!["a", "qz"]),
        (r#"a "${B-}" d"#, vec!["a", "", "d"]),
        (r#"a "${A-x}}" d"#, vec!["a", "va}", "d"]),
        (r#"a "${B-$A}" d"#, vec!["a", "$A", "d"]),
        (r#"a "${B-x\"y}" d"#, vec!["a", r#"x\"y"#, "d"]),
        (
            r#"a '${A}' \'x "\'" "a\'b""#,
            vec!["a", "${A}", "'x", "'", "a'b"],
        ),
        (r#"a "\#" \# #x"#, vec!["a", "#", "#"]),
        (r#"a "b"c"d" 'e'"f""#, vec!["a", "bcd", "ef"]),
        (r#"a "\${A}" "\ b""#, vec!["a", "${A}", " b"]),
        (r"a b\  c", vec!["a", "b ", "c"]),
        (
            r#"a "${.LINE} ${.FILE} ${.SECTION}""#,
            vec!["a", "7 f.cfg web"],
        ),
        ("a b\r", vec!["a", "b"]),
        ("a b\rc d", vec!["a", "b"]),
        ("c\td\u{b}e\u{c}f", vec!["c", "d", "e", "f"]),
        (r"a \x00b c", vec!["a", "", "c"]),
        ("   ", vec![]),
        ("", vec![]),
    ] {
        assert_eq!(words(line), want, "{line}");
    }
}

#[test]
fn faults_where_haproxy_points() {
    for (line, kind, at) in [
        (r#"a "b"#, FaultKind::UnmatchedQuote, 2),
        ("a 'b", FaultKind::UnmatchedQuote, 2),
        (r#"a "${1}""#, FaultKind::VariableName, 5),
        (r#"a "$""#, FaultKind::VariableName, 4),
        (r#"a "${.NOPE}""#, FaultKind::VariableName, 5),
        (r#"a "${A""#, FaultKind::UnmatchedBrace, 4),
        (r#"a "${A.b}""#, FaultKind::UnmatchedBrace, 4),
        (r#"a "${A-b""#, FaultKind::UnmatchedBrace, 4),
        (r#"a "${A[x]}""#, FaultKind::WordExpansion, 6),
        (r"a \x4", FaultKind::Hexadecimal, 2),
    ] {
        assert_eq!(fault_of(line), (kind, at), "{line}");
    }
}

#[test]
fn sixty_four_words_and_no_more() {
    let line = vec!["w"; MAX_WORDS].join(" ");
    assert_eq!(words(&line).len(), MAX_WORDS);
    assert_eq!(words(&format!("{line}# c")).len(), MAX_WORDS);
    for more in [" ", " # c", " x"] {
        assert_eq!(
            fault_of(&format!("{line}{more}")).0,
            FaultKind::TooManyWords,
            "{more:?}"
        );
    }
}

#[test]
fn ranges_cover_the_words_with_their_quotes() {
    let line = r#"  server "a b"c 'd' # e"#;
    let lexed = lex(
        line.as_bytes(),
        &Environment::default(),
        &Pseudo {
            line: 1,
            file: "",
            section: None,
        },
    );
    let raw: Vec<&str> = lexed
        .words
        .iter()
        .map(|word| &line[word.range.start as usize..word.range.end as usize])
        .collect();
    assert_eq!(raw, ["server", "\"a b\"c", "'d'"]);
    assert_eq!(lexed.comment, Some(20));
}
