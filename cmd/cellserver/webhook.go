package main

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"time"

	"cellserver/internal/commands"
	"cellserver/internal/store"
	"cellserver/internal/webhook"
)

// openWebhook starts the sender of --webhook; nil without the option. The secret is read once.
func (c *config) openWebhook(clock store.Clock, log *slog.Logger) (*webhook.Sender, error) {
	if c.webhook.URL == "" {
		return nil, nil
	}
	secret, err := firstLine("--webhook-secret-file", c.webhook.SecretFile)
	if err == nil {
		err = webhook.CheckSecret(secret)
	}
	if err != nil {
		return nil, err
	}
	return webhook.New(webhook.Config{URL: c.webhook.URL, Secret: secret, Log: log,
		Unix: func() int64 { return (clock.Now() + clock.Offset()) / int64(time.Second) }}), nil
}

// postTo returns what the commands do with a report; nil without a sender.
func postTo(s *webhook.Sender) commands.Post {
	if s == nil {
		return nil
	}
	return s.Offer
}

// webhookTime is how long a server that stops tries to post the reports that wait.
const webhookTime = 3 * time.Second

func stopWebhook(s *webhook.Sender) {
	ctx, cancel := context.WithTimeout(context.Background(), webhookTime)
	defer cancel()
	s.Stop(ctx)
}

// firstLine returns the first line of the file that an option names.
func firstLine(option, path string) ([]byte, error) {
	const longest = 64 << 10
	text, err := readBounded(path, longest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", option, err)
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) == 0 {
		return nil, fmt.Errorf("%s: the first line of %s is empty", option, path)
	}
	return line, nil
}
