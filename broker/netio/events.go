package netio

import "log/slog"

// ListenerOpened says that a port is bound.
type ListenerOpened struct{ Listener, Addr string }

// Name implements event.Event.
func (ListenerOpened) Name() string { return "listener_opened" }

// Level implements event.Event.
func (ListenerOpened) Level() slog.Level { return slog.LevelInfo }

// Attrs implements event.Event.
func (e ListenerOpened) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("listener", e.Listener), slog.String("addr", e.Addr)}
}

// ConnectionRefused says that a connection was closed at once because of a bound.
type ConnectionRefused struct {
	Listener, Peer string
	Bound          string // the configuration key that sets it
	Max            int
}

// Name implements event.Event.
func (ConnectionRefused) Name() string { return "connection_refused" }

// Level implements event.Event.
func (ConnectionRefused) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ConnectionRefused) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("listener", e.Listener), slog.String("peer", e.Peer),
		slog.String("bound", e.Bound), slog.Int("max", e.Max),
	}
}

// ConnectionFailed says that a connection was closed for a reason other than
// that the peer closed it or was idle.
type ConnectionFailed struct {
	Listener, Peer string
	Conn           uint64
	Reason         string
}

// Name implements event.Event.
func (ConnectionFailed) Name() string { return "connection_failed" }

// Level implements event.Event.
func (ConnectionFailed) Level() slog.Level { return slog.LevelWarn }

// Attrs implements event.Event.
func (e ConnectionFailed) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("listener", e.Listener), slog.String("peer", e.Peer),
		slog.Uint64("conn", e.Conn), slog.String("reason", e.Reason),
	}
}

// HandlerPanicked says that the handler panicked; the connection is closed.
type HandlerPanicked struct {
	Peer  string
	Conn  uint64
	Panic string
	Stack string
}

// Name implements event.Event.
func (HandlerPanicked) Name() string { return "handler_panicked" }

// Level implements event.Event.
func (HandlerPanicked) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e HandlerPanicked) Attrs() []slog.Attr {
	return []slog.Attr{
		slog.String("peer", e.Peer), slog.Uint64("conn", e.Conn),
		slog.String("panic", e.Panic), slog.String("stack", e.Stack),
	}
}

// AnsweredTwice says that the handler called done more than once for a request:
// a bug of ours. The second reply is dropped and the connection closed.
type AnsweredTwice struct {
	Peer string
	Conn uint64
}

// Name implements event.Event.
func (AnsweredTwice) Name() string { return "request_answered_twice" }

// Level implements event.Event.
func (AnsweredTwice) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e AnsweredTwice) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("peer", e.Peer), slog.Uint64("conn", e.Conn)}
}

// AcceptFailed says that a listener could not accept (most often: no file
// descriptor is left); it tries again.
type AcceptFailed struct{ Listener, Error string }

// Name implements event.Event.
func (AcceptFailed) Name() string { return "accept_failed" }

// Level implements event.Event.
func (AcceptFailed) Level() slog.Level { return slog.LevelError }

// Attrs implements event.Event.
func (e AcceptFailed) Attrs() []slog.Attr {
	return []slog.Attr{slog.String("listener", e.Listener), slog.String("error", e.Error)}
}
