-- One row for each run that is over. `document` is the result document without the bytes of its streams.
CREATE TABLE runs (
    run        TEXT NOT NULL PRIMARY KEY,
    outcome    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    document   TEXT NOT NULL
) STRICT;

-- The files of a run by their name in an export: stdout, stderr, artifacts/… A small one is stored here; of any other
-- this is the hash of its blob. They are written before the row of their run, in the same transaction.
CREATE TABLE files (
    run     TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    name    TEXT NOT NULL,
    sha256  TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    content BLOB,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_hash ON files (sha256);

CREATE TRIGGER runs_never_change BEFORE UPDATE ON runs
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER runs_are_not_replaced BEFORE INSERT ON runs WHEN EXISTS (SELECT 1 FROM runs WHERE run = NEW.run)
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_never_change BEFORE UPDATE ON files
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_are_not_added BEFORE INSERT ON files WHEN EXISTS (SELECT 1 FROM runs WHERE run = NEW.run)
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_stay_with_their_run BEFORE DELETE ON files WHEN EXISTS (SELECT 1 FROM runs WHERE run = OLD.run)
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;
