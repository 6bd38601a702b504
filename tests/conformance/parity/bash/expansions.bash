p=/usr/local/lib.tar.gz
echo ${p##*/} ${p%%.*} ${p/local/LOCAL} ${p:1:3} ${#p} ${none:-default} ${p^^}
echo {a,b}{1..3} ~root "$(echo sub)" `echo tick`
