"""docs/stores.md: what is printed when a Redis is not what it should be, made to happen."""
from kinds import DRAWING, Excused, File, Run, Shown
from servers import REDIS

# A and its job are stopped past the TTL, a smaller one than the page's, and the job wakes first.
STOPPED = """
export HOLDFAST_URL=redis://127.0.0.1
holdfast run --ttl 1s ledger -- sh -c 'echo "A: token $HOLDFAST_TOKEN"; echo $$ >job.new; mv job.new job
    until [ -e woken ]; do sleep 0.01; done; examples/guard.sh book "$HOLDFAST_TOKEN" A; exec sleep 60' >>said 2>&1 &
a=$!
until [ -e job ]; do sleep 0.01; done
kill -STOP $a $(cat job)
holdfast run --ttl 1s ledger -- sh -c 'echo "B: token $HOLDFAST_TOKEN"; examples/guard.sh book "$HOLDFAST_TOKEN" B' >>said 2>/dev/null
touch woken
kill -CONT $(cat job)
until grep -q refused said; do sleep 0.01; done
kill -CONT $a
wait $a || echo "status $?"
cat said
"""

# libc.so.6 before jemalloc, whose malloc asks for the time, for which libfaketime calls malloc.
CLOCK_BACK = r"""
token() { holdfast --on redis://127.0.0.1 run nightly -- sh -c 'echo "token $HOLDFAST_TOKEN          '"$1"'"'; }
echo +0 >/srv/clock
(export LD_PRELOAD="$(ls /usr/lib/*/faketime/libfaketime.so.1) libc.so.6" FAKETIME_TIMESTAMP_FILE=/srv/clock FAKETIME_NO_CACHE=1 \
    DONT_FAKE_MONOTONIC=1 FAKETIME_DONT_FAKE_MONOTONIC=1; redis_with)
token before >tokens
echo -10d >/srv/clock
token 'clock 10 days back: the counter goes on' >>tokens
redis-cli FLUSHALL
token 'and FLUSHALL: smaller' >>tokens
cat tokens
awk '{ t[NR] = $2 } END { if (t[2] > t[1] && t[3] < t[1]) print "greater, then smaller" }' tokens
redis_with
"""

# The warning names the first that is young, so the two others are older than the TTL. If this machine is slow, once more.
YOUNG = """
until redis-cli -p 6381 INFO server | grep -q 'uptime_in_seconds:[2-9]'; do sleep 0.01; done
until redis_with
    holdfast --on redlock://127.0.0.1:6379,127.0.0.1:6380,127.0.0.1:6381 run --ttl 2s nightly -- true 2>&1 | tee warning | grep -q 6379
do
    :
done
cat warning
"""

EVERY_COMMAND = r"""
redis_with
tr -s '\n ' ' ' <acl | redis-cli
export HOLDFAST_URL=redis://locks:a-password@127.0.0.1
holdfast run nightly -- true
holdfast run --shared nightly -- true
holdfast run --permits 2 fetch -- true
holdfast elect boss -- true
holdfast once pay -- echo paid
holdfast lock --ttl 1m stays
holdfast show stays
holdfast ls
holdfast floor 1
holdfast run --ttl 3s nightly -- sleep 60 &
until holdfast show nightly | grep -q held; do sleep 0.01; done
holdfast break nightly
wait
redis-cli ACL LOG
"""

NEEDS = ("redis-server", "faketime")
SETTING = REDIS + "for port in 6380 6381; do redis-server --port $port --save '' --daemonize yes >/dev/null; done"
BLOCKS = [
    Run("$ holdfast --on redis://127.0.0.1 run --need strict", ends=(78,)),
    Excused("max(last token + 1", DRAWING),
    Shown("token 1794720595875838", CLOCK_BACK, says=("^greater, then smaller$",)),
    Excused("time    0 s ", DRAWING),
    Shown("A: token 1794721020655323", STOPPED, says=("^status 76$",)),
    *[Excused("time    ", DRAWING) for _ in ("a partition", "a failover", "a clock", "lost data", "a pause")],
    *[Excused("node    ", DRAWING) for _ in ("clocks, all votes", "clocks, four votes", "an empty restart")],
    Shown("holdfast: 127.0.0.1:6379 was started", YOUNG),
    Shown("holdfast: 127.0.0.1:6379: maxmemory-policy", "redis_with --maxmemory-policy allkeys-lru; holdfast run nightly -- true"),
    Shown("holdfast: 127.0.0.1:6379 is part of a Redis Cluster", "redis_with --cluster-enabled yes; holdfast run nightly -- true || true"),
    File("ACL SETUSER locks", "acl", EVERY_COMMAND, "run", stands_for={"PASSWORD": "a-password", "PREFIX": "holdfast:"},
         says=("^OK$", "^paid$", "^stays: held", "broke 1 hold", r"^\(empty array\)$")),
    Excused("holder A     ", DRAWING),
    *[Excused("time    ", DRAWING) for _ in ("a pause on PostgreSQL", "an asynchronous standby", "a synchronous one")],
]
