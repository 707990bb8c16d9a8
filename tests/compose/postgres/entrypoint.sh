#!/bin/sh
# Makes the database on the first start, then becomes the PostgreSQL server.
set -eu

if [ "$(id -u)" = 0 ]; then
    install -d -o postgres -g postgres -m 0700 "$PGDATA"
    exec setpriv --reuid=postgres --regid=postgres --init-groups "$0" "$@"
fi

# Debian keeps the programs out of PATH, in a folder named after the version.
PATH=$(echo /usr/lib/postgresql/*/bin):$PATH
user=${POSTGRES_USER:-postgres}

if [ ! -s "$PGDATA/PG_VERSION" ]; then
    : "${POSTGRES_PASSWORD:?is needed to make the database}"
    password_file=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" > "$password_file"
    # UTF-8 as in the official image; Debian's minimal locale would make a database without an encoding.
    initdb --username="$user" --pwfile="$password_file" --encoding=UTF8 --locale=C.UTF-8 \
        --auth-local=trust --auth-host=scram-sha-256
    rm "$password_file"
    echo "host all all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
    # As in the official image, the first server listens on its socket alone.
    pg_ctl start --wait --silent --options="-c listen_addresses=''"
    if [ "${POSTGRES_DB:-$user}" != postgres ]; then
        createdb --username="$user" "${POSTGRES_DB:-$user}"
    fi
    pg_ctl stop --wait --silent
fi

exec postgres -c listen_addresses='*' "$@"
