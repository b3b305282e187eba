package webhook

import (
	"errors"
	"net/url"

	"cellserver/internal/option"
)

// Settings are the values of the options of the webhook.
type Settings struct {
	URL        string
	SecretFile string
}

// Options describes the settings. CONFIG GET does not show the URL, because many URLs of webhooks have a secret.
func (s *Settings) Options() []*option.Option {
	return []*option.Option{
		{Name: "webhook", Group: option.Limits, Kind: option.Text(&s.URL, "URL"), Secret: true, FlagOnly: true,
			Help: "http or https URL to which a report is posted when a subject reaches a threshold of a policy with notify",
			Use:  "Set it if a program of yours is to act on reports."},
		{Name: "webhook-secret-file", Group: option.Limits, Kind: option.Text(&s.SecretFile, "path"),
			Help: "file whose first line is the secret with which reports to --webhook are signed",
			Use:  "It is needed with --webhook."},
	}
}

const (
	maxURL    = 2048
	minSecret = 16 // bytes
)

var errURL = errors.New("--webhook: it must be an http or https URL of at most 2048 bytes, without a user, a password or a fragment")

// Check refuses settings that contradict each other. It does not show the URL.
func (s *Settings) Check() error {
	if s.URL == "" {
		if s.SecretFile != "" {
			return errors.New("--webhook-secret-file has no effect without --webhook")
		}
		return nil
	}
	u, err := url.Parse(s.URL)
	switch {
	case err != nil, len(s.URL) > maxURL, u.Scheme != "http" && u.Scheme != "https", u.Host == "", u.User != nil,
		u.Fragment != "":
		return errURL
	case s.SecretFile == "":
		return errors.New("--webhook needs --webhook-secret-file")
	}
	return nil
}

// CheckSecret refuses a secret that is too short to sign with.
func CheckSecret(secret []byte) error {
	if len(secret) < minSecret {
		return errors.New("--webhook-secret-file: the first line of the file must have 16 bytes or more")
	}
	return nil
}
