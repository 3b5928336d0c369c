-- Tables of answers.sqlite. Statements are separated by empty lines.

CREATE TABLE schema (version INTEGER PRIMARY KEY, since TEXT NOT NULL, relpref TEXT NOT NULL) STRICT;

CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL, checksum INTEGER) STRICT;

CREATE TABLE entity (
    position INTEGER PRIMARY KEY,
    label TEXT NOT NULL UNIQUE,
    item TEXT,
    checksum INTEGER
) STRICT;

CREATE TABLE file (
    sha256 TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    how TEXT NOT NULL CHECK (how IN ('fitted', 'imported', 'exported')),
    time TEXT NOT NULL,
    checksum INTEGER
) STRICT;

CREATE TABLE question (
    id TEXT PRIMARY KEY,
    rater TEXT NOT NULL,
    first INTEGER NOT NULL REFERENCES entity,
    second INTEGER NOT NULL REFERENCES entity,
    left INTEGER NOT NULL REFERENCES entity,
    asked TEXT NOT NULL,
    version INTEGER NOT NULL,
    open INTEGER NOT NULL DEFAULT 1,
    checksum INTEGER,
    CHECK (first <> second AND left IN (first, second) AND open IN (0, 1))
) STRICT;

CREATE INDEX open_question ON question (rater) WHERE open = 1;

CREATE TABLE event (
    version INTEGER PRIMARY KEY,
    kind TEXT NOT NULL CHECK (kind IN ('answer', 'skip', 'withdrawal')),
    time TEXT NOT NULL,
    rater TEXT,
    question TEXT REFERENCES question,
    winner INTEGER REFERENCES entity,
    loser INTEGER REFERENCES entity,
    count INTEGER NOT NULL DEFAULT 1 CHECK (count > 0),
    tie INTEGER NOT NULL DEFAULT 0 CHECK (tie IN (0, 1)),
    strength INTEGER,
    probability REAL,
    shown_first INTEGER REFERENCES entity,
    withdrawn INTEGER UNIQUE REFERENCES event,
    checksum INTEGER,
    CHECK ((kind = 'answer') = (winner IS NOT NULL AND loser IS NOT NULL)),
    CHECK ((kind = 'withdrawal') = (withdrawn IS NOT NULL)),
    CHECK (winner <> loser)
) STRICT;

CREATE UNIQUE INDEX answered_once ON event (question) WHERE kind IN ('answer', 'skip');

CREATE INDEX event_of_rater ON event (rater, version);

CREATE TRIGGER events_stay BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;

-- The checksum of an event is written once, and nothing else of it is ever changed.
CREATE TRIGGER events_are_final BEFORE UPDATE ON event WHEN old.checksum IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

-- Other columns of answers that came without a question: their group, list and weight, and covariates.
CREATE TABLE more (
    version INTEGER PRIMARY KEY REFERENCES event,
    columns TEXT NOT NULL,
    checksum INTEGER
) STRICT;

CREATE INDEX about_unsealed ON about (checksum) WHERE checksum IS NULL;

CREATE INDEX entity_unsealed ON entity (checksum) WHERE checksum IS NULL;

CREATE INDEX file_unsealed ON file (checksum) WHERE checksum IS NULL;

CREATE INDEX question_unsealed ON question (checksum) WHERE checksum IS NULL;

CREATE INDEX event_unsealed ON event (checksum) WHERE checksum IS NULL;

CREATE INDEX more_unsealed ON more (checksum) WHERE checksum IS NULL;
