# A database in a file, with a write-ahead log, used by two processes at a time.
sqlite3 data.db 'pragma journal_mode = wal; create table t (n integer primary key, text);'
for i in 1 2; do
  sqlite3 -cmd '.timeout 20000' data.db "with recursive c(x) as (select 1 union all select x + 1 from c where x < 2000)
    insert into t (text) select 'from $i: ' || x from c;" &
done
wait
sqlite3 data.db "select count(*), sum(n) from t; select json_group_array(n) from (select n from t limit 3); pragma integrity_check;"
