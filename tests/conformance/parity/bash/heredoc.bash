name=world
cat <<END
hello $name
END
cat <<'END'
raw $name
END
cat <<-END
	tabbed
	END
tr a-z A-Z <<< here
