//go:build !unix

package persist

import (
	"errors"
	"os"
)

const safely = 0

func tryLock(*os.File) error { return errors.New("folders cannot be locked on this system") }
