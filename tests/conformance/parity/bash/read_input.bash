read -r line; echo "$? <$line>"
cat | wc -c
