package main

import (
	"fmt"
	"regexp"
	"strconv"
	"time"
)

// isoDuration is the part of ISO 8601 that has one meaning whatever the calendar says: Kafka's tools take it.
var isoDuration = regexp.MustCompile(`^P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?$`)

var days = regexp.MustCompile(`^-?(\d+)d$`)

const maxDays = 100_000 // some 270 years; time.Duration ends at 292

// parseDuration takes Go's form (1h30m), whole days (7d), and Kafka's (P7DT1H).
func parseDuration(s string) (time.Duration, error) {
	if d, err := time.ParseDuration(s); err == nil {
		return d, nil
	}
	if m := days.FindStringSubmatch(s); m != nil {
		return sumDuration(s, m[1:], []time.Duration{24 * time.Hour})
	}
	if m := isoDuration.FindStringSubmatch(s); m != nil && s != "P" && s[len(s)-1] != 'T' {
		return sumDuration(s, m[1:], []time.Duration{24 * time.Hour, time.Hour, time.Minute, time.Second})
	}
	return 0, fmt.Errorf("%q is no duration: write it as 1h30m, 7d or P7DT1H", s)
}

func sumDuration(s string, parts []string, units []time.Duration) (sum time.Duration, err error) {
	for i, part := range parts {
		if part == "" {
			continue
		}
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil || n > int64(maxDays*24*time.Hour/units[i]) {
			return 0, fmt.Errorf("%q is too long", s)
		}
		sum += time.Duration(n) * units[i]
	}
	if sum < 0 || sum > maxDays*24*time.Hour {
		return 0, fmt.Errorf("%q is too long", s)
	}
	return sum, nil
}
