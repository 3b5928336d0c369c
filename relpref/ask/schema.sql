-- The tables of answers.sqlite. Statements are separated by empty lines.

-- Schema 1

CREATE TABLE schema (version INTEGER PRIMARY KEY, since TEXT NOT NULL, relpref TEXT NOT NULL) STRICT;

CREATE TABLE about (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;

CREATE TABLE entity (position INTEGER PRIMARY KEY, label TEXT NOT NULL UNIQUE) STRICT;

CREATE TABLE question (
    id TEXT PRIMARY KEY,
    rater TEXT NOT NULL,
    first INTEGER NOT NULL REFERENCES entity,
    second INTEGER NOT NULL REFERENCES entity,
    left INTEGER NOT NULL REFERENCES entity,
    asked TEXT NOT NULL,
    version INTEGER NOT NULL,
    open INTEGER NOT NULL DEFAULT 1,
    CHECK (first <> second AND left IN (first, second) AND open IN (0, 1))
) STRICT;

CREATE UNIQUE INDEX one_open_question ON question (rater) WHERE open = 1;

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
    CHECK ((kind = 'answer') = (winner IS NOT NULL AND loser IS NOT NULL)),
    CHECK ((kind = 'withdrawal') = (withdrawn IS NOT NULL)),
    CHECK (winner <> loser)
) STRICT;

CREATE UNIQUE INDEX answered_once ON event (question) WHERE kind IN ('answer', 'skip');

CREATE INDEX event_of_rater ON event (rater, version);

CREATE TRIGGER events_stay BEFORE DELETE ON event
BEGIN SELECT RAISE(ABORT, 'events are never deleted'); END;

CREATE TRIGGER events_are_final BEFORE UPDATE ON event
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

-- Schema 2: what the person who answers is shown, and the files whose answers are here already

ALTER TABLE entity ADD COLUMN item TEXT;

CREATE TABLE file (
    sha256 TEXT PRIMARY KEY,
    name TEXT NOT NULL,
    how TEXT NOT NULL CHECK (how IN ('fitted', 'imported', 'exported')),
    time TEXT NOT NULL
) STRICT;

-- Schema 3: damage that SQLite does not see; the checksum of an event may be written once, and nothing else of it ever

ALTER TABLE entity ADD COLUMN checksum INTEGER;

ALTER TABLE question ADD COLUMN checksum INTEGER;

ALTER TABLE event ADD COLUMN checksum INTEGER;

ALTER TABLE file ADD COLUMN checksum INTEGER;

ALTER TABLE about ADD COLUMN checksum INTEGER;

CREATE INDEX entity_unsealed ON entity (checksum) WHERE checksum IS NULL;

CREATE INDEX question_unsealed ON question (checksum) WHERE checksum IS NULL;

CREATE INDEX event_unsealed ON event (checksum) WHERE checksum IS NULL;

CREATE INDEX file_unsealed ON file (checksum) WHERE checksum IS NULL;

CREATE INDEX about_unsealed ON about (checksum) WHERE checksum IS NULL;

DROP TRIGGER events_are_final;

CREATE TRIGGER events_are_final BEFORE UPDATE ON event WHEN old.checksum IS NOT NULL
BEGIN SELECT RAISE(ABORT, 'events are never changed'); END;

INSERT INTO about (name, value) VALUES ('rows', '');

-- Schema 4: several questions may be open for a rater at once

DROP INDEX one_open_question;

CREATE INDEX open_question ON question (rater) WHERE open = 1;

-- Schema 5: other columns of answers that came without a question: what they share with others, and covariates of their sides

CREATE TABLE more (version INTEGER PRIMARY KEY REFERENCES event, columns TEXT NOT NULL, checksum INTEGER) STRICT;

CREATE INDEX more_unsealed ON more (checksum) WHERE checksum IS NULL;
