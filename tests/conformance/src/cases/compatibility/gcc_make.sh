# A library, a program and a test by gcc and make, several jobs at a time.
mkdir src
for n in 1 2 3 4 5 6 7 8; do printf 'int part%s(void) { return %s; }\n' $n $n > src/part$n.c; done
cat > src/main.c <<'END'
#include <math.h>
#include <pthread.h>
#include <stdio.h>
int part1(void), part8(void);
static void *work(void *n) { *(double *)n = sqrt(*(double *)n); return 0; }
int main(void) {
    double n = 144; pthread_t thread;
    pthread_create(&thread, 0, work, &n); pthread_join(thread, 0);
    printf("%d %d %.0f\n", part1(), part8(), n);
}
END
cat > Makefile <<'END'
parts := $(patsubst src/%.c,%.o,$(wildcard src/part*.c))
app: src/main.c libparts.a ; gcc -O2 -o $@ $< -L. -lparts -lm -pthread
libparts.a: $(parts) ; ar rcs $@ $^
%.o: src/%.c ; gcc -O2 -c -o $@ $<
test: app ; ./app
END
make -s -j4 test
make -s -q app && echo up to date
