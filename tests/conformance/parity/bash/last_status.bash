echo last
(exit 9)
