package main

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
)

func (c *call) printJSON(v any) int {
	enc := json.NewEncoder(c.stdout)
	enc.SetIndent("", "  ")
	if err := enc.Encode(v); err != nil {
		return c.failed("%v", err)
	}
	return exitOK
}

// table writes rows in columns; those whose heading begins with '>' are numbers and stand to the right.
type table struct {
	right []bool
	rows  [][]string
	w     io.Writer
}

func newTable(w io.Writer, headings ...string) *table {
	t := &table{w: w}
	row := make([]string, len(headings))
	for i, h := range headings {
		t.right = append(t.right, strings.HasPrefix(h, ">"))
		row[i] = strings.TrimPrefix(h, ">")
	}
	t.rows = append(t.rows, row)
	return t
}

func (t *table) row(cells ...any) {
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.rows = append(t.rows, row)
}

func (t *table) flush() {
	widths := make([]int, len(t.right))
	for _, row := range t.rows {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)))
		}
	}
	for _, row := range t.rows {
		var line strings.Builder
		for i, cell := range row {
			pad := strings.Repeat(" ", widths[i]-len([]rune(cell)))
			if t.right[i] {
				cell = pad + cell
			} else {
				cell += pad
			}
			line.WriteString(cell + "  ")
		}
		fmt.Fprintln(t.w, strings.TrimRight(line.String(), " "))
	}
	t.rows = nil
}

func sortedKeys[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}

// size writes bytes for people.
func size(n int64) string {
	units := []string{"KiB", "MiB", "GiB", "TiB", "PiB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", n)
	}
	f := float64(n) / 1024
	i := 0
	for f >= 1024 && i < len(units)-1 {
		f, i = f/1024, i+1
	}
	return fmt.Sprintf("%.1f %s", f, units[i])
}

// count writes a number with its thousands apart.
func count[T int | int32 | int64 | uint64](n T) string {
	s := fmt.Sprint(n)
	sign := ""
	if strings.HasPrefix(s, "-") {
		sign, s = "-", s[1:]
	}
	var parts []string
	for len(s) > 3 {
		parts = append([]string{s[len(s)-3:]}, parts...)
		s = s[:len(s)-3]
	}
	return sign + strings.Join(append([]string{s}, parts...), ",")
}

// terminal tells whether a person is likely to read along.
func terminal(w any) bool {
	if s, ok := w.(*sharedWriter); ok {
		w = s.w
	}
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// sharedWriter lets a client's own goroutines and the command report on the same stream. Goroutines of a client may outlive
// its Close: what they say after the command has ended is dropped.
type sharedWriter struct {
	mu    sync.Mutex
	w     io.Writer
	ended bool
}

func (s *sharedWriter) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
}

// Write implements io.Writer.
func (s *sharedWriter) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return len(p), nil
	}
	return s.w.Write(p)
}
