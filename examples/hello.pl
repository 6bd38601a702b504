# glovebox run examples/hello.pl Ada
use Cwd;
my $who = $ARGV[0] // "world";
print "hello, $who! I am uid $< in ", getcwd(), "\n";
