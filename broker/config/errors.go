package config

import "strings"

// Error is one thing that is wrong with the configuration. Load returns them joined.
type Error struct {
	Key    string
	Value  string // empty for sensitive keys
	Origin string // where it was set: "--set", "VARVE_X", "server.properties:12"
	What   string
	Fix    string // what to do; may be empty
}

// Error gives all of it on one line.
func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Key)
	if e.Value != "" {
		b.WriteString("=" + e.Value)
	}
	if e.Origin != "" {
		b.WriteString(" (" + e.Origin + ")")
	}
	if b.Len() > 0 {
		b.WriteString(": ")
	}
	b.WriteString(e.What)
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

// Warning is something in the configuration that is accepted but has no effect, or not quite the one that is written.
type Warning struct {
	Key  string // empty when it is about several
	Text string
}

func (w Warning) String() string {
	if w.Key == "" {
		return w.Text
	}
	return w.Key + ": " + w.Text
}
