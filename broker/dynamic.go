package broker

import (
	"log/slog"
	"sync"

	"varve/metastore"
)

// dynamics are the versions of the dynamic values in force, so that each change is taken over once.
type dynamics struct {
	mu       sync.Mutex
	own, all uint64
}

// reconfigure takes over the dynamic values that the metastore now has for this broker. When it returns, they act.
func (b *Broker) reconfigure() {
	b.dynamics.mu.Lock()
	defer b.dynamics.mu.Unlock()
	img := b.meta.Image()
	own, all := img.BrokerConfig(b.cfg.NodeID()), img.BrokerConfig(-1)
	if own.Version == b.dynamics.own && all.Version == b.dynamics.all {
		return
	}
	b.dynamics.own, b.dynamics.all = own.Version, all.Version
	err := b.cfg.SetDynamic(own.Configs, all.Configs)
	b.limit()
	if b.bandwidth != nil {
		b.bandwidth.Set(
			bandwidth(b.cfg.Int64("remote.log.manager.copy.max.bytes.per.second")),
			bandwidth(b.cfg.Int64("remote.log.manager.fetch.max.bytes.per.second")))
	}
	if b.tier != nil {
		b.tier.SetIndexCacheBytes(b.cfg.Int64("remote.log.index.file.cache.total.size.bytes"))
	}
	if b.replicas != nil {
		b.replicas.Reconfigure()
	}
	b.events.Emit(Reconfigured{Own: len(own.Configs), All: len(all.Configs), Ignored: err})
}

// limit tells the listeners how many connections there may be.
func (b *Broker) limit() {
	b.net.SetLimits(b.cfg.Int("max.connections"), b.cfg.Int("max.connections.per.ip"), b.cfg.ConnectionsPerIP())
}

// followConfigs takes over changes that came by another way than this broker's own answers.
func (b *Broker) followConfigs() {
	b.unsubscribe = b.meta.Subscribe(func(d metastore.Delta) {
		if len(d.BrokerConfigs) > 0 {
			b.reconfigure()
		}
	})
}

// Reconfigured says that dynamic values were taken over.
type Reconfigured struct {
	Own, All int   // values of this broker, of all brokers
	Ignored  error // values that this version does not take
}

// Name implements event.Event.
func (Reconfigured) Name() string { return "reconfigured" }

// Level implements event.Event.
func (e Reconfigured) Level() slog.Level {
	if e.Ignored != nil {
		return slog.LevelWarn
	}
	return slog.LevelInfo
}

// Attrs implements event.Event.
func (e Reconfigured) Attrs() []slog.Attr {
	attrs := []slog.Attr{slog.Int("own", e.Own), slog.Int("all", e.All)}
	if e.Ignored != nil {
		attrs = append(attrs, slog.String("ignored", e.Ignored.Error()))
	}
	return attrs
}
