trap 'echo cleaned $?' EXIT
echo working
exit 3
