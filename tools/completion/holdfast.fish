# fish completion for holdfast

set -l commands run lock renew unlock elect leader check ls show watch break floor stores cluster guard once help

function __holdfast_names
    timeout 1 holdfast ls --all 2>/dev/null | awk 'NR > 1 && $1 !~ /\\\\x/ { print $1 }' | sort -u
end

complete -c holdfast -f
complete -c holdfast -l on -x -d 'The store to use'
complete -c holdfast -l help -d 'Print help'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -l version -d 'Print the version'
complete -c holdfast -n "not __fish_seen_subcommand_from run elect" -l json -d 'Print JSON, one object per line'

complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a run -d 'Run a command under a lock'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a lock -d 'Take a lock, for scripts'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a renew -d 'Renew a lock taken with lock'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a unlock -d 'Give up a lock taken with lock'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a elect -d 'Run a command while leader'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a leader -d 'Print who leads'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a check -d 'Ask whether a token is alive'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a ls -d 'List who holds what'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a show -d 'Show holders and waiters'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a watch -d 'Follow changes of holder'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a break -d 'End all holds of a name'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a floor -d 'Make later tokens greater'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a stores -d 'List stores and what they promise'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a cluster -d 'Show and change the nodes of a cluster'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a guard -d 'Make a resource refuse a stale holder'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a once -d 'Run a command once, and replay'
complete -c holdfast -n "not __fish_seen_subcommand_from $commands" -a help -d 'Help on a command'

complete -c holdfast -n "__fish_seen_subcommand_from run elect lock renew unlock leader check show watch break" -a '(__holdfast_names)'
complete -c holdfast -n "__fish_seen_subcommand_from run elect once" -a '(__fish_complete_subcommand)'
complete -c holdfast -n "__fish_seen_subcommand_from help" -a "$commands"

complete -c holdfast -n "__fish_seen_subcommand_from run lock once" -s n -l no-wait -d 'Do not wait'
complete -c holdfast -n "__fish_seen_subcommand_from run lock once" -s w -l wait -x -d 'Wait at most so long'
complete -c holdfast -n "__fish_seen_subcommand_from run lock" -s s -l shared -d 'A shared lock'
complete -c holdfast -n "__fish_seen_subcommand_from run lock" -s x -l exclusive -d 'An exclusive lock'
complete -c holdfast -n "__fish_seen_subcommand_from run lock" -l permits -x -d 'One of N permits'
complete -c holdfast -n "__fish_seen_subcommand_from run lock once" -s E -l conflict-exit-code -x -d 'Exit status when not acquired'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock renew once" -l ttl -x -d 'The lease'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock" -l delay -x -d 'Keep the name back after an expiry'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock once" -l owner -x -d 'What to show others'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock once" -l need -x -a strict -d 'Refuse a weaker store'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock once" -s v -l verbose -d 'Say what happens'
complete -c holdfast -n "__fish_seen_subcommand_from run elect lock once" -s q -l quiet -d 'Do not say who holds it'
complete -c holdfast -n "__fish_seen_subcommand_from run elect once" -s c -l command -x -d 'Run text with the shell'
complete -c holdfast -n "__fish_seen_subcommand_from run elect" -l max-hold -x -d 'Let go after so long'
complete -c holdfast -n "__fish_seen_subcommand_from run elect once break" -l grace -x -d 'How long to wait'
complete -c holdfast -n "__fish_seen_subcommand_from run elect once" -l on-lost -x -a 'term kill ignore' -d 'The job when the lock is lost'
complete -c holdfast -n "__fish_seen_subcommand_from run elect once" -s o -l close -d 'Do not let descendants keep the lock'
complete -c holdfast -n "__fish_seen_subcommand_from run" -l hold-at-least -x -d 'Keep the lock so long'
complete -c holdfast -n "__fish_seen_subcommand_from renew unlock" -l lease -x -d 'The lease'
complete -c holdfast -n "__fish_seen_subcommand_from renew unlock" -l token -x -d 'The token'
complete -c holdfast -n "__fish_seen_subcommand_from leader" -s f -l follow -d 'Go on'
complete -c holdfast -n "__fish_seen_subcommand_from cluster" -a 'status init add remove transfer'
complete -c holdfast -n "__fish_seen_subcommand_from cluster" -s w -l wait -x -d 'Wait at most so long'
complete -c holdfast -n "__fish_seen_subcommand_from cluster" -s n -l no-wait -d 'Do not wait until it votes'
complete -c holdfast -n "__fish_seen_subcommand_from ls" -s a -l all -d 'Also names that nobody holds'
complete -c holdfast -n "__fish_seen_subcommand_from break" -l now -d 'Do not wait'
complete -c holdfast -n "__fish_seen_subcommand_from once" -l keep -x -d 'How long the result is kept'
complete -c holdfast -n "__fish_seen_subcommand_from once" -l if-died -x -a 'rerun fail' -d 'When whoever ran it died'
complete -c holdfast -n "__fish_seen_subcommand_from once" -l only-success -d 'Keep nothing of a run that fails'
complete -c holdfast -n "__fish_seen_subcommand_from once" -l show -d 'Say what is known of the key'
complete -c holdfast -n "__fish_seen_subcommand_from guard" -a 'sql redis marks reset'
