-- Which process works on a job, so that its successor need not wait until it has been silent for long.
ALTER TABLE ingest_job
    ADD COLUMN claimed_host text,
    ADD COLUMN claimed_pid  integer;
