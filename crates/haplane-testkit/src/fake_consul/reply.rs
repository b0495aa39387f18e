//! How a request is answered: an honest answer, with whatever is wrong about it.

use std::fmt::Write as _;
use std::io;
use std::time::Duration;

use tokio::io::{AsyncWriteExt, BufStream};
use tokio::net::TcpStream;

use crate::http::Headers;

/// A reply of the fake. It starts as an honest one; each method makes one thing wrong.
#[derive(Clone, Debug, Default)]
pub struct Reply {
    pub(super) content: Content,
    pub(super) delay: Duration,
    status: Option<u16>,
    body: Option<Vec<u8>>,
    headers: Vec<(String, Option<String>)>,
    body_limit: Option<usize>,
    framing: Framing,
    end: End,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Content {
    /// A blocking query is held until there is something new.
    #[default]
    WhenChanged,
    AtOnce,
    Never,
}

#[derive(Clone, Copy, Debug, Default)]
enum Framing {
    #[default]
    Length,
    Chunks,
}

#[derive(Clone, Copy, Debug, Default)]
enum End {
    #[default]
    KeepAlive,
    Close,
    Reset,
}

impl Reply {
    /// What an honest Consul says, held as an honest one holds it.
    pub fn honest() -> Self {
        Self::default()
    }

    /// What an honest Consul says, but at once also to a blocking query.
    pub fn at_once() -> Self {
        Self {
            content: Content::AtOnce,
            ..Self::default()
        }
    }

    /// This status and body, at once, with an honest answer's headers.
    pub fn status(status: u16, body: impl Into<Vec<u8>>) -> Self {
        Self {
            status: Some(status),
            body: Some(body.into()),
            ..Self::at_once()
        }
    }

    /// 200 with a body that is not what was asked for.
    pub fn garbage(body: impl Into<Vec<u8>>) -> Self {
        Self::status(200, body)
    }

    /// No answer, for as long as the client waits.
    pub fn hang() -> Self {
        Self {
            content: Content::Never,
            ..Self::default()
        }
    }

    /// Closes the connection without a byte.
    pub fn close() -> Self {
        Self {
            body_limit: None,
            status: Some(0),
            end: End::Close,
            ..Self::at_once()
        }
    }

    /// Resets the connection without a byte.
    pub fn reset() -> Self {
        Self {
            end: End::Reset,
            ..Self::close()
        }
    }

    /// Sends a header, in place of an honest one of that name.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), Some(value.to_owned())));
        self
    }

    /// Leaves a header out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.push((name.to_owned(), None));
        self
    }

    /// Sends this as `X-Consul-Index`: `"0"`, something lower, absurd, or no number.
    #[must_use]
    pub fn index(self, index: &str) -> Self {
        self.header("X-Consul-Index", index)
    }

    /// Waits before it looks at the keys.
    #[must_use]
    pub fn after(mut self, delay: Duration) -> Self {
        self.delay = delay;
        self
    }

    /// Sends the whole head but only the first bytes of the body, then closes.
    #[must_use]
    pub fn cut_at(mut self, bytes: usize) -> Self {
        self.body_limit = Some(bytes);
        self.end = End::Close;
        self
    }

    /// Sends the body in chunks, as Consul does with a long one.
    #[must_use]
    pub fn chunked(mut self) -> Self {
        self.framing = Framing::Chunks;
        self
    }

    /// The honest answer with everything that this reply changes.
    pub(super) fn edit(&self, mut honest: Answer) -> Answer {
        for (name, value) in &self.headers {
            honest
                .headers
                .0
                .retain(|(known, _)| !known.eq_ignore_ascii_case(name));
            honest
                .headers
                .0
                .extend(value.clone().map(|value| (name.clone(), value)));
        }
        Answer {
            status: self.status.unwrap_or(honest.status),
            body: self.body.clone().unwrap_or(honest.body),
            headers: honest.headers,
            body_limit: self.body_limit,
            framing: self.framing,
            end: self.end,
        }
    }
}

/// An answer ready to be sent. Status 0 stands for not a byte of it.
#[derive(Debug)]
pub(super) struct Answer {
    status: u16,
    headers: Headers,
    body: Vec<u8>,
    body_limit: Option<usize>,
    framing: Framing,
    end: End,
}

impl Answer {
    pub(super) fn new(status: u16, body: Vec<u8>) -> Self {
        Self {
            status,
            body,
            headers: Headers::default(),
            body_limit: None,
            framing: Framing::Length,
            end: End::KeepAlive,
        }
    }

    pub(super) fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sends it; whether the connection goes on.
    pub(super) async fn send(&self, stream: &mut BufStream<TcpStream>) -> io::Result<bool> {
        if self.status > 0 {
            stream.write_all(self.head().as_bytes()).await?;
            stream.write_all(&self.framed_body()).await?;
            stream.flush().await?;
        }
        match self.end {
            End::KeepAlive => Ok(true),
            End::Close => Ok(false),
            End::Reset => stream.get_ref().set_zero_linger().map(|()| false),
        }
    }

    fn head(&self) -> String {
        let mut head = format!("HTTP/1.1 {} Scripted\r\n", self.status);
        for (name, value) in &self.headers.0 {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let _ = match self.framing {
            Framing::Length => write!(head, "Content-Length: {}\r\n\r\n", self.body.len()),
            Framing::Chunks => write!(head, "Transfer-Encoding: chunked\r\n\r\n"),
        };
        head
    }

    fn framed_body(&self) -> Vec<u8> {
        let mut framed = match self.framing {
            Framing::Length => self.body.clone(),
            Framing::Chunks => {
                let mut chunks = Vec::new();
                for chunk in self.body.chunks(2048) {
                    chunks.extend(format!("{:x}\r\n", chunk.len()).into_bytes());
                    chunks.extend(chunk);
                    chunks.extend(b"\r\n");
                }
                chunks.extend(b"0\r\n\r\n");
                chunks
            }
        };
        framed.truncate(self.body_limit.unwrap_or(usize::MAX));
        framed
    }
}
