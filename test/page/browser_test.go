package page

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"cellserver/test/peer"
)

// browser is a headless Chromium that is controlled with its own protocol: JSON messages over two
// pipes, each message ending in a NUL.
type browser struct {
	*testing.T
	to      io.Writer
	session string // the tab

	mu       sync.Mutex
	last     int
	replies  map[int]chan answer
	problems []string // errors, violations of the page's policy, and dialogs
}

// answer is a reply of the browser, or an event.
type answer struct {
	ID     int             `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// startBrowser starts a browser with one tab. It is killed at the end of the test.
func startBrowser(t *testing.T) *browser {
	path, err := exec.LookPath("chromium")
	if err != nil {
		path, err = exec.LookPath("google-chrome")
	}
	require.NoError(t, err, "this test opens the page in Chromium: install it (on Debian, the package chromium)")
	profile, err := os.MkdirTemp("", "page")
	require.NoError(t, err)
	commands, to, err := os.Pipe()
	require.NoError(t, err)
	from, replies, err := os.Pipe()
	require.NoError(t, err)
	cmd := exec.Command(path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
		"--no-first-run", "--hide-scrollbars", "--force-color-profile=srgb", "--lang=en-US", "--remote-debugging-pipe",
		"--user-data-dir="+profile, "about:blank")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // the browser starts other processes
	cmd.ExtraFiles = []*os.File{commands, replies}
	cmd.Env = append(os.Environ(), "TZ=UTC")
	require.NoError(t, cmd.Start())
	commands.Close()
	replies.Close()
	b := &browser{T: t, to: to, replies: make(map[int]chan answer)}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		b.read(from)
	}()
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait() // it was killed
		to.Close()
		<-ended
		from.Close()
		peer.Until(t, "its processes have ended, and write no files", func() bool { return os.RemoveAll(profile) == nil })
	})
	b.openTab()
	return b
}

func (b *browser) openTab() {
	var tab struct{ TargetID, SessionID string }
	b.do(&tab, "Target.createTarget", map[string]any{"url": "about:blank"})
	b.do(&tab, "Target.attachToTarget", map[string]any{"targetId": tab.TargetID, "flatten": true})
	b.session = tab.SessionID
	for _, domain := range []string{"Page", "Runtime", "Log", "Network"} {
		b.do(nil, domain+".enable", nil)
	}
}

// read passes replies on, and keeps what the browser complains about, until the browser ends.
func (b *browser) read(from io.Reader) {
	messages := bufio.NewReader(from)
	for {
		text, err := messages.ReadBytes(0)
		if err != nil {
			break
		}
		var a answer
		_ = json.Unmarshal(text[:len(text)-1], &a)
		b.mu.Lock()
		switch a.Method {
		case "":
			b.replies[a.ID] <- a
			delete(b.replies, a.ID)
		case "Runtime.exceptionThrown", "Log.entryAdded", "Runtime.consoleAPICalled", "Page.javascriptDialogOpening":
			b.problems = append(b.problems, a.Method+string(a.Params))
		}
		b.mu.Unlock()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, reply := range b.replies {
		close(reply)
	}
}

// do calls a method of the browser.
func (b *browser) do(result any, method string, params map[string]any) {
	b.Helper()
	a, answered := b.ask(method, params, time.Minute)
	require.True(b, answered, "no answer to %s", method)
	require.Empty(b, string(a.Error), method)
	if result != nil {
		require.NoError(b, json.Unmarshal(a.Result, result))
	}
}

// ask calls a method of the browser, and returns false if there is no answer in time.
func (b *browser) ask(method string, params map[string]any, patience time.Duration) (a answer, answered bool) {
	b.Helper()
	reply := make(chan answer, 1)
	b.mu.Lock()
	b.last++
	id := b.last
	b.replies[id] = reply
	b.mu.Unlock()
	message := map[string]any{"id": id, "method": method}
	if params != nil {
		message["params"] = params
	}
	if b.session != "" {
		message["sessionId"] = b.session
	}
	text, err := json.Marshal(message)
	require.NoError(b, err)
	_, err = b.to.Write(append(text, 0))
	require.NoError(b, err)
	select {
	case a, answered = <-reply:
	case <-time.After(patience):
	}
	return a, answered
}

// eval returns the value of an expression on the page, as JSON. It waits for a promise.
func (b *browser) eval(expression string) string {
	b.Helper()
	var r struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	b.do(&r, "Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true, "awaitPromise": true})
	require.Empty(b, string(r.ExceptionDetails), expression)
	return string(r.Result.Value)
}

// get sets v to the value of an expression on the page.
func (b *browser) get(v any, expression string) {
	b.Helper()
	require.NoError(b, json.Unmarshal([]byte(b.eval(expression)), v), expression)
}

// until waits until an expression is true on the page, up to a minute. It asks again if there is no answer: a page that
// is being left may not give one.
func (b *browser) until(expression string) {
	b.Helper()
	peer.Until(b, expression, func() bool {
		a, _ := b.ask("Runtime.evaluate", map[string]any{"expression": "!!(" + expression + ")"}, 5*time.Second)
		var r struct{ Result struct{ Value bool } }
		return json.Unmarshal(a.Result, &r) == nil && r.Result.Value
	})
}

// open opens an address, and waits until the page is loaded.
func (b *browser) open(url string) {
	b.Helper()
	b.do(nil, "Page.navigate", map[string]any{"url": url})
	b.until(`document.readyState === "complete"`)
}

// press presses a key and releases it.
func (b *browser) press(key string, code int, text string) {
	for _, kind := range []string{"keyDown", "keyUp"} {
		params := map[string]any{"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code}
		if text != "" && kind == "keyDown" {
			params["text"] = text
		}
		b.do(nil, "Input.dispatchKeyEvent", params)
	}
}

// size sets the size of the window, and whether it is a phone's; scheme is light or dark.
func (b *browser) size(width, height int, phone bool, scheme string) {
	factor := 1
	if phone {
		factor = 2
	}
	b.do(nil, "Emulation.setDeviceMetricsOverride",
		map[string]any{"width": width, "height": height, "deviceScaleFactor": factor, "mobile": phone})
	b.do(nil, "Emulation.setEmulatedMedia",
		map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}})
}

// screenshot returns a picture of the window, or of the whole page, as PNG.
func (b *browser) screenshot(whole bool) []byte {
	var shot struct{ Data string }
	b.do(&shot, "Page.captureScreenshot", map[string]any{"format": "png", "captureBeyondViewport": whole})
	png, err := base64.StdEncoding.DecodeString(shot.Data)
	require.NoError(b, err)
	return png
}

// complaints returns what the browser has complained about so far, and forgets it.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.problems
	b.problems = nil
	return all
}
