//! From files to lines: which lines count, and the words on them.
//!
//! This is the part of HAProxy's reading that is the same for every section: lexing, `.if` … `.endif`, messages, `no` and
//! `default` before a keyword, where a section begins, and the environment that `global` may change on the way.

use super::branches::{Block, branch_activity};
use super::conditions::{Known, Truth, decide};
use super::diagnostics::Diagnostics;
use super::environment::{Environment, Pseudo};
use super::lexer::{Word, is_blank, lex};
use super::limits;
use super::line::{Activity, Line, Modifier};
use super::section_kind::SectionKind;
use super::source::{FileId, SourceFile, Span};
use crate::version::HaproxyVersion;

/// How deep HAProxy lets `.if` nest.
const DEEPEST_IF: usize = 100;

/// Reads all files, in order.
pub(super) fn read(
    files: &[SourceFile],
    environment: &Environment,
    version: Option<HaproxyVersion>,
    diagnostics: &mut Diagnostics,
) -> Vec<Line> {
    let mut reader = Reader {
        environment: environment.clone(),
        version,
        diagnostics,
        lines: Vec::new(),
        words: 0,
        section_name: None,
    };
    let mut bytes = 0_usize;
    for (index, file) in files.iter().enumerate() {
        let id = FileId(u32::try_from(index).unwrap_or(u32::MAX));
        bytes = bytes.saturating_add(file.bytes().len());
        let whole_file = Span {
            file: id,
            line: 1,
            start: 0,
            end: 0,
        };
        if bytes > limits::BYTES {
            let limit = limits::BYTES >> 20;
            reader.diagnostics.error(
                whole_file,
                format!("not read: more than {limit} MiB of configuration"),
            );
            break;
        }
        if !reader.read_file(id, file) {
            break;
        }
    }
    reader.lines
}

struct Reader<'a> {
    environment: Environment,
    version: Option<HaproxyVersion>,
    diagnostics: &'a mut Diagnostics,
    lines: Vec<Line>,
    words: usize,
    /// What `${.SECTION}` is.
    section_name: Option<String>,
}

/// What is carried from line to line while a file is read.
struct FileState {
    id: FileId,
    blocks: Vec<Block>,
    section: Option<SectionKind>,
}

impl FileState {
    fn activity(&self) -> Activity {
        self.blocks
            .last()
            .map_or(Activity::Active, |block| block.inside)
    }
}

impl Reader<'_> {
    /// Reads one file; `false` when a limit ends the reading of everything.
    fn read_file(&mut self, id: FileId, file: &SourceFile) -> bool {
        let mut state = FileState {
            id,
            blocks: Vec::new(),
            section: None,
        };
        let count = u32::try_from(file.line_count()).unwrap_or(u32::MAX);
        if file.line_count() > limits::LINES {
            let here = Span {
                file: id,
                line: 1,
                start: 0,
                end: 0,
            };
            self.diagnostics
                .error(here, format!("not read: more than {} lines", limits::LINES));
            return false;
        }
        for number in 1..=count {
            if self.lines.len() >= limits::LINES || self.words >= limits::WORDS {
                let here = Span {
                    file: id,
                    line: number,
                    start: 0,
                    end: 0,
                };
                self.diagnostics.error(
                    here,
                    "not read any further: too many lines or words in this configuration",
                );
                return false;
            }
            if !self.read_line(&mut state, file, number) {
                break;
            }
        }
        if !file.ends_with_line_feed() {
            let end = u32::try_from(file.line(count).len()).unwrap_or(u32::MAX);
            let here = Span {
                file: id,
                line: count,
                start: end,
                end,
            };
            self.diagnostics.error(
                here,
                "the last line has no line end; HAProxy takes such a file for truncated",
            );
        }
        for block in state.blocks {
            let here = Span {
                file: id,
                line: block.line,
                start: 0,
                end: 0,
            };
            self.diagnostics
                .error(here, "this `.if` has no `.endif` in its file");
        }
        true
    }

    /// Reads one line; `false` when HAProxy reads no further in this file.
    fn read_line(&mut self, state: &mut FileState, file: &SourceFile, number: u32) -> bool {
        let raw = file.line(number);
        let nul = raw.iter().position(|byte| *byte == 0);
        let text = nul.and_then(|at| raw.get(..at)).unwrap_or(raw);
        let here = |start: u32| Span {
            file: state.id,
            line: number,
            start,
            end: start.saturating_add(1),
        };
        if let Some(at) = nul {
            let at = u32::try_from(at).unwrap_or(u32::MAX);
            self.diagnostics
                .error(here(at), "a NUL byte: HAProxy stops reading the file here");
        }
        if is_scope(text) {
            return nul.is_none();
        }
        let pseudo = Pseudo {
            line: number,
            file: file.name(),
            section: self.section_name.as_deref(),
        };
        let lexed = lex(text, &self.environment, &pseudo);
        if let Some(fault) = &lexed.fault {
            self.diagnostics
                .error(here(fault.at), fault.kind.to_string());
            return nul.is_none();
        }
        let line = Line {
            file: state.id,
            number,
            words: lexed.words,
            comment: lexed.comment,
            activity: state.activity(),
            modifier: Modifier::None,
            begins: None,
        };
        // An empty first word, written as "", makes HAProxy skip the whole line.
        if !line.keyword().is_empty() {
            if line.activity != Activity::Inactive {
                for name in lexed.unset {
                    let message = format!(
                        "the environment variable {name} is not set here and stands for nothing"
                    );
                    self.diagnostics.note(line.span(), message);
                }
            }
            self.words += line.words.len();
            self.take_line(state, line);
        }
        nul.is_none()
    }

    fn take_line(&mut self, state: &mut FileState, mut line: Line) {
        if line.keyword().starts_with('.') && self.take_condition(state, &line) {
            return;
        }
        if line.activity == Activity::Inactive {
            self.lines.push(line);
            return;
        }
        if line.keyword().starts_with('.') {
            self.take_message(&line);
            return;
        }
        line.modifier = take_modifier(&mut line.words);
        if line.words.is_empty() {
            return;
        }
        if let Some(kind) = SectionKind::from_keyword(line.keyword()) {
            line.begins = Some(kind);
            state.section = Some(kind);
            let name = if line.argument(1).is_empty() {
                line.keyword()
            } else {
                line.argument(1)
            };
            self.section_name = Some(name.to_owned());
        } else if state.section.is_none() {
            let message = format!("`{}` stands before any section", line.keyword());
            self.diagnostics.error(line.span_of(0), message);
        }
        if state.section == Some(SectionKind::Global) {
            self.change_environment(&line);
        }
        self.lines.push(line);
    }

    /// `.if` and its kin; `false` when the line is something else.
    fn take_condition(&mut self, state: &mut FileState, line: &Line) -> bool {
        match line.keyword() {
            ".if" => self.open_block(state, line),
            ".elif" => self.next_branch(state, line),
            ".else" | ".endif" => {
                if line.words.len() > 1 {
                    let message = format!("`{}` takes no argument", line.keyword());
                    self.diagnostics.error(line.span_of(1), message);
                }
                if line.keyword() == ".endif" {
                    if state.blocks.pop().is_none() {
                        self.diagnostics
                            .error(line.span_of(0), "this `.endif` belongs to no `.if`");
                    }
                } else {
                    self.else_branch(state, line);
                }
            }
            _ => return false,
        }
        true
    }

    fn open_block(&mut self, state: &mut FileState, line: &Line) {
        let outside = state.activity();
        let too_deep = state.blocks.len() + 1 >= DEEPEST_IF;
        if too_deep {
            self.diagnostics.error(
                line.span_of(0),
                format!("HAProxy nests `.if` less than {DEEPEST_IF} deep"),
            );
        }
        let truth = if outside == Activity::Inactive || too_deep {
            Truth::False
        } else {
            self.decide(line)
        };
        let inside = branch_activity(outside, truth);
        state.blocks.push(Block {
            line: line.number,
            outside,
            inside,
            taken: truth,
            in_else: false,
        });
    }

    fn next_branch(&mut self, state: &mut FileState, line: &Line) {
        let Some(mut block) = state.blocks.pop() else {
            self.diagnostics
                .error(line.span_of(0), "this `.elif` belongs to no `.if`");
            return;
        };
        if block.in_else {
            self.diagnostics
                .error(line.span_of(0), "an `.elif` cannot follow `.else`");
        }
        let open = block.outside != Activity::Inactive && block.taken != Truth::True;
        let truth = if open {
            self.decide(line)
        } else {
            Truth::False
        };
        block.enter(truth);
        state.blocks.push(block);
    }

    fn else_branch(&mut self, state: &mut FileState, line: &Line) {
        match state.blocks.last_mut() {
            Some(block) if !block.in_else => {
                block.in_else = true;
                block.enter(Truth::True);
            }
            Some(_) => self
                .diagnostics
                .error(line.span_of(0), "an `.else` cannot follow `.else`"),
            None => self
                .diagnostics
                .error(line.span_of(0), "this `.else` belongs to no `.if`"),
        }
    }

    fn decide(&mut self, line: &Line) -> Truth {
        let words: Vec<&str> = line.words.iter().skip(1).map(|word| &*word.text).collect();
        let condition = words.join(" ");
        let known = Known {
            environment: &self.environment,
            version: self.version,
        };
        match decide(&condition, known) {
            Ok(Truth::Undecided) => {
                let message =
                    format!("`{condition}` cannot be decided here: its branches are all looked at");
                self.diagnostics.note(line.span(), message);
                Truth::Undecided
            }
            Ok(truth) => truth,
            Err(error) => {
                self.diagnostics.error(line.span(), error.to_string());
                Truth::Undecided
            }
        }
    }

    /// `.alert` and its kin.
    fn take_message(&mut self, line: &Line) {
        let known = matches!(line.keyword(), ".alert" | ".warning" | ".notice" | ".diag");
        if !known {
            self.diagnostics.error(
                line.span_of(0),
                format!("HAProxy knows no directive `{}`", line.keyword()),
            );
        } else if !line.argument(2).is_empty() {
            let message = format!(
                "`{}` takes one text; put it in double quotes",
                line.keyword()
            );
            self.diagnostics.error(line.span_of(2), message);
        } else if line.keyword() == ".alert" && line.activity == Activity::Active {
            self.diagnostics.error(
                line.span(),
                format!("the configuration refuses itself: {}", line.argument(1)),
            );
        }
    }

    /// The directives of `global` that change what later variables stand for.
    fn change_environment(&mut self, line: &Line) {
        let names = || {
            line.words
                .iter()
                .skip(1)
                .map(|word| &*word.text)
                .filter(|name| !name.is_empty())
        };
        match line.keyword() {
            "setenv" => self.environment.set(line.argument(1), line.argument(2)),
            "presetenv" => self.environment.preset(line.argument(1), line.argument(2)),
            "unsetenv" => names().for_each(|name| self.environment.unset(name)),
            "resetenv" => self.environment.keep_only(&names().collect::<Vec<_>>()),
            _ => {}
        }
    }
}

/// `[name]`: a scope, which concerns the files of filters only.
fn is_scope(line: &[u8]) -> bool {
    line.iter().find(|byte| !is_blank(**byte)) == Some(&b'[')
}

fn take_modifier(words: &mut Vec<Word>) -> Modifier {
    let modifier = match words.first().map(|word| &*word.text) {
        Some("no") => Modifier::No,
        Some("default") => Modifier::Default,
        _ => return Modifier::None,
    };
    words.remove(0);
    modifier
}
