package admin

import (
	"context"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"varve/broker/commitlog"
	"varve/tiering"
)

func collectMeta(out chan<- prometheus.Metric, image Image, node int32) {
	active, fenced, leaderless := 0, 0, 0
	for _, b := range image.Brokers() {
		if b.Fenced {
			fenced++
		} else {
			active++
		}
	}
	for t := range image.Topics() {
		for _, p := range t.Partitions {
			if p.Leader < 0 {
				leaderless++
			}
		}
	}
	out <- activeControllers.with(flag(image.Controller() == node))
	out <- activeBrokers.with(float64(active))
	out <- fencedBrokers.with(float64(fenced))
	out <- globalTopics.with(float64(image.TopicCount()))
	out <- globalPartitions.with(float64(image.PartitionCount()))
	out <- offlinePartitions.with(float64(leaderless))
	out <- metadataIndex.with(float64(image.Index()))
	out <- journaledThrough.with(float64(image.JournaledThrough()))
	out <- journalEntries.with(float64(image.JournalEntries()))
}

func collectReplicas(out chan<- prometheus.Metric, r Replicas) {
	st := r.Stats()
	for _, t := range st.Topics {
		out <- topicBytesIn.with(float64(t.BytesIn), t.Topic)
		out <- topicBytesOut.with(float64(t.BytesOut), t.Topic)
		out <- topicMessagesIn.with(float64(t.MessagesIn), t.Topic)
		out <- topicProduces.with(float64(t.ProduceRequests), t.Topic)
		out <- topicFetches.with(float64(t.FetchRequests), t.Topic)
		out <- topicFailedProduces.with(float64(t.FailedProduces), t.Topic)
		out <- topicFailedFetches.with(float64(t.FailedFetches), t.Topic)
	}
	out <- partitionCount.with(float64(st.Partitions))
	out <- leaderCount.with(float64(st.Leaders))
	out <- underReplicated.with(float64(st.UnderReplicated))
	out <- underMinISR.with(float64(st.UnderMinISR))
	out <- offlineReplicas.with(float64(st.Offline))
	out <- purgatorySize.with(float64(st.DelayedProduces), "Produce")
	out <- purgatorySize.with(float64(st.DelayedFetches), "Fetch")
	for _, p := range r.Describe() {
		partition := strconv.Itoa(int(p.Partition))
		out <- logSize.with(float64(p.LocalBytes), p.Topic, partition)
		out <- logStart.with(float64(p.LogStart), p.Topic, partition)
		out <- logEnd.with(float64(p.End), p.Topic, partition)
		lost := int64(0)
		for _, l := range p.Lost {
			lost += l.To - l.From
		}
		if lost > 0 {
			out <- lostOffsets.with(float64(lost), p.Topic, partition)
		}
	}
}

func collectDisk(out chan<- prometheus.Metric, st commitlog.DiskState) {
	if st.RoomBytes >= 0 {
		out <- diskRoom.with(float64(st.RoomBytes))
	}
	out <- diskLevel.with(float64(st.Level))
	if st.ReserveBytes <= 0 {
		return
	}
	for level, bytes := range map[commitlog.DiskLevel]int64{commitlog.DiskIsShort: st.ShortBytes, commitlog.DiskIsTight: st.TightBytes, commitlog.DiskIsFull: st.ReserveBytes} {
		out <- diskStep.with(float64(bytes), level.String())
	}
}

func collectEvents(out chan<- prometheus.Metric, src Sources) {
	known := func(string) bool { return true }
	if src.Image != nil {
		image := src.Image()
		known = func(topic string) bool { _, ok := image.Topic(topic); return ok }
	}
	state, bucket := src.Events.snapshots()
	if state.Index > 0 {
		out <- metaSnapSeconds.with(state.Took.Seconds())
		out <- metaSnapBytes.with(float64(state.Bytes))
	}
	if bucket.Index > 0 {
		out <- tierSnapSeconds.with(float64(bucket.TookMs) / 1000)
		out <- tierSnapBytes.with(float64(bucket.Bytes))
	}
	names, uploads, merges := src.Events.snapshot(known)
	for k, n := range names {
		out <- eventsTotal.with(float64(n), k.name, k.level)
	}
	for topic, t := range uploads {
		out <- topicRemoteCopies.with(float64(t.requests), topic)
		out <- topicRemoteCopyBytes.with(float64(t.bytes), topic)
	}
	for topic, t := range merges {
		out <- topicMerges.with(float64(t.requests), topic)
		out <- topicMergedSegments.with(float64(t.segments), topic)
		out <- topicMergedBytes.with(float64(t.bytes), topic)
	}
}

func collectTier(out chan<- prometheus.Metric, st tiering.Status) {
	problems := len(st.Errors)
	type sums struct{ lag, bytes, segments, lagSegments, lagMs int64 }
	byTopic := map[string]sums{}
	for _, p := range st.Partitions {
		t := byTopic[p.Topic]
		byTopic[p.Topic] = sums{t.lag + p.LagBytes, t.bytes + p.Bytes, t.segments + p.Segments, t.lagSegments + p.LagSegments, max(t.lagMs, p.LagMs)}
		if p.LastError != "" {
			problems++
		}
	}
	for topic, t := range byTopic {
		out <- topicRemoteCopyLag.with(float64(t.lag), topic)
		out <- topicRemoteLagSegs.with(float64(t.lagSegments), topic)
		out <- topicUploadLag.with(float64(t.lagMs)/1000, topic)
		out <- topicRemoteLogSize.with(float64(t.bytes), topic)
		out <- topicRemoteSegments.with(float64(t.segments), topic)
	}
	out <- tierProblems.with(float64(problems))
	out <- cacheCapacity.with(float64(st.Cache.CapacityBytes))
	out <- cacheUsed.with(float64(st.Cache.UsedBytes))
	out <- cacheHits.with(float64(st.Cache.Hits))
	out <- cacheMisses.with(float64(st.Cache.Misses))
	out <- cacheCorrupt.with(float64(st.Cache.CorruptChunks))
	out <- cacheDropped.with(float64(st.Cache.Dropped))
	out <- readMemory.with(float64(st.Cache.MemoryBytes))
}

// collectRestore tells of the restore under way; nothing when there is none.
func collectRestore(out chan<- prometheus.Metric, r Restorer) {
	st, err := r.RestoreStatus(context.Background(), "") // of the one under way: it waits for nothing
	if err != nil {
		return
	}
	out <- restoreHeld.with(float64(len(st.Held)))
	if st.ID == "" {
		return
	}
	out <- restorePhase.with(1, st.Phase)
	out <- restorePartitions.with(float64(st.Partitions))
	out <- restoreSegments.with(float64(st.Segments))
	out <- restoreBytes.with(float64(st.Bytes))
	out <- restoreProblem.with(flag(st.Problem != ""))
}

func collectNetwork(out chan<- prometheus.Metric, n Network) {
	st := n.Stats()
	out <- connections.with(float64(st.Connections))
	out <- connectionsTotal.with(float64(st.Accepted))
	out <- connectionsRefused.with(float64(st.RefusedConnections))
	out <- connectionsFailed.with(float64(st.FailedConnections))
	out <- connectionsIdle.with(float64(st.IdleClosed))
	out <- networkIn.with(float64(st.BytesIn))
	out <- networkOut.with(float64(st.BytesOut))
	out <- networkSendfile.with(float64(st.SendfileBytes))
	out <- requestsTotal.with(float64(st.Requests))
	out <- inFlightBytes.with(float64(st.InFlightBytes))
	out <- framesRefused.with(float64(st.RefusedFrames))
	out <- handlerPanics.with(float64(st.HandlerPanics))
}
