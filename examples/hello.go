// glovebox run examples/hello.go Ada
package main

import (
	"fmt"
	"os"
)

func main() {
	who := "world"
	if len(os.Args) > 1 {
		who = os.Args[1]
	}
	here, _ := os.Getwd()
	fmt.Printf("hello, %s! I am uid %d in %s\n", who, os.Getuid(), here)
}
