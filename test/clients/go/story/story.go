// Package story is what the Go programs share: how a story is told to test/clients/run.sh.
package story

import (
	"bufio"
	"fmt"
	"os"
	"reflect"
	"runtime/debug"
	"time"
)

// Client says which client is to tell its story, and its version as it is built in.
func Client(name, module string) {
	build, _ := debug.ReadBuildInfo()
	for _, dep := range build.Deps {
		if dep.Path == module {
			fmt.Println("client", name, dep.Version[1:])
		}
	}
}

// Ok says that a feature works.
func Ok(feature string) { fmt.Println("ok", feature) }

// Equal ends the program if got is something else.
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

// Restart has the server restarted, and calls until a call succeeds: "after an error" if it was not
// the first.
func Restart(call func() error) {
	fmt.Println("restart")
	Must(bufio.NewReader(os.Stdin).ReadString('\n'))
	failed := 0
	for ; call() != nil; failed++ {
		if failed > 100 {
			panic("it does not connect again")
		}
		<-time.After(50 * time.Millisecond)
	}
	if failed > 0 {
		Ok("restart after an error")
	} else {
		Ok("restart")
	}
}
