// glovebox run examples/hello.kts Ada
println("hello, ${args.firstOrNull() ?: "world"}! I am in ${System.getProperty("user.dir")}")
