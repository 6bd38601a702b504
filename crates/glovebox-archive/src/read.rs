//! Reading an archive as its bytes come in.

use tar::{EntryType, Header, PaxExtensions};

use crate::{ArchiveError, LONGEST_PATH};

const BLOCK: usize = 512;
/// No header behind a header is longer: it holds two paths and a few numbers.
const LONGEST_EXTENSION: u64 = 64 * 1024;

/// An entry of an archive.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its path as it stands in the archive.
    pub path: Vec<u8>,
    /// What it is.
    pub kind: Kind,
    /// Its mode as it stands in the archive.
    pub mode: u32,
    /// When it was last modified, seconds since 1970.
    pub modified: i64,
}

/// What an entry is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A regular file of so many bytes, which follow.
    File(u64),
    /// A folder.
    Folder,
    /// A symbolic link, and where it points.
    Symlink(Vec<u8>),
    /// A further name of a file that came before.
    HardLink(Vec<u8>),
    /// A device, a pipe or something unknown.
    Other,
}

/// What comes next in an archive.
#[derive(Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// An entry begins.
    Entry(Entry),
    /// Bytes of the file that began.
    Data(&'a [u8]),
    /// The file is complete.
    FileEnd,
}

/// Reads an archive piece by piece. Holds one block, and one extension header of a bounded size.
#[derive(Debug)]
pub struct Reader {
    state: State,
    block: Vec<u8>,
    next: Extensions,
}

#[derive(Debug)]
enum State {
    /// A header is being read.
    Header,
    /// A header behind a header is being read.
    Extension { kind: EntryType, left: u64, padding: u64, bytes: Vec<u8> },
    /// The bytes of a file are passed on.
    Data { left: u64, padding: u64 },
    /// Bytes that nobody wants are passed over; whether a file ends with them.
    Skip { left: u64 },
    /// The end mark was read; whatever follows is filling.
    End,
}

/// What extension headers said of the entry that follows them.
#[derive(Debug, Default)]
struct Extensions {
    path: Option<Vec<u8>>,
    link: Option<Vec<u8>>,
    size: Option<u64>,
    modified: Option<i64>,
}

impl Default for Reader {
    fn default() -> Self {
        Reader { state: State::Header, block: Vec::with_capacity(BLOCK), next: Extensions::default() }
    }
}

impl Reader {
    /// The next event of the bytes, which are taken off the front of `input`; none when more are needed.
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Event<'a>>, ArchiveError> {
        loop {
            match &mut self.state {
                State::End => {
                    *input = &[];
                    return Ok(None);
                }
                State::Skip { left } => {
                    *left -= take(input, *left).len() as u64;
                    if *left > 0 {
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Data { left: 0, padding } => {
                    self.state = State::Skip { left: *padding };
                    return Ok(Some(Event::FileEnd));
                }
                State::Data { left, .. } => {
                    let bytes = take(input, *left);
                    *left -= bytes.len() as u64;
                    return Ok((!bytes.is_empty()).then_some(Event::Data(bytes)));
                }
                State::Extension { left, bytes, .. } if *left > 0 => {
                    let taken = take(input, *left);
                    *left -= taken.len() as u64;
                    bytes.extend_from_slice(taken);
                    if *left > 0 {
                        return Ok(None);
                    }
                }
                State::Extension { kind, padding, bytes, .. } => {
                    let (kind, padding, bytes) = (*kind, *padding, std::mem::take(bytes));
                    self.extend(kind, bytes)?;
                    self.state = State::Skip { left: padding };
                }
                State::Header => {
                    let wanted = (BLOCK - self.block.len()) as u64;
                    let taken = take(input, wanted);
                    self.block.extend_from_slice(taken);
                    if self.block.len() < BLOCK {
                        return Ok(None);
                    }
                    let entry = self.header();
                    self.block.clear();
                    if let Some(entry) = entry? {
                        return Ok(Some(Event::Entry(entry)));
                    }
                }
            }
        }
    }

    /// Says whether the archive may end here.
    pub fn finish(&self) -> Result<(), ArchiveError> {
        match self.state {
            State::End => Ok(()),
            _ => Err(ArchiveError::Malformed("the archive is cut off: its end mark is missing")),
        }
    }

    /// Reads the block as a header.
    fn header(&mut self) -> Result<Option<Entry>, ArchiveError> {
        if self.block.iter().all(|byte| *byte == 0) {
            self.state = State::End;
            return Ok(None);
        }
        let header = Header::from_byte_slice(&self.block);
        let wrong = |_| ArchiveError::Malformed("this is not a tar archive; a compressed one must be unpacked first");
        let sum = sum(&self.block);
        if header.cksum().map_err(wrong)? != sum {
            return Err(wrong(std::io::ErrorKind::InvalidData.into()));
        }
        let kind = header.entry_type();
        let size = header.entry_size().map_err(wrong)?;
        if kind.is_gnu_longname() || kind.is_gnu_longlink() || kind.is_pax_local_extensions() {
            if size > LONGEST_EXTENSION {
                return Err(ArchiveError::Malformed("the archive has a name or a header that is too long"));
            }
            self.state = State::Extension { kind, left: size, padding: padding(size), bytes: Vec::new() };
            return Ok(None);
        }
        if kind.is_pax_global_extensions() {
            self.state = State::Skip { left: with_padding(size)? };
            return Ok(None);
        }
        if kind.is_gnu_sparse() {
            return Err(SPARSE);
        }
        let said = std::mem::take(&mut self.next);
        let link = || said.link.clone().or_else(|| header.link_name_bytes().map(|link| link.into_owned()));
        let size = said.size.unwrap_or(size);
        let entry = Entry {
            kind: match kind {
                _ if kind.is_file() || kind.is_contiguous() => Kind::File(size),
                EntryType::Directory => Kind::Folder,
                EntryType::Symlink => Kind::Symlink(link().unwrap_or_default()),
                EntryType::Link => Kind::HardLink(link().unwrap_or_default()),
                _ => Kind::Other,
            },
            mode: header.mode().map_err(wrong)?,
            modified: said.modified.unwrap_or_else(|| header.mtime().ok().and_then(|t| t.try_into().ok()).unwrap_or(0)),
            path: said.path.unwrap_or_else(|| header.path_bytes().into_owned()),
        };
        if entry.path.len() > LONGEST_PATH {
            return Err(ArchiveError::Malformed("the archive has a path that is too long"));
        }
        self.state = match entry.kind {
            Kind::File(size) => State::Data { left: size, padding: padding(size) },
            // What has no bytes may still say so in its size; old archives give a hard link the size of its file.
            Kind::HardLink(_) | Kind::Symlink(_) | Kind::Folder => State::Skip { left: 0 },
            Kind::Other => State::Skip { left: with_padding(size)? },
        };
        // Archives before POSIX mark a folder by the end of its name.
        Ok(Some(match entry.kind {
            Kind::File(0) if entry.path.ends_with(b"/") => {
                self.state = State::Skip { left: 0 };
                Entry { kind: Kind::Folder, ..entry }
            }
            _ => entry,
        }))
    }

    /// Takes up what an extension header says.
    fn extend(&mut self, kind: EntryType, mut bytes: Vec<u8>) -> Result<(), ArchiveError> {
        if kind.is_pax_local_extensions() {
            return self.extend_by_pax(&bytes);
        }
        bytes.truncate(bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()));
        let slot = if kind.is_gnu_longname() { &mut self.next.path } else { &mut self.next.link };
        *slot = Some(bytes);
        Ok(())
    }

    fn extend_by_pax(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        const WRONG: ArchiveError = ArchiveError::Malformed("the archive has an extension header that cannot be read");
        for record in PaxExtensions::new(bytes) {
            let record = record.map_err(|_| WRONG)?;
            let value = record.value_bytes();
            let text = || record.value().map_err(|_| WRONG);
            match record.key_bytes() {
                b"path" => self.next.path = Some(value.to_vec()),
                b"linkpath" => self.next.link = Some(value.to_vec()),
                b"size" => self.next.size = Some(text()?.parse().map_err(|_| WRONG)?),
                // Parts of a second are not kept.
                b"mtime" => {
                    self.next.modified = text()?.split('.').next().and_then(|seconds| seconds.parse().ok());
                }
                key if key.starts_with(b"GNU.sparse.") => return Err(SPARSE),
                _ => {}
            }
        }
        Ok(())
    }
}

const SPARSE: ArchiveError =
    ArchiveError::Malformed("the archive has a file with holes in a form that is not read; pack it without --sparse");

/// Takes at most `most` bytes off the front.
fn take<'a>(input: &mut &'a [u8], most: u64) -> &'a [u8] {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(input.len());
    let (taken, rest) = input.split_at(length);
    *input = rest;
    taken
}

/// The sum of a header's bytes, those of the sum itself taken as spaces.
fn sum(block: &[u8]) -> u32 {
    block.iter().enumerate().map(|(at, byte)| if (148..156).contains(&at) { 32 } else { u32::from(*byte) }).sum()
}

/// What fills the last block of so many bytes.
pub(crate) fn padding(size: u64) -> u64 {
    (BLOCK as u64 - size % BLOCK as u64) % BLOCK as u64
}

fn with_padding(size: u64) -> Result<u64, ArchiveError> {
    size.checked_add(padding(size)).ok_or(ArchiveError::Malformed("the archive has an entry that is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// An event without its borrow.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Seen {
        Entry(Entry),
        Data(Vec<u8>),
        FileEnd,
    }

    fn read(bytes: &[u8], cut: usize) -> Result<Vec<Seen>, String> {
        let mut reader = Reader::default();
        let mut seen: Vec<Seen> = Vec::new();
        for mut piece in bytes.chunks(cut) {
            while let Some(event) = reader.next(&mut piece).map_err(|error| error.to_string())? {
                match (event, seen.last_mut()) {
                    (Event::Data(more), Some(Seen::Data(bytes))) => bytes.extend_from_slice(more),
                    (Event::Data(bytes), _) => seen.push(Seen::Data(bytes.to_vec())),
                    (Event::Entry(entry), _) => seen.push(Seen::Entry(entry)),
                    (Event::FileEnd, _) => seen.push(Seen::FileEnd),
                }
            }
            assert!(piece.is_empty(), "all bytes are taken");
        }
        reader.finish().map_err(|error| error.to_string())?;
        Ok(seen)
    }

    fn archive(files: &[(&str, &[u8])]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, bytes) in files {
            let mut header = Header::new_gnu();
            header.set_size(bytes.len() as u64);
            header.set_mode(0o640);
            header.set_mtime(7);
            builder.append_data(&mut header, path, *bytes).unwrap();
        }
        builder.into_inner().unwrap()
    }

    #[test]
    fn what_others_packed_is_read_with_long_names_and_in_any_pieces() {
        let long = "long/".repeat(60) + "name";
        let bytes = archive(&[("a", b"hello"), (&long, &[7; 1500]), ("empty", b"")]);
        for cut in [1, 3, 511, 512, 513, 10_000] {
            let seen = read(&bytes, cut).unwrap();
            let entry = |path: &str, size| {
                Seen::Entry(Entry { path: path.into(), kind: Kind::File(size), mode: 0o640, modified: 7 })
            };
            assert_eq!(seen[0], entry("a", 5));
            assert_eq!(seen[1], Seen::Data(b"hello".to_vec()));
            assert_eq!(seen[3], entry(&long, 1500));
            assert_eq!(seen[6], entry("empty", 0));
            assert_eq!(seen.len(), 8);
        }
    }

    #[test]
    fn cut_compressed_sparse_and_overlong_archives_are_refused() {
        let whole = archive(&[("a", b"hello")]);
        for length in [0, 100, 512, 515, 1024] {
            assert!(read(&whole[..length], 4096).unwrap_err().contains("cut off"), "{length}");
        }
        assert!(read(&[0x1f, 0x8b].repeat(512), 4096).unwrap_err().contains("compressed"));
        let mut header = Header::new_gnu();
        header.set_entry_type(EntryType::GNUSparse);
        header.set_size(0);
        header.set_mode(0);
        header.set_cksum();
        assert!(read(header.as_bytes(), 4096).unwrap_err().contains("holes"));
        header.set_entry_type(EntryType::GNULongName);
        header.set_size(1 << 40);
        header.set_cksum();
        assert!(read(header.as_bytes(), 4096).unwrap_err().contains("too long"));
    }

    #[test]
    fn a_size_at_the_end_of_all_numbers_does_not_overflow() {
        let mut header = Header::new_gnu();
        header.set_mode(0);
        header.set_size(u64::MAX);
        for kind in [EntryType::Regular, EntryType::Char, EntryType::XGlobalHeader] {
            header.set_entry_type(kind);
            header.set_cksum();
            let _ = read(&[header.as_bytes().as_slice(), &[1; 5000]].concat(), 4096);
        }
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic_and_pieces_do_not_matter(
            mut bytes in prop::collection::vec(any::<u8>(), 0..3000), cut in 1usize..600, at in 0usize..4,
        ) {
            // A right sum gets the bytes past the first look.
            if let Some(block) = bytes.get_mut(at * BLOCK..(at + 1) * BLOCK) {
                let text = format!("{:06o}\0 ", sum(block));
                block[148..156].copy_from_slice(text.as_bytes());
            }
            prop_assert_eq!(read(&bytes, cut), read(&bytes, 100_000));
        }
    }
}
