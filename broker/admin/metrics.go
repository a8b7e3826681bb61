package admin

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// series is one metric family. Names are those that Strimzi's rules for the JMX exporter give Kafka's beans where Kafka has
// the same number.
type series struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

func counter(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.CounterValue}
}

func gauge(name, help string, labels ...string) series {
	return series{prometheus.NewDesc(name, help, labels, nil), prometheus.GaugeValue}
}

func (s series) with(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(s.desc, s.kind, value, labels...)
}

var (
	topicBytesIn         = counter("kafka_server_brokertopicmetrics_bytesin_total", "Bytes appended.", "topic")
	topicBytesOut        = counter("kafka_server_brokertopicmetrics_bytesout_total", "Bytes returned to fetches.", "topic")
	topicMessagesIn      = counter("kafka_server_brokertopicmetrics_messagesin_total", "Records appended.", "topic")
	topicProduces        = counter("kafka_server_brokertopicmetrics_totalproducerequests_total", "Produce requests, one for each partition named.", "topic")
	topicFetches         = counter("kafka_server_brokertopicmetrics_totalfetchrequests_total", "Fetch requests, one for each partition named.", "topic")
	topicFailedProduces  = counter("kafka_server_brokertopicmetrics_failedproducerequests_total", "Produce requests that failed unexpectedly.", "topic")
	topicFailedFetches   = counter("kafka_server_brokertopicmetrics_failedfetchrequests_total", "Fetch requests that failed unexpectedly.", "topic")
	topicRemoteCopyLag   = gauge("kafka_server_brokertopicmetrics_remotecopylagbytes", "Bytes of local segments that are not wholly in the tier, the open ones included.", "topic")
	topicRemoteLagSegs   = gauge("kafka_server_brokertopicmetrics_remotecopylagsegments", "Closed segments that wait to be uploaded.", "topic")
	topicUploadLag       = gauge("varve_tier_upload_lag_seconds", "How long the oldest closed segment has waited to be uploaded.", "topic")
	topicMerges          = counter("varve_tier_merges_total", "Merges of small neighbours in the tier.", "topic")
	topicMergedSegments  = counter("varve_tier_merged_segments_total", "Segments that were merged into others.", "topic")
	topicMergedBytes     = counter("varve_tier_merged_bytes_total", "Bytes of objects that merges have made.", "topic")
	topicRemoteLogSize   = gauge("kafka_server_brokertopicmetrics_remotelogsizebytes", "Bytes in the tier.", "topic")
	topicRemoteSegments  = gauge("kafka_server_brokertopicmetrics_remotelogmetadatacount", "Segments in the tier.", "topic")
	topicRemoteCopyBytes = counter("kafka_server_brokertopicmetrics_remotecopybytes_total", "Bytes of objects uploaded.", "topic")
	topicRemoteCopies    = counter("kafka_server_brokertopicmetrics_remotecopyrequests_total", "Segments uploaded.", "topic")

	partitionCount     = gauge("kafka_server_replicamanager_partitioncount", "Replicas on this broker.")
	leaderCount        = gauge("kafka_server_replicamanager_leadercount", "Partitions led by this broker.")
	underReplicated    = gauge("kafka_server_replicamanager_underreplicatedpartitions", "Led partitions with fewer replicas in sync than assigned.")
	underMinISR        = gauge("kafka_server_replicamanager_underminisrpartitioncount", "Led partitions with fewer replicas in sync than min.insync.replicas.")
	offlineReplicas    = gauge("kafka_server_replicamanager_offlinereplicacount", "Replicas on this broker that cannot be served.")
	diskRoom           = gauge("varve_disk_room_bytes", "What the disk of the logs has left.")
	diskStep           = gauge("varve_disk_step_bytes", "With less room than this: what is in the tier is freed early (short), partitions that wait for the tier take no appends (tight), nor does any other (full).", "level")
	diskLevel          = gauge("varve_disk_level", "0 roomy, 1 short, 2 tight, 3 full.")
	purgatorySize      = gauge("kafka_server_delayedoperationpurgatory_purgatorysize", "Requests that wait.", "delayedoperation")
	logSize            = gauge("kafka_log_log_size", "Local bytes of a partition.", "topic", "partition")
	logStart           = gauge("kafka_log_log_logstartoffset", "First offset of a partition.", "topic", "partition")
	logEnd             = gauge("kafka_log_log_logendoffset", "Offset after the last record of a partition.", "topic", "partition")
	activeControllers  = gauge("kafka_controller_kafkacontroller_activecontrollercount", "1 on the controller, else 0.")
	activeBrokers      = gauge("kafka_controller_kafkacontroller_activebrokercount", "Brokers that are not fenced.")
	fencedBrokers      = gauge("kafka_controller_kafkacontroller_fencedbrokercount", "Brokers that are fenced.")
	globalTopics       = gauge("kafka_controller_kafkacontroller_globaltopiccount", "Topics in the cluster.")
	globalPartitions   = gauge("kafka_controller_kafkacontroller_globalpartitioncount", "Partitions in the cluster.")
	offlinePartitions  = gauge("kafka_controller_kafkacontroller_offlinepartitionscount", "Partitions without a leader.")
	buildInfo          = gauge("varve_build_info", "Always 1; the label names the version.", "version")
	readyGauge         = gauge("varve_ready", "1 while clients are served, else 0.")
	eventsTotal        = counter("varve_events_total", "State changes by name.", "event", "level")
	lostOffsets        = gauge("varve_lost_offsets", "Offsets that a partition lost with an erased replica.", "topic", "partition")
	metadataIndex      = gauge("varve_metadata_index", "Index of the last metadata command applied here.")
	journaledThrough   = gauge("varve_metadata_journaled_index", "Index up to which metadata is in the object store.")
	journalEntries     = gauge("varve_metadata_journal_entries", "Metadata changes that wait to be written into the object store.")
	metaSnapSeconds    = gauge("varve_metadata_snapshot_seconds", "How long the last snapshot of the metadata on this node's disk took.")
	metaSnapBytes      = gauge("varve_metadata_snapshot_bytes", "Bytes of the last snapshot of the metadata on this node's disk.")
	tierSnapSeconds    = gauge("varve_tier_snapshot_seconds", "How long the last snapshot of the metadata in the object store took.")
	tierSnapBytes      = gauge("varve_tier_snapshot_bytes", "Bytes of the last snapshot of the metadata in the object store.")
	restorePhase       = gauge("varve_restore_phase", "1 for the phase that a restore is in; absent when none is under way.", "phase")
	restorePartitions  = gauge("varve_restore_partitions", "Partitions that the restore under way has looked at in this phase.")
	restoreSegments    = gauge("varve_restore_segments", "Segments that the restore under way has taken in.")
	restoreBytes       = gauge("varve_restore_bytes", "Log bytes of the segments that the restore under way has taken in.")
	restoreProblem     = gauge("varve_restore_problem", "1 while something keeps the restore under way from going on, else 0.")
	restoreHeld        = gauge("varve_restored_topics_held", "Restored topics whose retention waits to be released.")
	tierProblems       = gauge("varve_tier_problems", "Things that keep the tier from working, 0 when all is well.")
	cacheCapacity      = gauge("varve_tier_cache_capacity_bytes", "Bound of the chunk cache.")
	cacheUsed          = gauge("varve_tier_cache_used_bytes", "Bytes in the chunk cache.")
	cacheHits          = counter("varve_tier_cache_hits_total", "Chunks read from the cache.")
	cacheMisses        = counter("varve_tier_cache_misses_total", "Chunks that had to be fetched.")
	cacheCorrupt       = counter("varve_tier_cache_corrupt_chunks_total", "Cached chunks that failed their checksum and were fetched again.")
	cacheDropped       = counter("varve_tier_cache_dropped_chunks_total", "Chunks that were not written to the cache because the disk was slower than the store.")
	readMemory         = gauge("varve_tier_read_memory_bytes", "Memory that holds chunks from the tier: fetched ahead, being sent, or kept.")
	storeCalls         = counter("varve_store_calls_total", "Calls of the object store.", "verb", "cause")
	storeRequests      = counter("varve_store_requests_total", "Requests sent to the object store.", "verb", "cause")
	storeErrors        = counter("varve_store_errors_total", "Calls of the object store that failed.", "verb", "cause")
	storeBytes         = counter("varve_store_bytes_total", "Bytes sent to or received from the object store.", "verb", "cause")
	storeSeconds       = counter("varve_store_seconds_total", "Time spent waiting for the object store.", "verb", "cause")
	storeDollars       = counter("varve_store_dollars_total", "Price of the requests in US dollars, at list price.", "verb", "cause")
	connections        = gauge("varve_connections", "Client connections that are open.")
	connectionsTotal   = counter("varve_connections_accepted_total", "Client connections accepted.")
	connectionsRefused = counter("varve_connections_refused_total", "Client connections closed at once because there were too many.")
	connectionsFailed  = counter("varve_connections_failed_total", "Client connections that the broker closed because something was wrong.")
	connectionsIdle    = counter("varve_connections_idle_closed_total", "Client connections closed because they were idle.")
	networkIn          = counter("varve_network_received_bytes_total", "Bytes of requests.")
	networkOut         = counter("varve_network_sent_bytes_total", "Bytes of responses.")
	networkSendfile    = counter("varve_network_sendfile_bytes_total", "Part of the bytes of responses that the kernel sent from files.")
	requestsTotal      = counter("varve_requests_total", "Requests of clients.")
	inFlightBytes      = gauge("varve_requests_in_flight_bytes", "Bytes of requests being worked on.")
	framesRefused      = counter("varve_requests_refused_total", "Requests refused for their size.")
	handlerPanics      = counter("varve_request_panics_total", "Requests that ended in a bug.")
)

// registry returns the metrics of this broker, the Go runtime's and the process's.
func (s *Server) registry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collector{s}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return r
}

// collector reads the sources when it is asked. It describes nothing in advance, because which parts there are depends on
// the configuration.
type collector struct{ s *Server }

// Describe implements prometheus.Collector.
func (collector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c collector) Collect(out chan<- prometheus.Metric) {
	src := c.s.sources()
	out <- buildInfo.with(1, src.Version)
	out <- readyGauge.with(flag(src.ready() == nil))
	if src.Image != nil {
		collectMeta(out, src.Image(), src.NodeID)
	}
	if src.Replicas != nil {
		collectReplicas(out, src.Replicas)
	}
	if src.Disk != nil {
		collectDisk(out, src.Disk())
	}
	if src.Events != nil {
		collectEvents(out, src)
	}
	if src.Tier != nil {
		collectTier(out, src.Tier.Status())
	}
	if src.Store != nil {
		for _, u := range src.Store.Snapshot() {
			verb := string(u.Verb)
			out <- storeCalls.with(float64(u.Calls), verb, u.Cause)
			out <- storeRequests.with(float64(u.Requests), verb, u.Cause)
			out <- storeErrors.with(float64(u.Errors), verb, u.Cause)
			out <- storeBytes.with(float64(u.Bytes), verb, u.Cause)
			out <- storeSeconds.with(u.Seconds, verb, u.Cause)
			out <- storeDollars.with(u.Dollars, verb, u.Cause)
		}
	}
	if src.Restore != nil {
		collectRestore(out, src.Restore)
	}
	if src.Network != nil {
		collectNetwork(out, src.Network)
	}
	if src.Requests != nil {
		collectRequests(out, src.Requests())
	}
	if src.Lags != nil {
		collectLags(out, src.Lags())
	}
}

func flag(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
