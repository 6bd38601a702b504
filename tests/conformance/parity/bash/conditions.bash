[[ abc == a* && 5 -gt 3 ]] && echo yes
if [ -d / ]; then echo dir; elif false; then :; else echo no; fi
case foo in f*) echo f;; *) echo other;; esac
[[ foo123 =~ ([0-9]+) ]] && echo ${BASH_REMATCH[1]}
false || echo or
! true; echo $?
