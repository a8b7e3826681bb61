package broker

import (
	"log/slog"
	"time"

	"varve/broker/config"
)

// ConfigWarning says that something in the configuration is accepted but has no effect.
type ConfigWarning struct{ config.Warning }

// Name implements event.Event.
func (ConfigWarning) Name() string { return "config_warning" }

// Level implements event.Event.
func (ConfigWarning) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ConfigWarning) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("key", e.Key), slog.String("warning", e.Text)}
}

// Ready says that clients are served.
type Ready struct {
	Kafka, HTTP, Tier string
	Took              time.Duration
}

// Name implements event.Event.
func (Ready) Name() string { return "ready" }

// Level implements event.Event.
func (Ready) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e Ready) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("kafka", e.Kafka), slog.String("http", e.HTTP), slog.String("tier", e.Tier), slog.Duration("took", e.Took)}
}

// Drained says that the node has gone down in order.
type Drained struct{ Took time.Duration }

// Name implements event.Event.
func (Drained) Name() string { return "drained" }

// Level implements event.Event.
func (Drained) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e Drained) Attrs() []slog.Attr { return []slog.Attr{slog.Duration("took", e.Took)} }

// StoreProbed says what the first look at the object store found.
type StoreProbed struct {
	Store                  string
	Versioning, ObjectLock bool
	Problem                string // "" when it answered
}

// Name implements event.Event.
func (StoreProbed) Name() string { return "store_probed" }

// Level implements event.Event.
func (e StoreProbed) Level() slog.Level {
	if e.Problem != "" || e.Versioning || e.ObjectLock {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e StoreProbed) Attrs() []slog.Attr {
	out := []slog.Attr{slog.String("store", e.Store)}
	if e.Versioning {
		out = append(out, slog.String("versioning", "on: deleted segments keep using space until a lifecycle rule expires old versions"))
	}
	if e.ObjectLock {
		out = append(out, slog.String("object_lock", "on: deletes may be refused until the lock ends"))
	}
	if e.Problem != "" {
		out = append(out, slog.String("problem", e.Problem), slog.String("fix", "produce and local reads go on; settling is tried again until the store answers"))
	}
	return out
}
