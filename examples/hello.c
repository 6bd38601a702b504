/* glovebox run examples/hello.c Ada */
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    char here[4096];
    printf("hello, %s! I am uid %d in %s\n", argc > 1 ? argv[1] : "world", getuid(), getcwd(here, sizeof here));
}
