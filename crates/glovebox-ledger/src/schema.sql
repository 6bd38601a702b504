-- One row for each run. `document` is the result document without the bytes of its streams. While a run is under way
-- it is the document of a lost run, which is what it becomes when nobody is left to finish it.
CREATE TABLE runs (
    run        TEXT NOT NULL PRIMARY KEY,
    outcome    TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    document   TEXT NOT NULL
) STRICT;

CREATE INDEX runs_under_way ON runs (run) WHERE outcome = 'running';

-- The files of a run by their name in an export: stdout, stderr, artifacts/… A small one is stored here; of any other
-- this is the hash of its blob.
CREATE TABLE files (
    run     TEXT NOT NULL REFERENCES runs (run) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,
    name    TEXT NOT NULL,
    sha256  TEXT NOT NULL,
    bytes   INTEGER NOT NULL,
    content BLOB,
    PRIMARY KEY (run, name)
) STRICT, WITHOUT ROWID;

CREATE INDEX files_by_hash ON files (sha256);

CREATE TRIGGER finished_runs_never_change BEFORE UPDATE ON runs WHEN OLD.outcome <> 'running'
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER finished_runs_are_not_replaced BEFORE INSERT ON runs
WHEN EXISTS (SELECT 1 FROM runs WHERE run = NEW.run AND outcome <> 'running')
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_never_change BEFORE UPDATE ON files
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_belong_to_a_run_under_way BEFORE INSERT ON files
WHEN (SELECT outcome FROM runs WHERE run = NEW.run) <> 'running'
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;

CREATE TRIGGER files_stay_with_their_run BEFORE DELETE ON files
WHEN EXISTS (SELECT 1 FROM runs WHERE run = OLD.run AND outcome <> 'running')
BEGIN
    SELECT RAISE(ABORT, 'a finished run never changes');
END;
