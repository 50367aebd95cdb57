#!/bin/sh
# Runs once, when the container's database is made: an ordinary role that owns its database, and the
# extension, which only an administrator may create.
set -eu
psql --set ON_ERROR_STOP=1 --username "$POSTGRES_USER" --set password="$POIMEN_DB_PASSWORD" <<'SQL'
CREATE ROLE poimen LOGIN PASSWORD :'password';
CREATE DATABASE poimen OWNER poimen;
\connect poimen
CREATE EXTENSION vector;
SQL
