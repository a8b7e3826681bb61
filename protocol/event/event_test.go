package event_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"varve/protocol/event"
)

type rolled struct{ partition int }

func (rolled) Name() string         { return "rolled" }
func (rolled) Level() slog.Level    { return slog.LevelInfo }
func (e rolled) Attrs() []slog.Attr { return []slog.Attr{slog.Int("partition", e.partition)} }

type quiet struct{ rolled }

func (quiet) Name() string      { return "quiet" }
func (quiet) Level() slog.Level { return slog.LevelDebug }

func TestNilSinkDrops(t *testing.T) {
	event.Sink(nil).Emit(rolled{})
	event.Fan(nil, nil).Emit(rolled{})
}

func TestLogWritesOneLinePerEvent(t *testing.T) {
	var out bytes.Buffer
	sink := event.Log(slog.New(slog.NewTextHandler(&out, nil)))
	sink.Emit(rolled{7})
	sink.Emit(quiet{})
	if got := out.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "level=INFO msg=rolled partition=7") {
		t.Errorf("log is %q", got)
	}
}

func TestFanKeepsOrder(t *testing.T) {
	var got []int
	sink := event.Fan(func(event.Event) { got = append(got, 1) }, nil, func(event.Event) { got = append(got, 2) })
	sink.Emit(rolled{})
	if len(got) != 2 || got[0] != 1 || got[1] != 2 {
		t.Error(got)
	}
}

func TestRecorder(t *testing.T) {
	var r event.Recorder
	sink := event.Sink(r.Emit)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := range 100 {
			sink.Emit(quiet{})
			sink.Emit(rolled{i})
		}
	})
	e, err := r.Wait(ctx, "rolled")
	if err != nil || e.(rolled).partition != 0 {
		t.Errorf("waited for %v, %v", e, err)
	}
	wg.Wait()
	if r.Count("rolled") != 100 || r.Count("other") != 0 || len(r.All()) != 200 {
		t.Error("events were lost")
	}
	ended, stop := context.WithCancel(ctx)
	stop()
	if _, err := r.Wait(ended, "other"); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}
