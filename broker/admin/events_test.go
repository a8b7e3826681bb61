package admin

import (
	"log/slog"
	"strconv"
)

// named is an event with a name of its own for each number.
type named struct{ n int }

func (e named) Name() string     { return "event_" + strconv.Itoa(e.n) }
func (named) Level() slog.Level  { return slog.LevelInfo }
func (named) Attrs() []slog.Attr { return nil }
