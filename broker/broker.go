package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"varve/broker/admin"
	"varve/broker/api"
	"varve/broker/commitlog"
	"varve/broker/config"
	"varve/broker/group"
	"varve/broker/netio"
	"varve/broker/replica"
	"varve/metastore"
	"varve/metastore/controller"
	"varve/protocol"
	"varve/protocol/event"
	"varve/tiering"
	"varve/tiering/objstore"
)

// Options of a Broker.
type Options struct {
	Log     *slog.Logger // nil: nothing is logged
	Sinks   []event.Sink // also told of every event
	Version string       // of the binary, for people
}

// Broker is one running node.
type Broker struct {
	cfg     *config.Config
	version string
	events  event.Sink
	counts  *admin.Events

	net         *netio.Server
	http        *admin.Server
	logs        *commitlog.Manager
	meta        *metastore.Store
	control     *controller.Controller
	store       objstore.Store
	usage       *objstore.Counters
	clock       *tiering.ClockGuard
	tier        *tiering.Manager
	replicas    *replica.Manager
	groups      *group.Coordinator
	coordinator atomic.Pointer[group.Coordinator] // groups, once it is there, for those who are here before it
	dispatch    *api.Dispatcher

	handler   lateHandler
	endpoints []metastore.Endpoint
	tierText  string

	bandwidth   *objstore.Bandwidth
	dynamics    dynamics
	unsubscribe func() // from changes of dynamic values; nil until then

	epoch int64
	ready atomic.Bool

	running  []*part // in the order in which they were started
	failed   chan error
	drained  chan struct{}
	once     sync.Once
	drainErr error
	stop     context.CancelFunc
	life     context.Context
}

// part is a component that runs until it is cancelled.
type part struct {
	name   string
	cancel context.CancelFunc
	done   chan struct{}
	wg     sync.WaitGroup
}

// run starts a part. It is cancelled and waited for by halt; if it ends before, the node goes down.
func (b *Broker) run(name string, fn func(context.Context) error) *part {
	ctx, cancel := context.WithCancel(b.life)
	p := &part{name: name, cancel: cancel, done: make(chan struct{})}
	b.running = append(b.running, p)
	p.wg.Go(func() {
		defer close(p.done)
		err := fn(ctx)
		if ctx.Err() != nil && err == nil {
			return
		}
		if err == nil {
			err = &protocol.InvariantError{What: "it ended by itself"}
		}
		b.fail(fmt.Errorf("%s: %w", name, err))
	})
	return p
}

// fail takes the node down; of several failures the first is the one to report.
func (b *Broker) fail(err error) {
	select {
	case b.failed <- err:
	default:
	}
}

// watchDisk is an event sink: a node whose one log directory has failed halts, as Apache Kafka's does. Its disk may
// have lost what the page cache seemed to hold, so only a restart, with recovery, may serve again.
func (b *Broker) watchDisk(e event.Event) {
	if off, ok := e.(commitlog.DirOffline); ok {
		b.fail(fmt.Errorf("log directory %s has failed: %w", off.Dir, off.Err))
	}
}

// halt cancels a part and waits for its end.
func (p *part) halt() {
	if p == nil {
		return
	}
	p.cancel()
	p.wg.Wait()
}

// KafkaAddr is the address of the first listener, as it is advertised.
func (b *Broker) KafkaAddr() string {
	e := b.endpoints[0]
	return config.Listener{Host: e.Host, Port: int(e.Port)}.Addr()
}

// HTTPAddr is the address of the HTTP server, "" when there is none.
func (b *Broker) HTTPAddr() string {
	if b.http == nil {
		return ""
	}
	return b.http.Addr()
}

// Tier is the canonical URL of the store, "none" without one.
func (b *Broker) Tier() string { return b.tierText }

// Wait returns when a part has failed, with an *ExitError, or after Drain, with nil.
func (b *Broker) Wait() error {
	select {
	case err := <-b.failed:
		return exitOf(err, "")
	case <-b.drained:
		return nil
	}
}

// Drain takes the node down: requests in flight are answered, logs flushed, and the clean-shutdown marker written. When ctx
// ends first, connections are cut; what must be durable is still made so. It can be called more than once.
func (b *Broker) Drain(ctx context.Context) error {
	b.once.Do(func() {
		defer close(b.drained)
		b.ready.Store(false)
		began := time.Now()
		b.drainErr = b.close(ctx)
		if b.drainErr == nil {
			b.events.Emit(Drained{Took: time.Since(began)})
		}
	})
	return b.drainErr
}

// close takes down whatever was started, newest first. It is safe at any point of the start.
func (b *Broker) close(ctx context.Context) error {
	var errs []error
	if b.unsubscribe != nil {
		b.unsubscribe()
	}
	if b.groups != nil {
		b.groups.Release() // members that wait for others are not waited for
	}
	if b.net != nil {
		errs = append(errs, b.net.Shutdown(ctx))
	}
	if b.dispatch != nil {
		b.dispatch.Close()
	}
	for i := len(b.running) - 1; i >= 0; i-- {
		b.running[i].halt()
	}
	if b.logs != nil {
		errs = append(errs, b.logs.Close(context.WithoutCancel(ctx), b.epoch))
	}
	if b.meta != nil {
		errs = append(errs, b.meta.Close(context.WithoutCancel(ctx)))
	}
	b.stop()
	return errors.Join(errs...)
}

// lateHandler lets ports be bound before there is anything behind them; connections are accepted only once there is.
type lateHandler struct {
	to atomic.Pointer[api.Dispatcher]
}

// Serve implements netio.Handler.
func (h *lateHandler) Serve(ctx context.Context, c *netio.Conn, frame []byte, done func(netio.Reply)) {
	h.to.Load().Serve(ctx, c, frame, done)
}
