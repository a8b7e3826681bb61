package admin

import (
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"strconv"
	"time"

	"varve/protocol"
	"varve/tiering"
)

// verifyLineTimeoutMs is how long the reader of a verification may take to accept a line.
const verifyLineTimeoutMs = 60_000

// VerifyLine is one line of the answer of POST /api/v1/tier/verify: findings as they are made, then the report or an
// error, of which one ends each whole answer. A line without any of them says that the work goes on.
type VerifyLine struct {
	Finding *VerifyFinding `json:"finding,omitempty"`
	Report  *VerifyReport  `json:"report,omitempty"`
	Error   string         `json:"error,omitempty"`
}

// VerifyFinding is one thing that is not as it should be.
type VerifyFinding struct {
	Kind      string `json:"kind"` // orphan, missing, size, corrupt, gap, stranger
	Topic     string `json:"topic,omitempty"`
	TopicID   string `json:"topicId,omitempty"`
	Partition int32  `json:"partition"`
	Base      int64  `json:"base"`
	Next      int64  `json:"next"`
	Key       string `json:"key,omitempty"`
	Bytes     int64  `json:"bytes"`
	What      string `json:"what"`
	Repair    string `json:"repair,omitempty"`
	Repaired  bool   `json:"repaired"`
}

// VerifyReport sums up. Findings include repaired ones.
type VerifyReport struct {
	Level       string `json:"level"`
	Objects     int64  `json:"objects"`
	ObjectBytes int64  `json:"objectBytes"`
	Segments    int64  `json:"segments"`
	Partitions  int64  `json:"partitions"`
	BytesRead   int64  `json:"bytesRead"`
	Findings    int64  `json:"findings"`
	Repaired    int64  `json:"repaired"`
	Unchecked   int64  `json:"unchecked"`
	FirstError  string `json:"firstError,omitempty"`
	TookMs      int64  `json:"tookMs"`
}

func verifyReport(l tiering.VerifyLevel, r tiering.VerifyReport, tookMs int64) *VerifyReport {
	return &VerifyReport{l.String(), r.Objects, r.ObjectBytes, r.Segments, r.Partitions, r.BytesRead, r.Findings, r.Repaired, r.Unchecked, r.FirstError, tookMs}
}

// verify answers POST /api/v1/tier/verify?level=list|index|data&topic=GLOB&repair=BOOL&rate=BYTES_PER_SECOND. It works for
// as long as the client listens, one run at a time.
func (s *Server) verify(w http.ResponseWriter, r *http.Request) {
	if s.sources().Tier == nil {
		writeProblem(w, http.StatusNotFound, "this broker has no tier; start it with varve.tier.url set")
		return
	}
	o, err := s.verifyOptions(r)
	if err != nil {
		writeProblem(w, http.StatusBadRequest, err.Error())
		return
	}
	if !s.verifying.CompareAndSwap(false, true) {
		writeProblem(w, http.StatusConflict, "a verification is under way; wait for its end")
		return
	}
	defer s.verifying.Store(false)
	out := json.NewEncoder(w)
	control := http.NewResponseController(w)
	w.Header().Set("Content-Type", "application/x-ndjson")
	line := func(l VerifyLine) {
		_ = control.SetWriteDeadline(time.Now().Add(ms(verifyLineTimeoutMs))) // a writer without deadlines has none to set
		_ = out.Encode(l)                                                     // a client that is gone ends r's context
		_ = control.Flush()
	}
	_ = control.SetReadDeadline(time.Time{}) // the request is read; what remains is to notice that its client goes
	_ = control.SetWriteDeadline(time.Time{})
	o.Found = func(f tiering.Finding) { line(VerifyLine{Finding: verifyFinding(f)}) }
	began := time.Now()
	rep, err := s.sources().Tier.Verify(r.Context(), o)
	if err != nil {
		line(VerifyLine{Error: err.Error()})
		return
	}
	line(VerifyLine{Report: verifyReport(o.Level, rep, time.Since(began).Milliseconds())})
}

func (s *Server) verifyOptions(r *http.Request) (o tiering.VerifyOptions, err error) {
	q, ok := r.URL.Query(), false
	if o.Level, ok = tiering.ParseVerifyLevel(q.Get("level")); !ok {
		return o, fmt.Errorf("level is list, index or data")
	}
	if v := q.Get("repair"); v != "" {
		if o.Repair, err = strconv.ParseBool(v); err != nil {
			return o, fmt.Errorf("repair is true or false")
		}
	}
	if v := q.Get("rate"); v != "" {
		if o.BytesPerSec, err = strconv.ParseInt(v, 10, 64); err != nil || o.BytesPerSec < 0 {
			return o, fmt.Errorf("rate is a number of bytes per second")
		}
	}
	if glob := q.Get("topic"); glob != "" {
		if _, err := path.Match(glob, ""); err != nil {
			return o, fmt.Errorf("topic %q: %w", glob, err)
		}
		ids := map[protocol.UUID]bool{}
		for t := range s.sources().Image().Topics() {
			if match, _ := path.Match(glob, t.Name); match {
				ids[t.ID] = true
			}
		}
		if len(ids) == 0 {
			return o, fmt.Errorf("there is no topic %q", glob)
		}
		o.Topic = func(id protocol.UUID) bool { return ids[id] }
	}
	return o, nil
}

func verifyFinding(f tiering.Finding) *VerifyFinding {
	out := &VerifyFinding{Kind: string(f.Kind), Topic: f.Topic, Partition: f.Partition, Base: f.Base, Next: f.Next, Key: f.Key, Bytes: f.Bytes,
		What: f.What, Repair: f.Repair, Repaired: f.Repaired}
	if f.TopicID != (protocol.UUID{}) {
		out.TopicID = f.TopicID.String()
	}
	return out
}

// onlyPost lets through what a tool sends and a web page of elsewhere cannot: a POST with a JSON content type, which browsers
// ask permission for, and without an Origin.
func onlyPost(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.Method != http.MethodPost:
			w.Header().Set("Allow", http.MethodPost)
			writeProblem(w, http.StatusMethodNotAllowed, "this is a POST")
		case r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Origin") != "":
			writeProblem(w, http.StatusForbidden, "send Content-Type: application/json and no Origin; browsers are not served here")
		default:
			next(w, r)
		}
	}
}
