set -u
echo before
echo $not_set_anywhere
echo after
