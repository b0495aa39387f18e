//! Reads the one line of a connection.

use std::io;
use std::time::Duration;

use haplane_core::ask::MAX_BYTES;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::time::timeout;

/// The silence after which what has arrived is the line: an `agent-send` set through the Runtime API
/// cannot carry a line feed (facts 7.1).
pub(super) const SILENCE: Duration = Duration::from_millis(10);

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// A line that came to its end; without the line feed.
    Whole(Vec<u8>),
    /// Without a line feed, but all there is.
    Unterminated(Vec<u8>),
    /// More than a line may have.
    TooLong,
    /// The peer closed before it had said anything whole.
    Nothing,
}

/// Reads until the line is there. The caller has the deadline.
///
/// HAProxy sends `agent-send` with one call, so it arrives in one piece. Only what arrived in one
/// piece can therefore be a line without its end: bytes that trickle in are the first part of a
/// line, and the first part of a key may be the key of another row.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Line> {
    // One byte more than a line with `\r` at its end tells that it is too long.
    let mut limited = stream.take(bytes(MAX_BYTES) + 2);
    let mut line = Vec::with_capacity(256);
    let mut pieces = 0;
    loop {
        let one_piece = pieces == 1 && line.len() > 1;
        let read = if one_piece {
            match timeout(SILENCE, limited.read_buf(&mut line)).await {
                Ok(read) => read?,
                Err(_) => return Ok(Line::Unterminated(line)),
            }
        } else {
            limited.read_buf(&mut line).await?
        };
        if let Some(end) = line.iter().position(|&byte| byte == b'\n') {
            line.truncate(end);
            return Ok(Line::Whole(line));
        }
        if limited.limit() == 0 {
            return Ok(Line::TooLong);
        }
        if read == 0 {
            return Ok(if one_piece {
                Line::Unterminated(line)
            } else {
                Line::Nothing
            });
        }
        pieces += 1;
    }
}

fn bytes(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt;

    /// Sends the pieces with this much silence between two of them, then stays silent.
    async fn sent(pieces: &[&[u8]], pause: Duration, close: bool) -> Line {
        let (mut ours, mut theirs) = tokio::io::duplex(64 * 1024);
        let pieces: Vec<Vec<u8>> = pieces.iter().map(|piece| piece.to_vec()).collect();
        let sender = tokio::spawn(async move {
            for piece in pieces {
                theirs.write_all(&piece).await.unwrap();
                tokio::time::sleep(pause).await;
            }
            if close { None } else { Some(theirs) }
        });
        let line = timeout(Duration::from_secs(1), read(&mut ours)).await;
        let _kept_open = sender.await.unwrap();
        match line {
            Ok(line) => line.unwrap(),
            Err(_) => Line::Nothing,
        }
    }

    const SLOW: Duration = Duration::from_millis(50);

    #[tokio::test(start_paused = true)]
    async fn lines_and_what_is_none() {
        let whole = |text: &str| Line::Whole(text.as_bytes().to_vec());
        let open = |text: &str| Line::Unterminated(text.as_bytes().to_vec());
        let long = vec![b'k'; MAX_BYTES];
        let with_end = [&long[..], b"\r\n"].concat();
        let too_long = [&long[..], b"kk\n"].concat();
        for (pieces, close, want) in [
            (
                vec![b"web/a canary\n".as_slice()],
                false,
                whole("web/a canary"),
            ),
            (vec![b"web/a\r\nmore\n"], false, whole("web/a\r")),
            (vec![b"web/a canary"], false, open("web/a canary")),
            (vec![b"web/a canary"], true, open("web/a canary")),
            (vec![], true, Line::Nothing),
            (
                vec![&with_end],
                false,
                Line::Whole([&long[..], b"\r"].concat()),
            ),
            (vec![&too_long], false, Line::TooLong),
            (vec![&[b'k'; 8000]], false, Line::TooLong),
        ] {
            assert_eq!(sent(&pieces, SLOW, close).await, want, "{pieces:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_that_trickle_in_are_no_line_until_its_end() {
        let bytes: Vec<&[u8]> = b"web/a canary\n".chunks(1).collect();
        for pause in [Duration::from_millis(1), Duration::from_millis(9), SLOW] {
            assert_eq!(
                sent(&bytes, pause, false).await,
                Line::Whole(b"web/a canary".to_vec())
            );
        }
        let half = &bytes[..9];
        assert_eq!(
            sent(half, Duration::from_millis(9), false).await,
            Line::Nothing
        );
        assert_eq!(
            sent(half, Duration::from_millis(9), true).await,
            Line::Nothing
        );
    }
}
