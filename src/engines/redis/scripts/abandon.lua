-- ARGV: lease, place ('': none), remember. Afterwards the lease holds nothing and never will.
call('SET', ended, '1', 'PX', ARGV[3])
if ARGV[2] ~= '' then
    leave_queue(ARGV[2])
    if call('GET', turn) == ARGV[2] then call('DEL', turn) end
end
if let_go(ARGV[1], '') == 0 then wake() end
return 1
