//! The container, without an engine: the file system that the Containerfile describes, run under
//! chroot. Here it holds the program under test with its libraries; `make dist` does the same with the
//! static one, and with buildah where that is installed.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::checkout::{succeed, text};
use crate::machine::Machine;

/// What a Containerfile says, as far as ours goes.
#[derive(Debug, Default)]
struct Image {
    from: String,
    /// Source and destination.
    copies: Vec<(String, String)>,
    user: String,
    entrypoint: Vec<String>,
    cmd: Vec<String>,
}

impl Image {
    fn read(containerfile: &str) -> Self {
        let mut image = Self::default();
        for line in containerfile.lines() {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word {
                "" | "#" => {}
                "FROM" => rest.clone_into(&mut image.from),
                "COPY" => {
                    let (from, to) = rest.split_once(' ').unwrap();
                    image.copies.push((from.to_owned(), to.to_owned()));
                }
                "USER" => rest.clone_into(&mut image.user),
                "ENTRYPOINT" => image.entrypoint = serde_json::from_str(rest).unwrap(),
                "CMD" => image.cmd = serde_json::from_str(rest).unwrap(),
                _ => panic!("this test does not know: {line}"),
            }
        }
        image
    }
}

/// The libraries of a program that is not static, in the places where it looks for them.
fn add_libraries(program: &str, root: &Path) {
    let libraries = succeed(Command::new("ldd").arg(program));
    let paths = libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'));
    for path in paths {
        let to = root.join(path.trim_start_matches('/'));
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        fs::copy(path, to).unwrap();
    }
}

#[test]
fn the_image_holds_one_program_and_runs_it_as_nobody_in_particular() {
    let image = Image::read(&text("Containerfile"));
    assert_eq!(image.from, "scratch");
    assert_eq!(
        image.copies,
        [("dist/image/haplane".into(), "/haplane".into())]
    );
    let machine = Machine::new();
    let root = machine.given().join("image");
    fs::create_dir(&root).unwrap();
    for (_, to) in &image.copies {
        let program = env!("CARGO_BIN_EXE_haplane");
        fs::copy(program, root.join(to.trim_start_matches('/'))).unwrap();
        add_libraries(program, &root);
    }
    let words = [
        format!("user={}", image.user),
        format!("entrypoint='{}'", image.entrypoint.join(" ")),
        format!("cmd='{}'\n", image.cmd.join(" ")),
    ];
    fs::write(machine.given().join("containerfile.sh"), words.join("\n")).unwrap();
    machine.run("image.sh");
}
