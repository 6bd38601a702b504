# The side of a bash session that lies inside: what an interactive bash reads first.
#
# How it works. Bash is interactive, as only then an interrupt brings it back to its top level out of loops and functions.
# It reads its commands from descriptor 0, which is the control socket, and says on it when a run is over. While code
# runs, descriptor 0 is /dev/null: bash keeps the socket at a number that is closed in every program it starts, so no
# program can speak on it. A run is two lines of the host. The first sets what is to be run; it is run from
# PROMPT_COMMAND, where bash leaves out what it would say to somebody at a terminal ("[1] 4711", "exit"). The second says
# how it ended. An interrupt drops what is left of the first, and bash goes on at its next prompt, where PROMPT_COMMAND
# says the end with the status 130. It has to be there, as the second line may be dropped too: an interrupt between a
# fork and its wait leaves bash waiting for that program in whatever it does next, and the interrupt that ends the
# program drops that.
PS0= PS1= PS2= PROMPT_COMMAND=
set +o history +o histexpand
shopt -u expand_aliases
unset HISTFILE MAILCHECK
__glovebox_last=0 __glovebox_options= __glovebox_open=0

# Sets variables and directory, and leaves the `$?` of the run before.
__glovebox_begin() {
    __glovebox_open=1 __glovebox_status=130
    PROMPT_COMMAND='{ __glovebox_end; } 2>/dev/null'
    builtin eval "$__glovebox_before" </dev/null || __glovebox='(exit 1)'
    # As one command, an error that would end a script (a variable that is not set) ends all of it and not one line only.
    # What cannot be one is run line by line up to what is wrong in it; a function that is never called tells.
    if builtin eval "__glovebox_one() { $__glovebox"$'\n}' 2>/dev/null; then
        __glovebox="{ $__glovebox"$'\n}'
        builtin unset -f __glovebox_one
    fi
    __glovebox=$__glovebox_options$__glovebox __glovebox_options=
    builtin return "$__glovebox_last"
}

# Notes the status. The end is said by the next line, or at the prompt after it if an interrupt drops that. Tracing is off
# between runs, or it would show the lines of the host.
__glovebox_finish() {
    __glovebox_status=$?
    PS0= PS1= PS2= PROMPT_COMMAND='{ __glovebox_end; } 2>/dev/null'
    __glovebox_quiet
}
__glovebox_quiet() {
    if [[ $- == *x* ]]; then
        builtin set +x
        __glovebox_options='set -x;'
    fi
    builtin set +v
}
# Says the end of a run that is not over yet. That it was said is noted within the command that says it: an interrupt comes
# between two commands, and then the end would be said twice, or never.
__glovebox_end() {
    if [[ $__glovebox_open == 1 ]]; then
        PS0= PS1= PS2=
        __glovebox_sound
        __glovebox_quiet
        __glovebox_last=${__glovebox_status:-130}
        builtin printf 'done %d %s%.0s\n' "$__glovebox_last" "$__glovebox_token" "$((__glovebox_open = 0))" >&0
        PROMPT_COMMAND=
    fi
}
# Ends a shell that cannot say the end of a run any more, as its code has hidden what that takes, by a function or by
# `enable -n`. Nothing can be trusted then but this: to set the variable is to enter POSIX mode, where no function hides `exit`.
__glovebox_sound() {
    __glovebox_works=
    builtin eval 'builtin printf -v __glovebox_works 1'
    if [[ ! $__glovebox_works ]]; then
        POSIXLY_CORRECT=1
        exit 125
    fi
}
readonly -f __glovebox_begin __glovebox_finish __glovebox_quiet __glovebox_sound __glovebox_end

exec 2>&4 4>&-
printf 'ready\n' >&0
