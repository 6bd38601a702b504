-- glovebox run examples/hello.sql
create table greeting (who text);
insert into greeting values ('world');
select 'hello, ' || who || '! I am sqlite ' || sqlite_version() from greeting;
