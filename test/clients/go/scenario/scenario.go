// Package scenario has what the Go programs share: how they report to test/clients/run.sh.
package scenario

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"time"
)

// Client prints the name of the client, and the version that is built into the program.
func Client(name, module string) {
	build, _ := debug.ReadBuildInfo()
	for _, dep := range build.Deps {
		if dep.Path == module {
			fmt.Println("client", name, dep.Version[1:])
		}
	}
}

// Ok prints that a feature works.
func Ok(feature string) { fmt.Println("ok", feature) }

// Equal ends the program if got differs from want.
func Equal(got, want any) {
	if !reflect.DeepEqual(got, want) {
		panic(fmt.Sprintf("got %v, want %v", got, want))
	}
}

// Must ends the program on an error.
func Must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// Restart asks run.sh to restart the server, and then calls until a call succeeds. It prints "after an
// error" if that was not the first call.
func Restart(call func() error) {
	fmt.Println("restart")
	Must(bufio.NewReader(os.Stdin).ReadString('\n'))
	failed := 0
	for ; call() != nil; failed++ {
		if failed > 100 {
			panic("the client does not connect again")
		}
		<-time.After(50 * time.Millisecond)
	}
	if failed > 0 {
		Ok("restart after an error")
	} else {
		Ok("restart")
	}
}
