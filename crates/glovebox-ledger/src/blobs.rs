//! Blobs: bytes that are stored by their SHA-256, compressed, each content once.
//!
//! Theory of operation. A blob is the file `ab/cdef…`, named by its hash: eight bytes with the length of the content, then
//! one zstd frame. It is written under a temporary name in the same folder and then renamed, so a name that exists is a
//! blob that was written to its end. Two writers of the same content rename the same bytes onto the same name.
//!
//! A writer holds a lock on its temporary file. One that can be locked has no writer any more and is swept.
//!
//! Nothing is synced to the disk, as with the rows of the ledger: a killed process loses nothing, and a power cut may take
//! the last seconds. What it takes is noticed, because every read checks length and hash, and is made good, because a
//! writer that finds its content stored already reads it before it believes it.

use std::{
    fs::{self, DirBuilder, File},
    io::{self, ErrorKind, Read, Seek, SeekFrom, Write},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU64, Ordering},
    time::SystemTime,
};

use glovebox_core::{Error, ErrorCode, Result};
use sha2::{Digest, Sha256};
use zstd::stream::{read::Decoder, write::Encoder};

use crate::{Sha256Hash, lock_file, store};

/// Fast, and output of programs still shrinks to a quarter.
const COMPRESSION: i32 = 1;
const LENGTH_BYTES: usize = 8;
const CHUNK: usize = 64 * 1024;
const TEMPORARY: &str = "tmp-";

/// A folder of blobs. Any number of processes may use the same one at the same time.
#[derive(Clone, Debug)]
pub struct Blobs {
    folder: PathBuf,
}

/// What was stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blob {
    /// The name of the content.
    pub sha256: Sha256Hash,
    /// Its length, not compressed.
    pub bytes: u64,
}

impl Blobs {
    /// The blobs in `folder`, which is made when it is not there.
    pub fn open(folder: impl Into<PathBuf>) -> Result<Blobs> {
        let folder = folder.into();
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| unavailable("make the folder of blobs", &folder, error))?;
        Ok(Blobs { folder })
    }

    /// Stores what a reader gives, to its end. Content that is there already is not stored again; its time of change is
    /// set anew, so that a prune can spare what somebody is about to refer to.
    pub fn put(&self, content: impl Read) -> Result<Blob> {
        let failed = |error| unavailable("store a blob", &self.folder, error);
        let mut writing = Writing::begin(&self.folder).map_err(failed)?;
        let blob = writing.write(content).map_err(failed)?;
        let place = self.place(&blob.sha256);
        if self.touch_whole(&blob, &place) {
            return Ok(blob);
        }
        writing.publish(&place).map_err(failed)?;
        Ok(blob)
    }

    /// Reads a blob. The reader checks length and hash: it gives the whole content, or an error.
    pub fn open_blob(&self, sha256: &Sha256Hash) -> Result<BlobReader> {
        BlobReader::open(&self.place(sha256), *sha256).map_err(|error| match error.kind() {
            ErrorKind::NotFound => Error::new(ErrorCode::LedgerDamaged, format!("the blob {sha256} is not stored")),
            _ => unavailable("read a blob", &self.place(sha256), error),
        })
    }

    /// Whether a blob is stored.
    pub fn contains(&self, sha256: &Sha256Hash) -> bool {
        self.place(sha256).is_file()
    }

    /// Removes a blob; one that is not there is fine. Whoever removes sees to it that no row refers to the blob, and
    /// spares those that were put lately: their row may be on its way.
    pub fn remove(&self, sha256: &Sha256Hash) -> Result<()> {
        match fs::remove_file(self.place(sha256)) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(unavailable("remove a blob", &self.place(sha256), error))
            }
            _ => Ok(()),
        }
    }

    /// Removes what writers left that died within a blob, and says how many that were.
    pub fn sweep(&self) -> Result<u64> {
        let failed = |error| unavailable("sweep the folder of blobs", &self.folder, error);
        let mut swept = 0;
        for entry in self.folder.read_dir().map_err(failed)? {
            let entry = entry.map_err(failed)?;
            if entry.file_name().as_encoded_bytes().starts_with(TEMPORARY.as_bytes()) {
                swept += u64::from(sweep_one(&entry.path()).map_err(failed)?);
            }
        }
        Ok(swept)
    }

    fn place(&self, sha256: &Sha256Hash) -> PathBuf {
        let name = sha256.to_string();
        self.folder.join(&name[..2]).join(&name[2..])
    }

    /// Whether the content is stored already and whole. A damaged one is written again.
    fn touch_whole(&self, blob: &Blob, place: &Path) -> bool {
        let Ok(reader) = BlobReader::open(place, blob.sha256) else { return false };
        let touched = reader.file().set_modified(SystemTime::now());
        touched.is_ok() && io::copy(&mut { reader }, &mut io::sink()).is_ok_and(|bytes| bytes == blob.bytes)
    }
}

/// A blob that is being written. Dropped before it is published, it leaves nothing.
struct Writing {
    path: PathBuf,
    file: File,
    published: bool,
}

impl Writing {
    fn begin(folder: &Path) -> io::Result<Writing> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = NUMBER.fetch_add(1, Ordering::Relaxed);
            let path = folder.join(format!("{TEMPORARY}{}-{number}", process::id()));
            match lock_file::create(&path) {
                Ok(Some(file)) => return Ok(Writing { path, file, published: false }),
                Ok(None) => {}
                // Somebody with this number of process has died here, or lives in another namespace.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn write(&mut self, mut content: impl Read) -> io::Result<Blob> {
        self.file.write_all(&[0; LENGTH_BYTES])?;
        let mut encoder = Encoder::new(&self.file, COMPRESSION)?;
        let (mut hasher, mut bytes) = (Sha256::new(), 0);
        let mut chunk = vec![0; CHUNK];
        loop {
            let count = match content.read(&mut chunk) {
                Ok(0) => break,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            hasher.update(&chunk[..count]);
            encoder.write_all(&chunk[..count])?;
            bytes += count as u64;
        }
        encoder.finish()?;
        self.file.seek(SeekFrom::Start(0))?;
        self.file.write_all(&bytes.to_le_bytes())?;
        Ok(Blob { sha256: Sha256Hash::finish(hasher), bytes })
    }

    fn publish(mut self, place: &Path) -> io::Result<()> {
        if let Some(folder) = place.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        fs::rename(&self.path, place)?;
        self.published = true;
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !self.published {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes a temporary file whose writer is gone.
fn sweep_one(path: &Path) -> io::Result<bool> {
    match lock_file::take_over(path)? {
        Some(_locked) => fs::remove_file(path).map(|()| true),
        None => Ok(false),
    }
}

/// The content of a blob. A read fails as soon as it is known that the content is not the one of the blob's name.
pub struct BlobReader {
    decoder: Decoder<'static, io::BufReader<File>>,
    sha256: Sha256Hash,
    hasher: Sha256,
    bytes: u64,
    left: u64,
    verified: bool,
}

impl BlobReader {
    fn open(path: &Path, sha256: Sha256Hash) -> io::Result<BlobReader> {
        let mut file = File::open(path)?;
        let mut length = [0; LENGTH_BYTES];
        file.read_exact(&mut length)?;
        let bytes = u64::from_le_bytes(length);
        Ok(BlobReader {
            decoder: Decoder::new(file)?,
            sha256,
            hasher: Sha256::new(),
            bytes,
            left: bytes,
            verified: false,
        })
    }

    /// The length of the content, which a read to the end holds the blob to.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn file(&self) -> &File {
        self.decoder.get_ref().get_ref()
    }

    fn damaged(&self) -> io::Error {
        io::Error::new(ErrorKind::InvalidData, format!("the blob {} is damaged", self.sha256))
    }
}

impl Read for BlobReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() || self.verified {
            return Ok(0);
        }
        let count = self.decoder.read(buffer).map_err(|_| self.damaged())?;
        self.left = self.left.checked_sub(count as u64).ok_or_else(|| self.damaged())?;
        self.hasher.update(&buffer[..count]);
        if count == 0 {
            let whole = self.left == 0 && Sha256Hash::finish(self.hasher.clone()) == self.sha256;
            self.verified = whole;
            return if whole { Ok(0) } else { Err(self.damaged()) };
        }
        Ok(count)
    }
}

fn unavailable(what: &str, path: &Path, error: io::Error) -> Error {
    let failed = Error::new(ErrorCode::LedgerUnavailable, format!("cannot {what} ({})", path.display()));
    store::because(failed, error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Cursor, sync::Barrier, thread};

    fn blobs() -> (tempfile::TempDir, Blobs) {
        let folder = tempfile::tempdir().unwrap();
        let blobs = Blobs::open(folder.path().join("blobs")).unwrap();
        (folder, blobs)
    }

    fn content(blobs: &Blobs, blob: &Blob) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        blobs.open_blob(&blob.sha256).map_err(io::Error::other)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Every file of the store, and how many bytes they take together.
    fn files(blobs: &Blobs) -> (Vec<PathBuf>, u64) {
        let folders = blobs.folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
        let of = |path: PathBuf| match path.is_dir() {
            true => path.read_dir().unwrap().map(|entry| entry.unwrap().path()).collect(),
            false => vec![path],
        };
        let files: Vec<PathBuf> = folders.flat_map(of).collect();
        let bytes = files.iter().map(|file| file.metadata().unwrap().len()).sum();
        (files, bytes)
    }

    #[test]
    fn what_was_put_is_read_again_and_stored_compressed() {
        let (_folder, blobs) = blobs();
        for bytes in [Vec::new(), b"hello".to_vec(), b"line of a log\n".repeat(100_000)] {
            let blob = blobs.put(Cursor::new(&bytes)).unwrap();
            assert_eq!((blob.sha256, blob.bytes), (Sha256Hash::of(&bytes), bytes.len() as u64));
            assert_eq!(content(&blobs, &blob).unwrap(), bytes);
            assert!(blobs.contains(&blob.sha256));
        }
        assert!(files(&blobs).1 < 10_000, "{} bytes", files(&blobs).1);
    }

    #[test]
    fn the_same_content_is_stored_once_also_by_writers_at_the_same_time() {
        let (_folder, blobs) = blobs();
        let start = Barrier::new(8);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    start.wait();
                    for number in 0..20u8 {
                        let blob = blobs.put(Cursor::new(vec![number; 10_000])).unwrap();
                        assert_eq!(content(&blobs, &blob).unwrap(), vec![number; 10_000]);
                    }
                });
            }
        });
        assert_eq!(files(&blobs).0.len(), 20);
    }

    #[test]
    fn a_reader_that_fails_leaves_nothing() {
        struct Broken;
        impl Read for Broken {
            fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
                Err(io::Error::other("broken"))
            }
        }
        let (_folder, blobs) = blobs();
        let error = blobs.put(Cursor::new(vec![1; 200_000]).chain(Broken)).unwrap_err();
        assert_eq!(error.code, ErrorCode::LedgerUnavailable);
        assert!(files(&blobs).0.is_empty());
    }

    #[test]
    fn a_damaged_blob_is_never_read_as_whole_and_the_next_put_mends_it() {
        let (_folder, blobs) = blobs();
        let bytes: Vec<u8> = (0..50_000u32).flat_map(u32::to_le_bytes).collect();
        let blob = blobs.put(&bytes[..]).unwrap();
        let place = blobs.place(&blob.sha256);
        let whole = fs::read(&place).unwrap();
        let mut flipped = whole.clone();
        flipped[whole.len() / 2] ^= 1;
        let mut longer = whole.clone();
        longer[0] ^= 1;
        let other = blobs.put(&b"other"[..]).unwrap();
        let swapped = fs::read(blobs.place(&other.sha256)).unwrap();
        for damaged in [&[][..], &whole[..4], &whole[..whole.len() - 1], &flipped, &longer, &swapped] {
            fs::write(&place, damaged).unwrap();
            assert!(content(&blobs, &blob).is_err(), "{} bytes", damaged.len());
            assert_eq!(blobs.put(&bytes[..]).unwrap(), blob);
            assert_eq!(content(&blobs, &blob).unwrap(), bytes);
        }
    }

    #[test]
    fn a_removed_blob_is_gone_and_removing_it_again_is_fine() {
        let (_folder, blobs) = blobs();
        let blob = blobs.put(&b"x"[..]).unwrap();
        blobs.remove(&blob.sha256).unwrap();
        blobs.remove(&blob.sha256).unwrap();
        assert!(!blobs.contains(&blob.sha256));
        let error = blobs.open_blob(&blob.sha256).err().unwrap();
        assert_eq!(error.code, ErrorCode::LedgerDamaged);
    }

    #[test]
    fn a_sweep_takes_what_dead_writers_left_and_nothing_of_the_living() {
        let (_folder, blobs) = blobs();
        let blob = blobs.put(&b"whole"[..]).unwrap();
        fs::write(blobs.folder.join("tmp-1-0"), b"half").unwrap();
        let mut living = Writing::begin(&blobs.folder).unwrap();
        assert_eq!(blobs.sweep().unwrap(), 1);
        let late = living.write(&b"late"[..]).unwrap();
        living.publish(&blobs.place(&late.sha256)).unwrap();
        assert_eq!(content(&blobs, &late).unwrap(), b"late");
        assert_eq!(content(&blobs, &blob).unwrap(), b"whole");
        assert_eq!(blobs.sweep().unwrap(), 0);
    }
}
