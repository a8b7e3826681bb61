package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
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
)

// startTimeout bounds the steps of a start that wait for the metastore or the controller; recovery of logs is not among
// them.
const startTimeout = 60 * time.Second

// clockFile is what the clock guard keeps beside the metastore.
const clockFile = "clock"

// failedStartTimeout bounds taking down a start that failed.
const failedStartTimeout = 10 * time.Second

// Start brings a node up and returns when clients are served. The error is an *ExitError; what was started is down again
// then.
func Start(ctx context.Context, cfg *config.Config, o Options) (*Broker, error) {
	began := time.Now()
	b := &Broker{cfg: cfg, version: o.Version, counts: &admin.Events{}, failed: make(chan error, 1), drained: make(chan struct{}), tierText: "none"}
	b.life, b.stop = context.WithCancel(context.WithoutCancel(ctx))
	sinks := append([]event.Sink{b.counts.Emit}, o.Sinks...)
	if o.Log != nil {
		sinks = append(sinks, event.Log(o.Log))
	} else {
		o.Log = slog.New(slog.DiscardHandler)
	}
	b.events = event.Fan(append(sinks, b.watchDisk)...)
	for _, step := range []func(context.Context) error{
		b.bind, b.openLogs, b.openMeta, b.openTier, b.register, b.startReplicas, b.startGroups, b.serve,
	} {
		err := step(ctx)
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			down, cancel := context.WithTimeout(context.WithoutCancel(ctx), failedStartTimeout)
			defer cancel()
			return nil, exitOf(errors.Join(err, b.abandon(down)), "")
		}
	}
	b.events.Emit(Ready{Kafka: b.KafkaAddr(), HTTP: b.HTTPAddr(), Tier: b.tierText, Took: time.Since(began)})
	return b, nil
}

// bind takes the ports, so that a taken one is told before anything else happens.
func (b *Broker) bind(ctx context.Context) (err error) {
	b.net, err = netio.New(netio.Options{
		Handler: &b.handler, Events: b.events,
		MaxFrameBytes:    b.cfg.Int("socket.request.max.bytes"),
		MaxInFlightBytes: max(b.cfg.Int64("queued.max.request.bytes"), 0),
		IdleTimeout:      b.cfg.Duration("connections.max.idle.ms"),
	})
	if err != nil {
		return err
	}
	b.limit()
	for i, l := range b.cfg.Listeners() {
		addr, err := b.net.Listen(ctx, l.Name, l.Addr())
		if err != nil {
			return &ExitError{Code: ExitRuntime, Err: fmt.Errorf("listen on %s: %w", l.Addr(), err), Fix: "stop what uses the port or choose another in listeners"}
		}
		adv := b.cfg.AdvertisedListeners()[i]
		if adv.Port == 0 {
			adv.Port = addr.(*net.TCPAddr).Port
		}
		b.endpoints = append(b.endpoints, metastore.Endpoint{Name: adv.Name, Protocol: adv.Protocol, Host: adv.Host, Port: int32(adv.Port)})
	}
	addr := b.cfg.String("varve.http.listen")
	if addr == "" {
		return nil
	}
	b.http, err = admin.Listen(addr, b.sources(false))
	if err != nil {
		return &ExitError{Code: ExitRuntime, Err: fmt.Errorf("listen on %s: %w", addr, err), Fix: "stop what uses the port or choose another in varve.http.listen"}
	}
	b.run("http", b.http.Run)
	return nil
}

func (b *Broker) openLogs(context.Context) (err error) {
	b.logs, err = commitlog.OpenManager(commitlog.ManagerOptions{
		Dir: b.cfg.LogDir(), NodeID: b.cfg.NodeID(), Events: b.events,
		RecoveryThreads:      b.cfg.Int("num.recovery.threads.per.data.dir"),
		DiskReserveBytes:     b.cfg.Int64("varve.disk.reserve.bytes"),
		CheckpointIntervalMs: min(b.cfg.Int64("log.flush.offset.checkpoint.interval.ms"), b.cfg.Int64("replica.high.watermark.checkpoint.interval.ms")),
	})
	return err
}

func (b *Broker) openMeta(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b.meta, err = metastore.Open(ctx, metastore.Options{
		Dir: b.cfg.MetaDir(), NodeID: b.cfg.NodeID(), ClusterID: b.logs.ClusterID(),
		SnapshotInterval: b.cfg.Duration("metadata.log.max.snapshot.interval.ms"),
		NoJournal:        b.cfg.TierURL() == "", Events: b.events, Fatal: metadataFailed,
	})
	if err != nil {
		return err
	}
	if err := b.logs.SetClusterID(b.meta.ClusterID()); err != nil {
		return err
	}
	b.clock = tiering.NewClockGuard(tiering.ClockOptions{Path: filepath.Join(b.cfg.MetaDir(), clockFile), Events: b.events})
	b.reconfigure()
	b.control = controller.New(b.meta, controller.Options{
		ValidateTopicConfig:      b.cfg.ValidateTopic,
		TopicPolicy:              b.topicPolicy,
		DefaultPartitions:        int32(b.cfg.Int("num.partitions")),
		DefaultReplicationFactor: int16(b.cfg.Int("default.replication.factor")),
		SessionTimeout:           b.cfg.Duration("broker.session.timeout.ms"),
		Events:                   b.events,
	})
	return nil
}

// metadataFailed ends the process: nothing can be acknowledged any more, and the next start recovers as after a crash.
func metadataFailed(err error) {
	exit := exitOf(err, "make room on the disk or replace it, then start again")
	fmt.Fprintf(os.Stderr, "varve server: %v\n", exit)
	os.Exit(exit.Code)
}

// topicPolicy reads a topic's overrides for the controller. Overrides that are no longer legal count as the defaults.
func (b *Broker) topicPolicy(overrides map[string]string) controller.TopicPolicy {
	t, err := b.cfg.Topic(overrides)
	if err != nil {
		return controller.TopicPolicy{MinISR: 1, Tiered: overrides["remote.storage.enable"] == "true"}
	}
	return controller.TopicPolicy{Tiered: t.RemoteStorage, MinISR: int(t.MinInsyncReplicas), Unclean: t.UncleanLeaderElection}
}

func (b *Broker) register(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	b.run("controller", b.control.Run)
	prev, clean := b.logs.CleanShutdown()
	if !clean {
		prev = -1
	}
	b.epoch, err = b.control.RegisterBroker(ctx, controller.Registration{
		ID: b.cfg.NodeID(), Incarnation: protocol.NewUUID(), Dirs: []protocol.UUID{b.logs.DirectoryID()},
		Endpoints: b.endpoints, Rack: b.cfg.String("broker.rack"), PrevEpoch: prev,
	})
	return err
}

func (b *Broker) startReplicas(ctx context.Context) (err error) {
	o := replica.Options{
		NodeID: b.cfg.NodeID(), Logs: b.logs, Meta: b.meta, Control: controlPlane{b.control}, Config: b.cfg, Events: b.events,
	}
	o.ClockAgrees = b.clock.Agrees
	if b.tier != nil {
		o.Tier = b.tier
	}
	if b.replicas, err = replica.New(o); err != nil {
		return err
	}
	p := b.run("replicas", b.replicas.Run)
	select {
	case <-b.replicas.Ready():
	case <-p.done:
		return b.firstFailure()
	case <-ctx.Done():
		return ctx.Err()
	}
	if b.tier != nil {
		b.run("tier", b.tier.Run)
	}
	b.run("heartbeat", b.heartbeat)
	bound, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return b.control.Unfence(bound, b.cfg.NodeID(), b.epoch)
}

func (b *Broker) startGroups(context.Context) error {
	b.groups = group.New(group.Options{
		NodeID: b.cfg.NodeID(), Config: b.cfg, Replicas: b.replicas, Meta: b.meta, ClockAgrees: b.clock.Agrees, Events: b.events,
		CreateTopic: func(ctx context.Context, t controller.CreateTopic) error {
			return b.control.CreateTopics(ctx, []controller.CreateTopic{t}, false)[0].Err
		},
	})
	b.coordinator.Store(b.groups)
	b.run("groups", b.groups.Run)
	return nil
}

// firstFailure is why a part ended.
func (b *Broker) firstFailure() error {
	select {
	case err := <-b.failed:
		return err
	default:
		return &protocol.InvariantError{What: "a part ended without a word"}
	}
}

func (b *Broker) serve(context.Context) error {
	b.dispatch = api.New(api.Options{
		NodeID: b.cfg.NodeID(), Config: b.cfg,
		Cluster:     func() api.Cluster { return b.meta.Image() },
		Replicas:    b.replicas,
		Controller:  topicControl{b.control, b.cfg},
		Groups:      b.groups,
		ProducerIDs: func(ctx context.Context) (int64, int64, error) { return b.meta.ProducerIDs(ctx, b.epoch) },
		Reconfigure: b.reconfigure,
		Events:      b.events,
	})
	b.followConfigs()
	b.handler.to.Store(b.dispatch)
	b.run("listeners", func(ctx context.Context) error {
		err := b.net.Serve()
		if err == nil {
			<-ctx.Done() // Shutdown ended it
		}
		return err
	})
	b.ready.Store(true)
	if b.http != nil {
		b.http.Update(b.sources(true))
	}
	return nil
}

// abandon takes down a start that failed. A marker of clean shutdown names no broker epoch then: the controller takes the next
// registration for one after a crash.
func (b *Broker) abandon(ctx context.Context) error {
	if b.logs != nil {
		b.epoch = -1
	}
	return b.close(ctx)
}
