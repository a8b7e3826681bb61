package tiering

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"varve/protocol/event"
	"varve/tiering/objstore"
)

func TestClockGuard(t *testing.T) {
	type reading struct {
		wall, boot time.Duration // progress since the reading before
		ok         bool
	}
	for name, readings := range map[string][]reading{
		"steady":          {{0, 0, true}, {time.Hour, time.Hour, true}, {300 * time.Hour, 300 * time.Hour, true}},
		"small steps":     {{0, 0, true}, {time.Hour + 4*time.Minute, time.Hour, true}, {time.Hour + 4*time.Minute, time.Hour, false}},
		"jump and back":   {{0, 0, true}, {48 * time.Hour, time.Second, false}, {-48 * time.Hour, time.Second, true}},
		"jump and stay":   {{0, 0, true}, {48 * time.Hour, time.Second, false}, {59 * time.Minute, 59 * time.Minute, false}, {2 * time.Minute, 2 * time.Minute, true}, {time.Hour, time.Hour, true}},
		"jumps in a row":  {{0, 0, true}, {48 * time.Hour, time.Second, false}, {40 * time.Hour, 50 * time.Minute, false}, {20 * time.Minute, 20 * time.Minute, false}, {time.Hour, time.Hour, true}},
		"back in time":    {{0, 0, true}, {-time.Hour, time.Second, false}},
		"asleep, in both": {{0, 0, true}, {100 * time.Hour, 100 * time.Hour, true}},
	} {
		t.Run(name, func(t *testing.T) {
			clock := &testClock{now: time.UnixMilli(1_700_000_000_000), boot: 1000 * time.Hour}
			g := NewClockGuard(ClockOptions{Now: clock.Now, Boottime: clock.Boot})
			for i, r := range readings {
				clock.now, clock.boot = clock.now.Add(r.wall), clock.boot+r.boot
				if err := g.Check(); (err == nil) != r.ok {
					t.Fatalf("reading %d: %v", i, err)
				}
			}
		})
	}
	if a := bootTime(); a <= 0 || bootTime() < a {
		t.Fatal("CLOCK_BOOTTIME does not advance")
	}
}

// TestClockAtStart: what was believed when the node was last up is held against the clock that it starts with.
func TestClockAtStart(t *testing.T) {
	const year = 365 * 24 * time.Hour
	for name, c := range map[string]struct {
		wall     time.Duration // since the last reading
		boot     time.Duration // since the last reading, or since the new boot
		rebooted bool
		ok       bool
	}{
		"restarted":                              {3 * time.Second, 3 * time.Second, false, true},
		"stopped for a month":                    {720 * time.Hour, 720 * time.Hour, false, true},
		"restarted, a year ahead":                {year, 3 * time.Second, false, false},
		"restarted, a year behind":               {-year, 3 * time.Second, false, false},
		"rebooted":                               {2 * time.Minute, 30 * time.Second, true, true},
		"rebooted, started by hand later":        {3 * time.Hour, 3*time.Hour - time.Minute, true, true},
		"rebooted, a year ahead":                 {year, 30 * time.Second, true, false},
		"rebooted, before the clock was set":     {-year, 30 * time.Second, true, false},
		"moved to a machine that is up for long": {time.Minute, 2 * year, true, true},
		"moved, a year ahead":                    {year, 2 * year, true, false},
		"switched off for a week":                {168 * time.Hour, time.Minute, true, false}, // looks like a wrong clock
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "clock")
			clock := &testClock{now: time.UnixMilli(1_700_000_000_000), boot: 1000 * time.Hour}
			o := ClockOptions{Path: path, Now: clock.Now, Boottime: clock.Boot, BootID: "first"}
			g := NewClockGuard(o)
			for range 100 {
				if !g.Agrees() {
					t.Fatal("the first start of all is believed")
				}
				clock.advance(time.Minute)
			}
			clock.now = clock.now.Add(c.wall)
			if c.boot += clock.boot; c.rebooted {
				c.boot, o.BootID = c.boot-clock.boot, "second"
			}
			clock.boot = c.boot
			g = NewClockGuard(o)
			if err := g.Check(); (err == nil) != c.ok {
				t.Fatalf("%v", err)
			}
			for range 59 {
				clock.advance(time.Minute)
				if g.Agrees() != c.ok {
					t.Fatal("another judgement within an hour")
				}
				g.Check()
			}
			clock.advance(time.Minute)
			if err := g.Check(); err != nil {
				t.Fatalf("after an hour of agreement: %v", err)
			}
			if err := NewClockGuard(o).Check(); err != nil {
				t.Fatalf("started again: %v", err)
			}
		})
	}
}

// TestClockFileIsBad: a file that cannot be read is told of and costs an hour, no more; one that cannot be written costs nothing now.
func TestClockFileIsBad(t *testing.T) {
	for name, content := range map[string]string{"torn": `{"version":1,"wall`, "empty": "", "newer": `{"version":2}`, "zero": `{"version":1}`} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "clock")
			if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
			var rec event.Recorder
			clock := &testClock{now: time.UnixMilli(1_700_000_000_000), boot: 1000 * time.Hour}
			g := NewClockGuard(ClockOptions{Path: path, Now: clock.Now, Boottime: clock.Boot, BootID: "b", Events: rec.Emit})
			first, again := g.Agrees(), g.Agrees()
			if first || again || rec.Count("tier_clock_judged") != 1 || rec.Count("tier_clock_not_kept") > 1 {
				t.Fatal("believed, or told more than once")
			}
			clock.advance(time.Hour)
			if err := g.Check(); err != nil || rec.Count("tier_clock_judged") != 2 {
				t.Fatal(err)
			}
			if raw, err := os.ReadFile(path); err != nil || !strings.Contains(string(raw), `"boot_id":"b"`) {
				t.Fatalf("%s %v", raw, err)
			}
		})
	}
	var rec event.Recorder
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	g := NewClockGuard(ClockOptions{Path: filepath.Join(t.TempDir(), "none", "clock"), Now: clock.Now, Boottime: clock.Boot, Events: rec.Emit})
	for range 3 {
		if !g.Agrees() || rec.Count("tier_clock_not_kept") != 1 {
			t.Fatal("not believed, or not told once")
		}
		clock.advance(time.Hour)
	}
}

// TestClockOfController: a broker whose clock is elsewhere than the controller's does not delete by age.
func TestClockOfController(t *testing.T) {
	clock := &testClock{now: time.UnixMilli(1_700_000_000_000)}
	g := NewClockGuard(ClockOptions{Now: clock.Now, Boottime: clock.Boot})
	for _, c := range []struct {
		apart, took time.Duration
		ok          bool
	}{
		{0, 0, true}, {4 * time.Minute, 0, true}, {6 * time.Minute, 0, false}, {6 * time.Minute, 2 * time.Minute, false}, {0, 0, true},
		{-6 * time.Minute, 0, false}, {-6 * time.Minute, 2 * time.Minute, true}, {-time.Hour, time.Minute, false}, {-time.Second, time.Minute, true},
	} {
		g.Compare(clock.now.Add(c.apart), c.took)
		if err := g.Check(); (err == nil) != c.ok {
			t.Errorf("%v apart, asked %v ago: %v", c.apart, c.took, err)
		}
	}
}

// TestBadClockStopsAgeOnly: while the clock is not believed, retention by size goes on, by age nothing goes, and no object does.
func TestBadClockStopsAgeOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "clock")
	cfg := TierConfig{RetentionMs: 3_600_000, RetentionBytes: 6000, LocalRetentionMs: 3_600_000, LocalRetentionBytes: 4000}
	w := newWorld(t, cfg, func(o *Options) { o.DeleteDelayMs = 1000 })
	guard := ClockOptions{Path: path, Now: w.clock.Now, Boottime: w.clock.Boot, BootID: "b", Events: w.rec.Emit}
	w.opts.Clock = NewClockGuard(guard)
	w.start()
	w.append(60, 0)
	if err := w.round(); err != nil {
		t.Fatal(err)
	}
	w.stop()
	w.clock.now = w.clock.now.Add(365 * 24 * time.Hour)
	w.opts.Clock = NewClockGuard(guard)
	w.start()
	defer w.stop()
	before, _ := w.meta.Tier(w.part.id, 0)
	w.append(30, 365*24*time.Hour) // the producers' clocks are right
	for range 10 {
		w.clock.advance(5 * time.Minute)
		_ = w.round()
	}
	st, err := w.meta.Tier(w.part.id, 0)
	local := w.part.log.SizeBytes()
	if err != nil || st.LogStart <= before.LogStart || st.Bytes < 4000 || local > 7000 || local < 4000 || w.store.Calls(objstore.VerbDelete) != 0 {
		t.Fatalf("log start %d then %d, %d bytes in the tier, %d local: %v", before.LogStart, st.LogStart, st.Bytes, local, err)
	}
	ctx, cancel := context.WithTimeout(w.ctx, time.Second)
	defer cancel()
	if _, err := w.rec.Wait(ctx, "tier_clock_judged"); err != nil {
		t.Fatal(err)
	}
	w.clock.advance(20 * time.Minute) // the hour is over: a year has passed, as the clock says
	w.settle()
	if st, _ := w.meta.Tier(w.part.id, 0); st.LogStart < w.sealedEnd() {
		t.Fatalf("log start %d, sealed up to %d", st.LogStart, w.sealedEnd())
	}
	w.check()
}
