#!/bin/sh
# run_seeds.sh HOLDFAST_SIM SEEDS_FILE: seeds 1 on are right, and give the same traces again; so are the kept ones; and those that are kept
# with a switch find the known fault that it puts back.
set -u
sim=$1
kept=$2
failed=0

"$sim" --seed 1 --seeds 800 --jobs 2 || failed=1
"$sim" --seed 801 --seeds 100 --jobs 2 --again || failed=1

# Lines like: | 44 | lone-old-term | 12 | what it shows |
while IFS='|' read -r _ seed switch _; do
    seed=$(echo "$seed" | tr -d ' ')
    switch=$(echo "$switch" | tr -d ' ')
    case $seed in '' | *[!0-9]*) continue ;; esac
    "$sim" --seed "$seed" >/dev/null || {
        echo "seed $seed is wrong"
        failed=1
    }
    [ "$switch" = - ] && continue
    if "$sim" --seed "$seed" --switch "$switch" >/dev/null; then
        echo "seed $seed does not find $switch"
        failed=1
    fi
done <"$kept"

exit $failed
