echo one
# differs: stderr: the lines of a session are counted on
if then
