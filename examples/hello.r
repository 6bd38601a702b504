# glovebox run examples/hello.r Ada
who <- c(commandArgs(trailingOnly = TRUE), "world")[1]
cat(sprintf("hello, %s! I am in %s\n", who, getwd()))
