package tiering

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"
)

// Bounds of the scrub that always goes on.
const (
	defaultScrubIntervalMs = 86_400_000
	maxScrubStart          = 10 * time.Minute // before the first pass of a life
	maxScrubRetry          = time.Hour        // after a pass that could not be made
)

// ScrubPass tells of the last pass of one kind.
type ScrubPass struct {
	Level   VerifyLevel
	EndedMs int64
	TookMs  int64
	Report  VerifyReport
}

// scrub verifies the tier for as long as ctx lives: presence and sizes once an interval, all bytes at a low rate, again
// and again. Nobody waits for it, and whoever is not the controller does nothing.
func (m *Manager) scrub(ctx context.Context) {
	if m.o.ScrubIntervalMs < 0 {
		return
	}
	var passes sync.WaitGroup
	passes.Go(func() { m.scrubEvery(ctx, VerifyOptions{Level: VerifyList, Repair: true}) })
	if m.o.ScrubBytesPerSec > 0 {
		passes.Go(func() {
			m.scrubEvery(ctx, VerifyOptions{Level: VerifyData, BytesPerSec: m.o.ScrubBytesPerSec, Repair: true})
		})
	}
	passes.Wait()
}

// scrubEvery makes a pass at most once an interval. Where a pass begins is left to chance, so that a broker which is
// restarted often does not read the same objects each time.
func (m *Manager) scrubEvery(ctx context.Context, o VerifyOptions) {
	interval := time.Duration(m.o.ScrubIntervalMs) * time.Millisecond
	wait := min(interval, maxScrubStart)
	for {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return
		}
		began := time.Now()
		o.FirstFolder = rand.IntN(spreadFolders)
		if m.scrubOnce(ctx, o) {
			wait = max(interval-time.Since(began), time.Second)
		} else {
			wait = min(interval, maxScrubRetry)
		}
	}
}

// scrubOnce makes one pass and tells of it; false when this node is not to, or could not finish.
func (m *Manager) scrubOnce(ctx context.Context, o VerifyOptions) bool {
	m.mu.Lock()
	claimed := m.ownerEpoch != 0
	m.mu.Unlock()
	if !claimed || !m.o.Meta.IsController() {
		return false
	}
	o.Found = func(f Finding) { m.o.Events.Emit(ScrubFound{f}) }
	began := m.o.Now()
	rep, err := m.Verify(ctx, o)
	if err != nil {
		return false
	}
	p := ScrubPass{Level: o.Level, EndedMs: m.o.Now().UnixMilli(), TookMs: m.o.Now().Sub(began).Milliseconds(), Report: rep}
	m.mu.Lock()
	m.scrubbed[o.Level] = p
	m.mu.Unlock()
	m.o.Events.Emit(ScrubPassed{p})
	return true
}

// String names the level as `varve tier verify --level` does.
func (l VerifyLevel) String() string {
	switch l {
	case VerifyList:
		return "list"
	case VerifyIndex:
		return "index"
	case VerifyData:
		return "data"
	}
	return "unknown"
}

// ParseVerifyLevel reads what String writes.
func ParseVerifyLevel(s string) (VerifyLevel, bool) {
	for l := VerifyList; l <= VerifyData; l++ {
		if l.String() == s {
			return l, true
		}
	}
	return 0, false
}

// ScrubFound is an alarm: bucket and metastore do not agree, or stored bytes are not what was written. An orphan that was
// removed is no more than news.
type ScrubFound struct{ Finding }

func (ScrubFound) Name() string { return "tier_scrub_found" }

// Level implements event.Event.
func (e ScrubFound) Level() slog.Level {
	switch {
	case e.Repaired:
		return slog.LevelInfo
	case e.Kind == FoundOrphan || e.Kind == FoundStranger:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// Attrs implements event.Event.
func (e ScrubFound) Attrs() []slog.Attr {
	topic := e.Topic
	if topic == "" {
		topic = e.TopicID.String()
	}
	return append(where(topic, e.Partition), slog.String("kind", string(e.Kind)), slog.String("object", e.Key), slog.Int64("base", e.Base),
		slog.Int64("next", e.Next), slog.String("what", e.What), slog.String("repair", e.Repair))
}

// ScrubPassed: a pass over the whole tier has ended.
type ScrubPassed struct{ ScrubPass }

func (ScrubPassed) Name() string { return "tier_scrub_passed" }

// Level implements event.Event.
func (e ScrubPassed) Level() slog.Level {
	if e.Report.Findings > e.Report.Repaired || e.Report.Unchecked > 0 {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e ScrubPassed) Attrs() []slog.Attr {
	r := e.Report
	return []slog.Attr{slog.String("level", e.ScrubPass.Level.String()), slog.Int64("objects", r.Objects), slog.Int64("segments", r.Segments),
		slog.Int64("bytesRead", r.BytesRead), slog.Int64("findings", r.Findings), slog.Int64("repaired", r.Repaired),
		slog.Int64("unchecked", r.Unchecked), slog.String("firstError", r.FirstError), slog.Int64("tookMs", e.TookMs)}
}
