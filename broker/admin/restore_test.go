package admin

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	"varve/protocol"
	"varve/tiering"
)

// fakeRestorer remembers what it was asked.
type fakeRestorer struct {
	asked tiering.RestoreRequest
	err   error
}

func (f *fakeRestorer) StartRestore(_ context.Context, req tiering.RestoreRequest) (protocol.UUID, error) {
	f.asked = req
	return protocol.UUID{7}, f.err
}
func (f *fakeRestorer) AbortRestore(context.Context) error { return f.err }
func (f *fakeRestorer) RestoreStatus(_ context.Context, id string) (tiering.RestoreStatus, error) {
	return tiering.RestoreStatus{ID: id, Phase: "import", Held: []string{}}, f.err
}
func (f *fakeRestorer) ReleaseRestored(_ context.Context, pattern string) ([]string, error) {
	return []string{pattern}, f.err
}

const route = "/api/v1/tier/restore"

// askServer sends a body with a JSON content type and further headers.
func askServer(t *testing.T, s running, method, path, body string, header ...string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Addr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// TestRestoreRoutes: orders reach the restorer, what is wrong with them is told, and a page of elsewhere gets nowhere.
func TestRestoreRoutes(t *testing.T) {
	f := &fakeRestorer{}
	s := start(t, Sources{Restore: f, TierURL: "dir:///tier"})
	ask := func(method, path, body string, header ...string) (int, string) {
		return askServer(t, s, method, path, body, header...)
	}
	code, body := ask(http.MethodPost, route, `{"from":"dir:///tier/","cluster":"old","toMs":5,"topics":"a*","salvage":true}`)
	var started RestoreStarted
	if err := json.Unmarshal([]byte(body), &started); code != http.StatusOK || err != nil || started.ID != (protocol.UUID{7}).String() {
		t.Fatalf("%d %s", code, body)
	}
	if want := (tiering.RestoreRequest{Source: "old", ToMs: 5, Topics: "a*", Salvage: true}); f.asked != want {
		t.Fatalf("asked %+v", f.asked)
	}
	for name, c := range map[string]struct{ method, path, body, header, says string }{
		"another tier":  {http.MethodPost, route, `{"from":"dir:///elsewhere"}`, "", "varve.tier.url=dir:///elsewhere"},
		"no URL":        {http.MethodPost, route, `{}`, "", "scheme"},
		"no JSON":       {http.MethodPost, route, `x`, "", "not what is expected"},
		"unknown field": {http.MethodPost, route, `{"form":"dir:///tier"}`, "", "form"},
		"a web page":    {http.MethodPost, route, `{"from":"dir:///tier"}`, "http://elsewhere", "browsers"},
		"deleting":      {http.MethodDelete, route, ``, "", "POST"},
		"release, page": {http.MethodPost, "/api/v1/tier/release", `{}`, "http://elsewhere", "browsers"},
	} {
		header := []string{}
		if c.header != "" {
			header = []string{"Origin", c.header}
		}
		if code, body := ask(c.method, c.path, c.body, header...); code < 400 || !strings.Contains(body, c.says) {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	if code, body := ask(http.MethodGet, route+"?id=x", ""); code != http.StatusOK || !strings.Contains(body, `"phase": "import"`) {
		t.Errorf("status: %d %s", code, body)
	}
	if code, body := ask(http.MethodPost, "/api/v1/tier/release", `{"topics":"a*"}`); code != http.StatusOK || !strings.Contains(body, "a*") {
		t.Errorf("release: %d %s", code, body)
	}
	if code, body := ask(http.MethodPost, route, `{"abort":true}`); code != http.StatusOK {
		t.Errorf("abort: %d %s", code, body)
	}
}

// TestRestoreErrors: what the caller can mend is told from what it cannot.
func TestRestoreErrors(t *testing.T) {
	f := &fakeRestorer{}
	s := start(t, Sources{Restore: f, TierURL: "dir:///tier"})
	for _, c := range []struct {
		err  error
		code int
	}{{protocol.Errorf(protocol.NotController, "ask another"), http.StatusConflict}, {&tiering.NoSourceError{What: "nothing", Fix: "look elsewhere"}, http.StatusBadRequest}, {io.ErrUnexpectedEOF, http.StatusBadGateway}} {
		f.err = c.err
		for _, body := range []string{`{"from":"dir:///tier"}`, `{"abort":true}`} {
			if code, text := askServer(t, s, http.MethodPost, route, body); code != c.code || !strings.Contains(text, c.err.Error()) {
				t.Errorf("%v: %d %s", c.err, code, text)
			}
		}
	}
	if code, body := askServer(t, start(t, Sources{}), http.MethodGet, route, ""); code != http.StatusNotFound || !strings.Contains(body, "varve.tier.url") {
		t.Errorf("without a tier: %d %s", code, body)
	}
}
