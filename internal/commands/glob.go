package commands

import "cellserver/internal/match"

// glob matches a text against a pattern, as Redis does.
func glob(pattern, text []byte, fold bool) bool { return match.Glob(pattern, text, fold) }
