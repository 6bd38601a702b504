<?php // glovebox run examples/hello.php Ada
$who = $argv[1] ?? "world";
echo "hello, $who! I am in ", getcwd(), "\n";
