package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// The fields of a request.
const (
	IDField        = "Cellserver-Event-Id"
	TimeField      = "Cellserver-Timestamp" // Unix seconds
	SignatureField = "Cellserver-Signature" // v1= and Sign in hexadecimal digits
)

// Sign returns the HMAC-SHA256 of a timestamp, a dot, and a body. The timestamp is the field of the request.
func Sign(secret []byte, timestamp string, body []byte) string {
	mac := hmac.New(sha256.New, secret)
	_, _ = mac.Write([]byte(timestamp + ".")) // it never fails
	_, _ = mac.Write(body)
	return hex.EncodeToString(mac.Sum(nil))
}

// newClient returns a client that follows no redirects: a signed report goes nowhere else.
func newClient(timeout time.Duration) http.Client {
	return http.Client{
		Timeout:       timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                  http.ProxyFromEnvironment,
			DialContext:            (&net.Dialer{Timeout: timeout}).DialContext,
			TLSHandshakeTimeout:    timeout,
			MaxConnsPerHost:        workers,
			MaxIdleConnsPerHost:    workers,
			IdleConnTimeout:        time.Minute,
			MaxResponseHeaderBytes: 16 << 10,
			ForceAttemptHTTP2:      true,
		},
	}
}

// maxAnswer is how much of the body of an answer is read, so that the connection can be used again.
const maxAnswer = 4 << 10

// post posts a report once. Statuses from 200 to 299 are success. An error does not show the URL, which may have a
// secret.
func (s *Sender) post(ctx context.Context, r report) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.config.URL, bytes.NewReader(r.body))
	if err != nil {
		return errURL
	}
	timestamp := strconv.FormatInt(s.config.Unix(), 10)
	h := request.Header
	h.Set("Content-Type", "application/json")
	h.Set("User-Agent", "cellserver")
	h.Set(IDField, r.id)
	h.Set(TimeField, timestamp)
	h.Set(SignatureField, "v1="+Sign(s.config.Secret, timestamp, r.body))
	answer, err := s.client.Do(request)
	if failure := (*url.Error)(nil); errors.As(err, &failure) {
		return failure.Err
	}
	if err != nil {
		return err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, maxAnswer) // what matters is the status
	_ = answer.Body.Close()
	if answer.StatusCode < 200 || answer.StatusCode > 299 {
		return fmt.Errorf("the answer has status %d", answer.StatusCode)
	}
	return nil
}
