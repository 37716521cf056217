# bash completion for holdfast                                       -*- shell-script -*-
# Names come from the store itself (`holdfast ls --all --json`), quickly or not at all.

_holdfast_names()
{
    local -a on=()
    local i
    for ((i = 1; i < COMP_CWORD; i++)); do
        [[ ${COMP_WORDS[i]} == --on ]] && on=(--on "${COMP_WORDS[i + 1]}")
    done
    timeout 1 holdfast "${on[@]}" ls --all 2>/dev/null | awk 'NR > 1 && $1 !~ /\\x/ { print $1 }' | sort -u
}

_holdfast()
{
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local commands="run lock renew unlock elect leader check ls show watch top bench progress break floor stores cluster guard once user help"
    local command= name_at=0 i options
    COMPREPLY=()

    for ((i = 1; i < COMP_CWORD; i++)); do
        case ${COMP_WORDS[i]} in
        --on | -w | --wait | -E | --conflict-exit-code | --ttl | --permits | --owner | --delay | --need | \
            --grace | --max-hold | --progress | --warn-after | --interval | -i | --sort | --rows | --work | --clients | --seconds | --rounds | --names | --hold | --threads | --report | --hold-at-least | --on-lost | --lease | --token | --keep | --if-died | \
            --dialect | --table | --key-column | --column | --mode | --schema | --sqlite-version | --eval | --wrap | --mark | \
            --fence | --allow | --to | --why | --file | --connections | --password-file) ((i++)) ;;
        -c | --command) [[ -n $command ]] && ((i++)) ;;
        --) [[ -n $command && $name_at -gt 0 ]] && break ;;
        -*) ;;
        *)
            if [[ -z $command ]]; then
                command=${COMP_WORDS[i]}
            elif [[ $name_at -eq 0 ]]; then
                name_at=$i
            else
                break
            fi
            ;;
        esac
    done

    # After NAME, the command that runs under the lock is completed as itself.
    if [[ ($command == run || $command == elect || $command == once) && $name_at -gt 0 && $i -lt $COMP_CWORD ]]; then
        if declare -F _command_offset >/dev/null; then
            [[ ${COMP_WORDS[i]} == -- ]] && ((i++))
            _command_offset "$i"
        else
            COMPREPLY=($(compgen -c -f -- "$cur"))
        fi
        return
    fi

    case $prev in
    --on)
        compopt -o nospace 2>/dev/null
        COMPREPLY=($(compgen -W "file: holdfast:// holdfast+unix: redis:// rediss:// redis+unix: redlock:// etcd:// etcds:// postgres:// zookeeper:// ${HOLDFAST_URL-}" \
            -- "$cur"))
        return ;;
    --dialect) COMPREPLY=($(compgen -W "postgres sqlite" -- "$cur")); return ;;
    --mode) COMPREPLY=($(compgen -W "not-older newer" -- "$cur")); return ;;
    --eval) COMPREPLY=($(compgen -W "enter set del hset reset wrap" -- "$cur")); return ;;
    --allow)
        [[ $command == user ]] && return # rights, which nobody can guess
        COMPREPLY=($(compgen -W "tmpfs network writable" -- "$cur")); return ;;
    --file | --password-file | --report) COMPREPLY=($(compgen -f -- "$cur")); return ;;
    --fence) COMPREPLY=($(compgen -d -- "$cur")); return ;;
    --on-lost) COMPREPLY=($(compgen -W "term kill ignore" -- "$cur")); return ;;
    --if-died) COMPREPLY=($(compgen -W "rerun fail" -- "$cur")); return ;;
    --need) COMPREPLY=($(compgen -W "strict best-effort" -- "$cur")); return ;;
    --work) COMPREPLY=($(compgen -W "spread hot mix" -- "$cur")); return ;;
    --sort) COMPREPLY=($(compgen -W "longest hottest name" -- "$cur")); return ;;
    --wait | -w | --ttl | --grace | --max-hold | --progress | --warn-after | --interval | -i | --hold-at-least | --hold | --seconds | --delay | --keep)
        COMPREPLY=($(compgen -W "500ms 5s 30s 1m 10m 1h" -- "$cur")); return ;;
    esac

    if [[ -z $command ]]; then
        COMPREPLY=($(compgen -W "$commands --on --json --help --version" -- "$cur"))
        return
    fi
    local taking="--ttl --delay --owner --need --verbose --quiet"
    local waiting="--no-wait --wait --shared --exclusive --permits --conflict-exit-code"
    local running="--command --max-hold --grace --on-lost --close --progress --warn-after"
    case $command in
    run) options="$waiting $taking $running --hold-at-least" ;;
    elect) options="$taking $running" ;;
    once) options="--keep --if-died --only-success --no-wait --wait --conflict-exit-code --ttl --owner --need --command \
        --on-lost --grace --close --progress --warn-after --verbose --quiet --show --json" ;;
    guard)
        case ${COMP_WORDS[name_at]} in
        sql) options="--dialect --table --key-column --column --require --mode --undo --schema --locks --setting --add-column \
            --sqlite-version" ;;
        redis) options="--eval --wrap --mark" ;;
        marks) options="--fence --allow --json" ;;
        reset) options="--fence --to --why --allow --json" ;;
        *) options= ;;
        esac ;;
    lock) options="$waiting $taking --json" ;;
    renew) options="--lease --token --ttl --json" ;;
    unlock) options="--lease --token --json" ;;
    leader) options="--follow --json" ;;
    ls) options="--all --longest --quiet --json" ;;
    top) options="--interval --sort --once --rows --quiet --json" ;;
    bench) options="--work --clients --seconds --rounds --names --hold --threads --blocking --report --quiet --json" ;;
    progress) options="--quiet" ;;
    break) options="--now --grace --quiet --json" ;;
    check | show | watch | floor | stores) options="--json" ;;
    cluster) options="--wait --no-wait --health --json" ;;
    user) options="--file --allow --connections --leases --holds --places --password-file --generate --keep-old --drop-old --json" ;;
    help) COMPREPLY=($(compgen -W "$commands" -- "$cur")); return ;;
    *) return ;;
    esac
    if [[ $cur == -* ]]; then
        COMPREPLY=($(compgen -W "$options --on --help" -- "$cur"))
    elif [[ $command == run || $command == elect || $command == once ]] && [[ $name_at -gt 0 ]]; then
        COMPREPLY=($(compgen -c -f -- "$cur"))
    elif [[ $command == cluster ]]; then
        if [[ $name_at -eq 0 ]]; then
            COMPREPLY=($(compgen -W "status init add remove transfer backup" -- "$cur"))
        elif [[ ${COMP_WORDS[name_at]} == backup ]]; then
            COMPREPLY=($(compgen -f -- "$cur"))
        fi
    elif [[ $command == user ]]; then
        [[ $name_at -eq 0 ]] && COMPREPLY=($(compgen -W "add password allow deny remove list check" -- "$cur"))
    elif [[ $command == guard ]]; then
        [[ $name_at -eq 0 ]] && COMPREPLY=($(compgen -W "sql redis marks reset" -- "$cur"))
    elif [[ $command != once && $command != floor && $command != stores && $command != progress && $command != bench && $name_at -eq 0 ]]; then
        COMPREPLY=($(compgen -W "$(_holdfast_names)" -- "$cur"))
    fi
}

complete -F _holdfast holdfast
