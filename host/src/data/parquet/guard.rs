//! Bounds the memory that a page of a damaged file can ask for.

use ::parquet::errors::{ParquetError, Result};
use ::parquet::file::reader::{ChunkReader, Length};
use bytes::Bytes;
use std::fs::File;
use std::io::{BufReader, Read};

/// No writer makes larger pages (the usual size is 1 MiB). The reader reserves, and for some codecs fills, as much as
/// a page's header asks for before it looks at the data, so one flipped bit could cost 2 GiB.
const PAGE_BYTES_MAX: u64 = 64 << 20;

/// A file whose page headers are looked at before the reader believes them.
pub(super) struct GuardedFile(File);

impl GuardedFile {
    pub(super) fn new(file: File) -> Self {
        Self(file)
    }
}

impl Length for GuardedFile {
    fn len(&self) -> u64 {
        self.0.len()
    }
}

impl ChunkReader for GuardedFile {
    type T = BufReader<File>;

    /// Called at the start of each page header.
    fn get_read(&self, start: u64) -> Result<Self::T> {
        let mut head = [0; 12];
        let n_head = read_up_to(&mut self.0.get_read(start)?, &mut head)?;
        match uncompressed_page_bytes(&head[..n_head]) {
            Some(bytes) if bytes <= PAGE_BYTES_MAX => self.0.get_read(start),
            Some(bytes) => Err(ParquetError::General(format!(
                "the page at byte {start} claims {bytes} bytes, over the limit of {PAGE_BYTES_MAX}"
            ))),
            None => Err(ParquetError::General(format!("no page starts at byte {start}"))),
        }
    }

    fn get_bytes(&self, start: u64, length: usize) -> Result<Bytes> {
        // A length past the end is refused here, before room is made for it.
        if start.checked_add(length as u64).is_none_or(|end| end > self.len()) {
            return Err(ParquetError::EOF(format!("{length} bytes from byte {start} lie past the end of the file")));
        }
        self.0.get_bytes(start, length)
    }
}

fn read_up_to(reader: &mut impl Read, buffer: &mut [u8]) -> std::io::Result<usize> {
    let mut n = 0;
    while n < buffer.len() {
        match reader.read(&mut buffer[n..])? {
            0 => break,
            more => n += more,
        }
    }
    Ok(n)
}

/// The second field of a page header in Thrift's compact protocol: both the first field (page type) and the second
/// (uncompressed size) are i32, so each is a byte 0x15 (next field, type 5) and a zigzag varint.
/// Source: apache/parquet-format, parquet.thrift, `PageHeader`.
fn uncompressed_page_bytes(head: &[u8]) -> Option<u64> {
    let (_, rest) = i32_field(head)?;
    let (bytes, _) = i32_field(rest)?;
    u64::try_from(bytes).ok()
}

fn i32_field(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let rest = bytes.strip_prefix(&[0x15])?;
    let n = 1 + rest.iter().take(5).position(|b| b & 0x80 == 0)?;
    let zigzag = rest[..n].iter().rev().fold(0u64, |value, b| value << 7 | u64::from(b & 0x7f));
    Some(((zigzag >> 1) as i64 ^ -((zigzag & 1) as i64), &rest[n..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_sizes_are_read_as_thrift_writes_them() {
        // Type 0, then 300 zigzagged to 600 = 0b100_1011000.
        assert_eq!(uncompressed_page_bytes(&[0x15, 0, 0x15, 0xd8, 0x04, 0x15]), Some(300));
        assert_eq!(uncompressed_page_bytes(&[0x15, 4, 0x15, 0xfe, 0xff, 0xff, 0xff, 0x0f]), Some((1 << 31) - 1));
        assert_eq!(uncompressed_page_bytes(&[0x15, 0, 0x15, 1]), None, "negative");
        assert_eq!(uncompressed_page_bytes(&[0x15, 0, 0x25, 1]), None, "another field");
        assert_eq!(uncompressed_page_bytes(&[0x15]), None, "cut");
    }
}
