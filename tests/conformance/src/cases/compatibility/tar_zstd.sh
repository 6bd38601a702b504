# Archives: many files, links, modes and times, through tar and zstd.
mkdir -p tree/sub
for n in $(seq 300); do echo "line $n" > tree/sub/file$n; done
ln -s sub/file1 tree/link && ln tree/sub/file2 tree/hard && chmod 751 tree/sub/file3
head -c 3000000 /dev/zero > tree/zeros
find tree -exec touch -h -d '2026-01-01 00:00:00 UTC' {} +
tar --sort=name --owner=0 --group=0 --numeric-owner -c tree | zstd -q -T2 -19 -o tree.tar.zst
mkdir out && tar --zstd -xpf tree.tar.zst -C out
diff -r tree out/tree && stat -c '%a %h %Y' out/tree/sub/file3 out/tree/hard
zstd -qdc tree.tar.zst | sha256sum
gzip -c tree/zeros | wc -c && xz -c tree/zeros | wc -c
