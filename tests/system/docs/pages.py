"""Every page, with its setting and what is done with each of its blocks, in order. A block that is not here fails the test, and so
does an entry without a block.

Each page has a machine of its own (see machine.py) in which holdfast and holdfastd are installed; in its directory are the Makefile and
a build/, as if `make` had been run there. What the page takes for granted besides (a Redis, a database, a program of the reader's) is
made by its setting, or before the block that needs it.
"""
import dataclasses

import cluster_page
import stores_page
import systemd_page
import users_page
from kinds import DRAWING, ELSEWHERE, PACKAGES, ROTATION, SYNTAX, SYSTEMD, TOOL, Excused, File, Run
from servers import POSTGRES, REDIS, SERVER, SHOP, program


@dataclasses.dataclass
class Page:
    blocks: list
    setting: object = ""  # commands, or a function of the place
    machines: tuple = ()  # more than the reader's
    needs: tuple = ()  # programs, and files of the build directory
    booted: bool = False  # its machines have systemd


COMPILE = """
cc -Wall -Wextra -Werror -o part part.c $(pkg-config --cflags --libs holdfast)
./part
"""
TOKEN_SAID = r"^working with token \d{16}$"

README = Page(
    needs=("redis-server", "sqlite3", "psql"),
    setting=REDIS + POSTGRES,
    blocks=[
        Excused("make try ", ELSEWHERE),
        Excused("           time ──", DRAWING),
        Run("PATH=$PWD/build/src/cli:$PATH", after="command -v holdfast", says=("/page/build/src/cli/holdfast$",)),
        Run("holdfast run nightly -- sh -c", says=(TOKEN_SAID,)),
        Run("holdfast run nightly -- sleep 5 &", ends=(75, 75), says=("is busy",), never=("never printed",)),
        Run("holdfast show nightly", says=(r"^nightly: held \(exclusive\)", '"name": *"nightly"', "^my turn$")),
        Run("holdfast run --shared report", says=("^reading$", "^one of three at most$")),
        Run("holdfast elect scheduler", says=(r"sleep\[\d+\], token \d{16}$",)),
        Run("holdfast once pay:4711", says=(r"\A(charged, receipt \d+\n)\1\Z",)),
        Run("holdfast run nightly -- sleep 60 &", says=("broke 1 hold",)),
        Run("holdfast stores", says=("file:DIR", "redis://", "holdfast://")),
        File("hf_store *store;", "part.c", COMPILE, "compiled", says=(r"^the ledger: \d{16}$",), top="""
#include <err.h>
#include <holdfast/holdfast.h>
#include <inttypes.h>
#include <stdio.h>

static void write_to_the_ledger(uint64_t token)
{
    printf("the ledger: %" PRIu64 "\\n", token);
}

int main(void)
{
""", bottom="}"),
        Run("holdfast guard sql --dialect postgres", says=("^enter in psql: 35$", "^enter in sqlite3: 35$", '^"settled"$'), after="""
echo "enter in psql: $(psql -v ON_ERROR_STOP=1 -qAt shop -c "SELECT holdfast_enter('batch:4472', 35); SELECT token FROM holdfast_marks")"
echo "enter in sqlite3: $(sqlite3 -bail shop.db "INSERT INTO holdfast_enter(key, token) VALUES ('batch:4472', 35);
    SELECT token FROM holdfast_marks")"
redis-cli FCALL holdfast_set 2 'holdfast.mark:{batch:4472}' batch:4472 35 not-older settled
redis-cli GET batch:4472"""),
        File("url = holdfast://10.0.0.1", "/etc/holdfast/client.conf", before=cluster_page.three_at_10_0_0,
             then="(unset HOLDFAST_URL; holdfast run nightly -- echo under the lock; holdfast stores)",
             says=("^under the lock$", "client.conf"), after=cluster_page.none_at_10_0_0),
        Run("build/src/server/holdfastd", says=(TOKEN_SAID, r"^\(integer\) \d{16}$")),
        Run("make cluster ", asides={"make cluster": "holdfast://127.0.0.1:7421,"}, says=("leader", TOKEN_SAID)),
        Run("export HOLDFAST_URL=redis://127.0.0.1", says=(TOKEN_SAID,)),
    ])

ARCHITECTURE = Page(
    blocks=[
        File("include/holdfast/   what", "rooms", "cut -d ' ' -f 1 rooms | (cd \"$REPOSITORY\" && xargs ls -d)"),
        Excused("cli ──────", DRAWING),  # tools/rooms keeps to it
        Excused("server: socket ──bytes──▶", DRAWING),
        Excused("server ──▶ node", DRAWING),
    ])

COMPARE = Page(
    needs=("redis-server", "psql", "flock", "src/engines/holdfast-postgres.so"),
    setting="mkdir bin; PATH=$PWD/bin:$PATH\n" + program("bin/fetch-all", "echo fetching") + program("bin/backup", "echo backing up") +
            program("bin/make-report", "echo reporting"),
    blocks=[
        Run("flock -n nightly.lock", says=(r"working\n(.*\n)*working\n",)),
        Run("holdfast run -n nightly -- flock", says=("^working$",)),
        Run("(\n    flock -n 9", says=(r"\Astep one\nstep two\n\Z",)),
        Run("holdfast run -n nightly -c '", says=(r"\Astep one\nstep two\n\Z",)),
        File('[ "${HOLDFAST_NAME-}" = nightly ]', "job", counts="run", top="#!/bin/sh\n", then="""
chmod +x job
./job hard
holdfast run nightly -- sh -c 'unset HOLDFAST_HELD HOLDFAST_NAME; ./job harder || echo $?'
""", bottom='echo working "$@" with "${HOLDFAST_TOKEN:?}"', says=(r"^working hard with \d{16}$", "^75$"), never=("harder",)),
        Run("consul lock", without={"consul lock": TOOL}, says=("^fetching$",)),
        Run("etcdctl lock", before=SERVER + "export HOLDFAST_URL=holdfast://127.0.0.1", without={"etcdctl lock": TOOL},
            says=("^backing up$",)),
        # It ends fourteen minutes later.
        Run("holdfast run -n --max-hold 14m", asides={"holdfast run": "^reporting"}, after="holdfast show report",
            says=("^report: held",)),
        Run("holdfast guard sql --dialect postgres", before=POSTGRES + program("settle.sh", """psql -v ON_ERROR_STOP=1 -qAt shop <<SQL
BEGIN;
SELECT holdfast_enter('batch:4472', $HOLDFAST_TOKEN);
SELECT 'settled';
COMMIT;
SQL"""), says=("^settled$",)),
        Run("holdfast --on postgres:///shop run batch:4472", says=("^settled$",)),
        Run("holdfast --on 'redis://127.0.0.1?prefix=lock:'", before=REDIS, says=("^reporting$",)),
        # The one above has report for fourteen minutes.
        File("import redis, uuid", "report.py", "/usr/bin/python3 report.py", "run", stands_for={'"report"': '"another"'},
             top="def make_report(token):\n    print(\"reporting with\", token)\n\n\n", after="holdfast show another",
             says=(r"^reporting with \d{16}$", "^another: nobody holds it")),
    ])

FENCING = Page(
    needs=("redis-server", "sqlite3", "psql", "src/guard/holdfast-fence.so"),
    setting=REDIS + POSTGRES + SHOP + program("charge", "echo charged $1 >>charges; echo receipt for $1") + "PATH=$PWD:$PATH",
    blocks=[
        Excused("holder A, token 33", DRAWING),
        Excused("A (33) reads 100", DRAWING),
        Run("holdfast guard sql --dialect postgres | psql", after="holdfast guard sql --dialect sqlite | sqlite3 -bail shop.db"),
        Run("holdfast run batch:4472 -- sh -c 'psql", says=("^UPDATE 1$", "^t$"), after="psql -qAt shop -c 'SELECT settled FROM batches'"),
        Run("holdfast run batch:4472 -- sh -c 'sqlite3", says=("^1$",), after="sqlite3 shop.db 'SELECT settled FROM batches'"),
        Run("holdfast guard sql --dialect postgres --table"),
        File("UPDATE batches SET state = 'paid'", "update.sql", """
psql -v ON_ERROR_STOP=1 shop <update.sql
sqlite3 -bail shop.db <update.sql
""", "run", after="""
psql -qAt shop -c 'SELECT state, fence_token FROM batches'
sqlite3 shop.db 'SELECT state, fence_token FROM batches'""", says=(r"^paid\|35\npaid\|35$",)),
        Run("psql -v ON_ERROR_STOP=1 shop -c", says=("^COMMIT$", "^0$"), after="psql -qAt shop -c 'SELECT count(*) FROM batches'",
            before="holdfast guard sql --dialect postgres --table batches --key-column id --require | psql -q -v ON_ERROR_STOP=1 shop"),
        Run("holdfast guard redis | redis-cli", says=('^"70"$', "STALE 34 35"), after="""
redis-cli GET account:7
redis-cli FCALL holdfast_set 2 holdfast.mark:{account:7} account:7 34 not-older 1"""),
        File('hf_acquire(store, "account:7"', "part.c", COMPILE, "compiled", says=("^written$",), top="""
#include <err.h>
#include <holdfast/guard.h>
#include <holdfast/holdfast.h>
#include <stdio.h>

static void give_up(const char *why)
{
    errx(1, "%s", why);
}

static void read_think_and_write(void)
{
    puts("written");
}

int main(void)
{
    hf_store *store;
    hf_fence *fence;
    hf_lock *lock;
    hf_fence_entry *entry;

    if (hf_open(NULL, &store) != HF_OK || hf_fence_open("fence", NULL, &fence) != HF_OK)
        give_up(hf_error());
""", bottom="    hf_fence_close(fence);\n    hf_close(store);\n}"),
        Run("holdfast once --keep 24h", says=(r"\A(receipt for 4711\n)\1", "^1 charges$"),
            after="holdfast once --keep 24h pay:order-4711 -- charge 4711; wc -l charges"),
        File("SELECT balance, version", "version.sql", """
psql -v ON_ERROR_STOP=1 -At shop <version.sql
sqlite3 -bail shop.db <version.sql
sqlite3 shop.db 'SELECT balance, version FROM accounts'""", "run", says=(r"\A100\|12\nUPDATE 1\n100\|12\n70\|13\n",)),
        Run("holdfast guard marks --fence DIR", stands_for={"DIR": "fence", "NEW-STORE": "file:$PWD/new"}, says=("account:7",),
            after="holdfast --on file:$PWD/new run x -- true"),
    ])

SERVER_PAGE = Page(
    needs=("redis-cli", "openssl"),
    setting=program("nightly.sh", "echo working"),
    blocks=[
        Run("$ holdfastd", asides={"holdfastd": "serving"}),
        Run("$ holdfast --on holdfast://127.0.0.1 run nightly", says=("^working$",)),
        File("listen = 127.0.0.1:7420", "/etc/holdfast/holdfastd.conf", "holdfastd --check-config", says=("^listen = .*# file$",),
             before="install -d /etc/holdfast; (umask 077; openssl rand -hex 32 >/etc/holdfast/password)"),
        Excused("# (umask 077; openssl rand -hex 32 > /etc/holdfast/password.next)", ROTATION),
        Excused("# sed -i '1r /etc/holdfast/password.next' /etc/holdfast/password", ROTATION),
        Excused("# cp --preserve=mode,ownership /etc/holdfast/client-password", ROTATION),
        Excused("# sed -i 1d /etc/holdfast/password", ROTATION),
        Excused("# (umask 077; openssl rand -hex 32 > /etc/holdfast/secret.next)", ROTATION),
        Excused("# sed -i '1r /etc/holdfast/secret.next' /etc/holdfast/secret", ROTATION),
        Excused("# sed -i '1{h;d};2G' /etc/holdfast/secret", ROTATION),
        Excused("# sed -i 2d /etc/holdfast/secret", ROTATION),
    ])

PAGES = {
    "README.md": README,
    "docs/admin.md": Page(needs=("curl", "src/admin/holdfast-http.so"), blocks=[
        File("admin = 127.0.0.1", "admin.conf", "holdfastd --config admin.conf --check-config", "run", says=("^admin = 127.0.0.1:7480  # file$",)),
        Run("$ holdfastd --admin", asides={"holdfastd --admin": "serving"}),
        File("user = prometheus", "users", """
password=$(openssl passwd -6 'only for this')
sed -i "s|^password = .*|password = $password|" users
chmod 600 users
holdfastd --users-file users --check-config""", "run"),
    ]),
    "docs/architecture.md": ARCHITECTURE,
    "docs/consensus.md": Page([Excused("src/node      the shell", DRAWING)]),
    # As it stands there it takes 12 s.
    "docs/benchmarks.md": Page(needs=("redis-server",), setting=REDIS + SERVER, blocks=[
        Run("holdfast bench", stands_for={"holdfast bench": "holdfast bench --seconds 0.05 --rounds 1"},
            says=("^spread +8 ", "^hot +8 ", "^mix +8", '"work":"hot","clients":64,')),
        Excused("make bench-peers ", ELSEWHERE),
        Run("holdfast bench --on holdfast://127.0.0.1", stands_for={"holdfast bench": "holdfast bench --seconds 0.05 --rounds 1"},
            says=("^mix +64 .* redis://127.0.0.1", "^bench.html$"), after="ls bench.html"),
    ]),
    "docs/capacity.md": Page([]),
    "docs/cluster.md": Page(cluster_page.BLOCKS, machines=cluster_page.MACHINES, needs=("make", "openssl")),
    "docs/compare.md": COMPARE,
    "docs/etcd-store.md": Page(needs=("etcd", "etcdctl", "src/engines/holdfast-etcd.so"), setting="export ETCD_UNSUPPORTED_ARCH=arm64", blocks=[
        Run("$ etcd --data-dir /tmp/etcd-to-try", asides={"etcd": "ready to serve client requests"},
            after="until etcdctl endpoint health >/dev/null 2>&1; do sleep 0.05; done"),
        Run("$ holdfast --on etcd://127.0.0.1 run nightly"),
        Excused("etcd://[USER", SYNTAX),
        Excused("holder      ", DRAWING),
        Run("etcdctl lock holdfast/nightly", says=("^theirs$", "^ours$")),
    ]),
    "docs/fencing.md": FENCING,
    "docs/file-store.md": Page([
        File("DIR/holdfast-state", "layout", "cut -d ' ' -f 1 layout | xargs ls -d",
             stands_for={"DIR": "store", "NAME": "nightly", "KEY": "pay"},
             before="export HOLDFAST_URL=file:$PWD/store; holdfast run nightly -- true; holdfast once pay -- true"),
        Excused("waiter      ", DRAWING),
        Run("mkdir -m 2770 /srv/locks", after="""
setpriv --reuid 4001 --regid 4001 --groups staff holdfast --on 'file:/srv/locks?allow=writable' run nightly -- echo as a user
ls -ld /srv/locks/holdfast-state""", says=("^as a user$", "^-rw-rw---- .* staff ")),
    ]),
    "docs/holdfast-store.md": Page([Excused("holdfast://[USER", SYNTAX), Excused("client      ", DRAWING)]),
    "docs/postgres-store.md": Page(needs=("psql", "src/engines/holdfast-postgres.so"), setting=POSTGRES + SHOP, blocks=[
        # The machine's only user is root.
        Run("$ PATH=$PATH:$(ls -d /usr/lib/postgresql", before='initdb() { as_postgres "$programs/initdb" "$@"; }; pg_ctl() { as_postgres "$programs/pg_ctl" "$@"; }'),
        Excused("postgres://[USER", SYNTAX),
        Run("holdfast guard sql --dialect postgres --locks", says=("^under the lock$",)),
        File("GRANT SELECT", "grants.sql", """
psql -q -v ON_ERROR_STOP=1 shop -c 'CREATE ROLE app LOGIN' -f grants.sql
export HOLDFAST_URL=postgres://app@/shop
holdfast run nightly -- true
holdfast run --shared nightly -- true
holdfast once pay -- echo paid
holdfast floor 1
holdfast ls
unset HOLDFAST_URL
""", "run", says=("^paid$",)),
        Excused("holder A  ", DRAWING),
        Excused("postgres://app@pooler", SYNTAX),  # tests/system/postgres/test_postgres_load.py does it
        Run("holdfast guard sql --dialect postgres | psql", says=("^UPDATE 1$", "^t$"), after="psql -qAt shop -c 'SELECT settled FROM batches'"),
    ]),
    "docs/protocol.md": Page([Run("$ redis-cli -p 7420 ACQUIRE")], setting=SERVER, needs=("redis-cli",)),
    "docs/redis-store.md": Page(needs=("redis-server",), setting=REDIS, blocks=[
        Excused("redis://[USER", SYNTAX),
        Excused("holder     ", DRAWING),
        Run("$ redis-cli SET lock:report"),
        Excused("1. vote  ", DRAWING),
    ]),
    "docs/install.md": Page([
        Excused("$ make deb", PACKAGES),
        Excused("# apt install", PACKAGES),
        Excused("$ make static", PACKAGES),
        Excused("$ kubectl apply", TOOL),
        Excused("$ tools/setup build", ELSEWHERE),
    ]),
    "docs/safety.md": Page([]),
    "docs/server.md": SERVER_PAGE,
    "docs/stores.md": Page(stores_page.BLOCKS, setting=stores_page.SETTING, needs=stores_page.NEEDS),
    "docs/systemd.md": Page(systemd_page.BLOCKS, systemd_page.setting, systemd_page.MACHINES, ("openssl",), booted=True),
    "docs/testing.md": Page([]),
    "docs/zookeeper-store.md": Page(needs=("java", "src/engines/holdfast-zookeeper.so"), blocks=[
        Run("$ mkdir /tmp/zookeeper-to-try", asides={"java": ""},
            after="until holdfast --on zookeeper://127.0.0.1/locks ls >/dev/null 2>&1; do sleep 0.05; done"),
        Run("$ holdfast --on zookeeper://127.0.0.1/locks run nightly"),
        Excused("zookeeper://[USER", SYNTAX),
        Excused("holder       create", DRAWING),
    ]),
    "docs/tls.md": Page(needs=("openssl", "redis-cli", "src/net/holdfast-tls.so"), blocks=[
        Run("# mkdir -p /etc/holdfast"),
        File("listen = tls:127.0.0.1:7421", "/etc/holdfast/holdfastd.conf", "holdfastd --check-config", says=("^tls-cert = .*# file$",)),
        Run("# holdfastd", asides={"holdfastd": "serving"}),
        File("user = nightly", "/etc/holdfast/users", "holdfastd --users-file /etc/holdfast/users --check-config",
             says=("^users-file = .*# flag$",)),
        File("peer-tls = yes", "/etc/holdfast/holdfastd.conf",
             "cd /etc/holdfast && cp server.pem node.pem && cp -p server.key node.key && cp ca.pem nodes-ca.pem && "
             "holdfastd --cluster 1=127.0.0.1:7431 --check-config", says=("^peer-tls = yes .*# file$",)),
    ]),
    "docs/users.md": Page(setting=users_page.SETTING, blocks=users_page.BLOCKS),
    "docs/upgrades.md": Page([
        Excused("# systemctl restart", SYSTEMD),
    ]),
}
