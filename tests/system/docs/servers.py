"""Pieces of shell that give a page its surroundings: servers at their usual ports, databases, programs of the reader's."""

REDIS = """
mkdir -p /srv/redis
redis_with() { # OPTION...: another one, empty
    redis-cli SHUTDOWN NOSAVE >/dev/null 2>&1 || true
    redis-server --port 6379 --dir /srv/redis --save '' --daemonize yes "$@" >/dev/null
    until redis-cli PING 2>/dev/null | grep -q PONG; do sleep 0.01; done
}
redis_with
"""

# The newest that is there. It does not run as root.
POSTGRES = """
programs=$(ls -d /usr/lib/postgresql/*/bin | sort -V | tail -n 1)
install -d -o postgres /srv/postgres /var/run/postgresql
as_postgres() { (cd / && setpriv --reuid postgres --regid postgres --clear-groups "$@"); }
as_postgres "$programs/initdb" -D /srv/postgres/data -A trust --no-sync >/dev/null
as_postgres "$programs/pg_ctl" -D /srv/postgres/data -l /srv/postgres/log -o '-c fsync=off -c dynamic_shared_memory_type=mmap -k /var/run/postgresql' -w start >/dev/null
export PGHOST=/var/run/postgresql PGUSER=postgres
createdb shop
"""

SERVER = """
holdfastd --data /srv/holdfastd 2>/dev/null &
server=$!
until holdfast --on holdfast://127.0.0.1 ls >/dev/null 2>&1; do sleep 0.01; done
"""

TABLES = """CREATE TABLE batches (id INTEGER PRIMARY KEY, state TEXT, settled BOOLEAN DEFAULT false);
INSERT INTO batches VALUES (4472, 'open', false);
CREATE TABLE accounts (id INTEGER PRIMARY KEY, balance INTEGER, version INTEGER);
INSERT INTO accounts VALUES (7, 100, 12);"""
SHOP = f"""
psql -q -v ON_ERROR_STOP=1 shop <<'SQL'
{TABLES}
SQL
sqlite3 -bail shop.db <<'SQL'
{TABLES}
SQL
"""


def program(name, text):
    """A script of the reader's."""
    return f"cat >{name} <<'end of the program'\n#!/bin/sh\n{text}\nend of the program\nchmod +x {name}\n"
