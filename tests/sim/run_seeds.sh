#!/bin/sh
# run_seeds.sh HOLDFAST_SIM SEEDS_FILE: seeds 1 on are right, and give the same hashes again; so are the kept ones; and those that are kept
# with a switch find the known fault that it puts back.
set -u
sim=$1
kept=$2
failed=0

hashes() {
    "$sim" --seed 1 --seeds 60 --hash --jobs "$1" | sed -n 's/^seed \([0-9]*: [0-9a-f]\{16\}\)$/\1/p' | sort -n
}

"$sim" --seed 1 --seeds 800 --jobs 2 || failed=1

once=$(hashes 1)
again=$(hashes 2)
if [ -z "$once" ] || [ "$once" != "$again" ]; then
    echo 'the same seeds do not give the same hashes'
    failed=1
fi

# Lines like: | 44 | lone-old-term | what it shows |
while IFS='|' read -r _ seed switch _; do
    seed=$(echo "$seed" | tr -d ' ')
    switch=$(echo "$switch" | tr -d ' ')
    case $seed in '' | *[!0-9]*) continue ;; esac
    if [ "$switch" = - ]; then
        "$sim" --seed "$seed" || failed=1
    elif "$sim" --seed "$seed" --switch "$switch" >/dev/null; then
        echo "seed $seed does not find $switch"
        failed=1
    fi
done <"$kept"
exit $failed
