/* Prints its arguments and its environment: what an image's own configuration gave to a program. */
#include <stdio.h>

extern char **environ;

int main(int argc, char **argv)
{
    for (int i = 0; i < argc; i++)
        printf("argument %s\n", argv[i]);
    for (char **entry = environ; *entry; entry++)
        printf("environment %s\n", *entry);
    return 0;
}
