# A module with a package, a test and goroutines.
export GOCACHE=$PWD/.cache GOPROXY=off GOFLAGS=-mod=mod GOTOOLCHAIN=local
mkdir parts
printf 'module example.org/app\n\ngo 1.19\n' > go.mod
printf 'package parts\n\nfunc Square(n int) int { return n * n }\n' > parts/parts.go
cat > parts/parts_test.go <<'END'
package parts

import "testing"

func TestSquare(t *testing.T) {
	if Square(3) != 9 {
		t.Fatal("wrong")
	}
}
END
cat > main.go <<'END'
package main

import (
	"fmt"
	"sync"

	"example.org/app/parts"
)

func main() {
	var wait sync.WaitGroup
	sums := make(chan int, 100)
	for n := 0; n < 100; n++ {
		wait.Add(1)
		go func(n int) { defer wait.Done(); sums <- parts.Square(n) }(n)
	}
	wait.Wait()
	close(sums)
	total := 0
	for sum := range sums {
		total += sum
	}
	fmt.Println("squares", total)
}
END
go build -o app .
./app
go vet ./...
go test ./parts | cut -f 1,2
