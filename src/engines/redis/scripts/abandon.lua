-- ARGV: lease, place ('': none), remember (ms for which a late acquisition by this lease is refused;
-- 0: none can come). Afterwards the lease holds nothing and never will. Gives up before it remembers:
-- when memory is short, Redis allows what comes after a first write.
if ARGV[2] ~= '' then
    leave_queue(ARGV[2])
    if call('GET', turn) == ARGV[2] then call('DEL', turn) end
end
if let_go(ARGV[1], '') == 0 then
    if mark and select(2, mark_of()) == ARGV[1] then call('DEL', mark) end -- it never ran
    wake()
end
if tonumber(ARGV[3]) > 0 then call('SET', ended, '1', 'PX', ARGV[3]) end
return 1
