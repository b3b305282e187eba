package peer

import (
	"os"
	"time"

	"cellserver/internal/transcript"
)

// Pause is the environment variable with the time that players of transcripts wait before each call, such as 2s. `make
// test-slowly` sets it. A transcript that a real clock plays must not depend on how soon a call follows another.
const Pause = "CELLSERVER_TEST_PAUSE"

// Slowly returns the stage, with the pauses that the environment asks for.
func Slowly(s transcript.Stage) transcript.Stage {
	by, err := time.ParseDuration(os.Getenv(Pause))
	if err != nil {
		return s
	}
	return transcript.Spaced(s, func() time.Duration { return by })
}
