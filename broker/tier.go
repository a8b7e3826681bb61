package broker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"syscall"
	"time"

	"varve/tiering"
	"varve/tiering/objstore"
)

// probeTimeout bounds the first look at the store: a node whose store does not answer serves without it.
const probeTimeout = 3 * time.Second

// cacheShare is the part of the disk that the chunk cache takes when varve.tier.cache.bytes is -1.
const cacheShare = 5 // one fifth

// openTier opens the store. At a first start a store that says no ends the start; any other trouble is told and left to
// tiering's own retries.
func (b *Broker) openTier(ctx context.Context) error {
	raw := b.cfg.TierURL()
	if raw == "" {
		return nil
	}
	url, err := objstore.ParseURL(raw)
	if err != nil {
		return err
	}
	b.tierText = url.String()
	b.usage = objstore.NewCounters(objstore.S3StandardPrices(), time.Now)
	b.usage.GroupBy(tiering.TopicOfKey)
	b.bandwidth = objstore.NewBandwidth(
		bandwidth(b.cfg.Int64("remote.log.manager.copy.max.bytes.per.second")),
		bandwidth(b.cfg.Int64("remote.log.manager.fetch.max.bytes.per.second")))
	b.store, err = objstore.Open(ctx, raw, objstore.OpenOptions{Counters: b.usage, Bandwidth: b.bandwidth})
	if err != nil {
		return err
	}
	cacheBytes, err := b.cacheBytes()
	if err != nil {
		return err
	}
	prefix := url.Prefix
	url.Prefix = ""
	b.tier, err = tiering.New(tiering.Options{
		Store: b.store, Location: url.String(), Prefix: prefix, Meta: b.meta, ClusterID: b.meta.ClusterID(), BrokerID: b.cfg.NodeID(),
		CacheDir: b.cfg.CacheDir(), CacheBytes: cacheBytes,
		IndexCacheBytes:   b.cfg.Int64("remote.log.index.file.cache.total.size.bytes"),
		ReadMemoryBytes:   b.cfg.Int64("varve.tier.read.memory.bytes"),
		DeleteDelayMs:     b.cfg.Int64("varve.tier.delete.delay.ms"),
		UploadDeadlineMs:  b.cfg.Int64("varve.tier.upload.deadline.ms"),
		TaskIntervalMs:    b.cfg.Int64("remote.log.manager.task.interval.ms"),
		JournalIntervalMs: b.cfg.Int64("varve.tier.journal.interval.ms"),
		Concurrency:       b.cfg.Int("remote.log.manager.copier.thread.pool.size"),
		MergeMinSegments:  b.cfg.Int("varve.tier.merge.min.segments"),
		MergeMaxBytes:     max(0, b.cfg.Int64("varve.tier.merge.max.bytes")),
		State:             b.meta, Groups: tierGroups{b}, Publish: b.publishRestored,
		SnapshotIntervalMs: b.cfg.Int64("varve.tier.snapshot.interval.ms"),
		DeleteDeadlineMs:   b.cfg.Int64("varve.tier.delete.deadline.ms"),
		ScrubIntervalMs:    b.cfg.Int64("varve.tier.scrub.interval.ms"),
		ScrubBytesPerSec:   b.cfg.Int64("varve.tier.scrub.bytes.per.second"),
		Events:             b.events, Clock: b.clock, DiskShort: b.logs.DiskShortBytes,
	})
	if err != nil {
		return err
	}
	b.logs.OnDiskShort(b.tier.RetainSoon)
	return b.probe(ctx)
}

// bandwidth maps Kafka's "no bound" (the largest long) to objstore's 0.
func bandwidth(bytesPerSec int64) int64 {
	if bytesPerSec == math.MaxInt64 {
		return 0
	}
	return bytesPerSec
}

// probe looks at the store and claims the prefix. Whether this is a first start is a question of what the metastore knows:
// a cluster that has topics must serve them, whatever its store says.
func (b *Broker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	report, err := objstore.Probe(ctx, b.store)
	if err == nil {
		err = b.tier.ClaimOwner(ctx)
	}
	var owner *tiering.OwnerError
	said := errors.Is(err, objstore.ErrForbidden) || errors.Is(err, objstore.ErrBucketMissing)
	if errors.As(err, &owner) || said && b.meta.Image().TopicCount() == 0 {
		return err
	}
	e := StoreProbed{Store: b.tierText, Versioning: report.Versioning, ObjectLock: report.ObjectLock}
	if err != nil {
		e.Problem = err.Error()
	}
	b.events.Emit(e)
	return nil
}

// cacheBytes is the bound of the chunk cache.
func (b *Broker) cacheBytes() (int64, error) {
	n := b.cfg.Int64("varve.tier.cache.bytes")
	if n >= 0 {
		return n, nil
	}
	// The cache's own folder may not be there yet; the log's is, and they share a disk unless told otherwise.
	var fs syscall.Statfs_t
	if err := syscall.Statfs(b.cfg.LogDir(), &fs); err != nil {
		return 0, fmt.Errorf("size of the disk that holds %s: %w", b.cfg.LogDir(), err)
	}
	return int64(fs.Blocks) * int64(fs.Bsize) / cacheShare, nil
}
