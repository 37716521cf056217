"""docs/users.md: its commands, in their order, with a server that reads what they write."""
from kinds import File, Run

# What is asked for at a terminal, which the machine has not, is made; and systemd is a server of ours.
SETTING = """
install -d /var/log/holdfastd
holdfast() { if [ "$1 $2 $3" = "user add ann" ]; then command holdfast "$@" --generate; else command holdfast "$@"; fi; }
systemctl() { kill -HUP $server; }
"""
SERVED = """
echo 'the password of ci' >password
holdfast user password ci --password-file password
HOLDFASTD_ALLOW=tmpfs holdfastd --data /srv/holdfastd 2>log &
server=$!
until grep -q serving log; do sleep 0.01; done
"""
READ = "until grep -q 'the users file was read again' log; do sleep 0.01; done; :>log"

BLOCKS = [
    Run("# mkdir -p /etc/holdfast", says=("^[a-z2-9]{26}$", "^ci +1 +no limit +acquire look: build/", "^ann ")),
    File("users-file = /etc", "/etc/holdfast/holdfastd.conf", "holdfastd --check-config", says=("^users-file = .*# file$",)),
    Run("$ HOLDFAST_PASSWORD=...", before=SERVED, stands_for={"...": "'the password of ci'", "-- make": "-- echo made"}, says=("^made$",)),
    File("user = ci", "example", "chmod 0600 example; holdfast user check example", says=("well-formed: 2 users",)),
    Run("# holdfast user password ci --keep-old", says=("^[a-z2-9]{26}$",),
        after=READ + "; HOLDFAST_PASSWORD='the password of ci' holdfast --on holdfast://ci@127.0.0.1 run build/x -- echo the old one is valid"),
    Run("# holdfast user password ci --drop-old", says=("has only the newest password left",), after=READ),
]
