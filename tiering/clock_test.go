package tiering

import (
	"testing"
	"time"
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
			var g ClockGuard
			wall, boot := time.UnixMilli(1_700_000_000_000), 1000*time.Hour
			for i, r := range readings {
				wall, boot = wall.Add(r.wall), boot+r.boot
				if err := g.observe(wall, boot); (err == nil) != r.ok {
					t.Fatalf("reading %d: %v", i, err)
				}
			}
		})
	}
	if a := bootTime(); a <= 0 || bootTime() < a {
		t.Fatal("CLOCK_BOOTTIME does not advance")
	}
}
