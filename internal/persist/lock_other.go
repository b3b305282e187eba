//go:build !unix

package persist

import (
	"errors"
	"os"
)

func tryLock(*os.File) error { return errors.New("folders cannot be locked on this system") }
