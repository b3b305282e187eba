//go:build !unix

package persist

import (
	"errors"
	"os"
)

const openFlags = 0

func tryLock(*os.File, bool) error { return errors.New("folders cannot be locked on this system") }

func isReadOnly(error) bool { return false }

func isLink(error) bool { return false }
